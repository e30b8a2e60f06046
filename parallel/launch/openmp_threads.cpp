// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch/openmp_threads.hpp"

#include <fmt/format.h>
#include <strings.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <regex>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "parallel/launch/launch_environment.hpp"

#ifdef KOKKOS_ENABLE_OPENMP
#include <omp.h>
#endif

namespace espalier {
namespace {

constexpr int max_threads = 512;  // Kokkos keeps its threads in an array of so many

struct Variable {
  const char* name;
  const char* pattern;
  const char* wanted;
};
// Of up to nine digits: what follows is no number of threads, and may not fit the library's integers.
const char* const number = R"(\s*\+?0*[1-9]\d{0,8}\s*)";
const char* const number_list = R"(\s*\+?0*[1-9]\d{0,8}\s*(,\s*\+?0*[1-9]\d{0,8}\s*)*)";
const char* const size = R"(\s*\d{1,15}\s*[bkmg]?\s*)";
const char* const boolean = R"(\s*(true|false)\s*)";
const Variable variables[] = {
    {"OMP_NUM_THREADS", number_list, "a number of at least 1, or a list such as 4,2"},
    {"OMP_THREAD_LIMIT", R"(\s*\+?0*[1-9]\d{0,9}\s*)", "a number of at least 1"},
    {"OMP_MAX_ACTIVE_LEVELS", R"(\s*\d{1,10}\s*)", "a number of at least 1"},
    {"OMP_DYNAMIC", boolean, "false"},
    {"OMP_PROC_BIND", R"(\s*(true|false|close|spread|master|primary)\s*(,\s*(close|spread|master|primary)\s*)*)",
     "true, false, close, spread or primary"},
    {"OMP_STACKSIZE", size, "a size such as 8M"},
    {"GOMP_STACKSIZE", size, "a size such as 8M"},
    {"OMP_WAIT_POLICY", R"(\s*(active|passive)\s*)", "active or passive"},
    {"ESPALIER_BIND", "[01]", "0 or 1"},
    {"ESPALIER_REEXEC", "[01]", "0 or 1"},
    {"ESPALIER_PROGRESS", "bar|lines", "bar or lines"},
    {ranks_per_gpu_variable, number, "a number of at least 1"},
    {"KOKKOS_NUM_THREADS", number, "a number of at least 1"},
};

[[noreturn]] void refuse(const std::string& what, const std::string& got, const std::string& wanted,
                         const std::string& todo) {
  throw Error(ExitCode::usage, {.what = what, .got = got, .wanted = wanted, .todo = todo});
}

// "OMP_DYNAMIC=true"; "" where it is not set.
std::string setting(const Environment& environment, const char* name) {
  const char* const value = environment(name);
  return value == nullptr ? "" : fmt::format("{}={}", name, value);
}

#ifdef KOKKOS_ENABLE_OPENMP
// libgomp ends the process where it cannot bind a thread to any core of its place.
bool has_place_without_core() {
  const auto num_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_CONF));
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> cores(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, cores.data());
    if (std::ranges::none_of(cores, [&](int core) { return core < num_cores; }))
      return true;
  }
  return omp_get_num_places() == 0;
}
#endif

// The first of a list: that of the outermost parallel regions.
std::string first_of(const std::string& list) { return list.substr(0, list.find(',')); }

// As Kokkos reads it, with spaces and a sign. Nothing for what is no number from 1 on, which Kokkos refuses itself.
std::optional<int> thread_count(const std::string& text) {
  char* end = nullptr;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (end == text.c_str() || text.find_first_not_of(' ', static_cast<std::size_t>(end - text.c_str())) != text.npos ||
      number < 1 || number > std::numeric_limits<int>::max())
    return std::nullopt;
  return static_cast<int>(number);
}

}  // namespace

WantedThreads wanted_threads(std::span<char* const> arguments, const Environment& environment) {
  WantedThreads wanted;
#ifdef KOKKOS_ENABLE_OPENMP
  wanted.count = omp_get_max_threads();
#endif
  wanted.setting = setting(environment, "OMP_NUM_THREADS");
  if (wanted.setting.empty())
    wanted.setting = fmt::format("{} threads", wanted.count);
  if (const std::string text = setting(environment, "KOKKOS_NUM_THREADS"); !text.empty())
    if (const auto count = thread_count(environment("KOKKOS_NUM_THREADS")))
      wanted = {*count, text};
  for (const std::string argument : arguments)
    for (const std::string_view name : {"--kokkos-threads=", "--kokkos-num-threads="})
      if (argument.starts_with(name))
        if (const auto count = thread_count(argument.substr(name.size())))
          wanted = {*count, argument};
  return wanted;
}

void require_openmp_settings(const WantedThreads& wanted, const Environment& environment) {
  for (const auto& [name, pattern, values] : variables)
    if (const char* const value = environment(name))
      if (!std::regex_match(value, std::regex(pattern, std::regex::icase)))
        refuse("an environment variable has a value that cannot be used", setting(environment, name),
               fmt::format("{}={}", name, values), fmt::format("correct {}, or unset it", name));
  const char* const of_openmp = environment("OMP_NUM_THREADS");
  const char* const of_kokkos = environment("KOKKOS_NUM_THREADS");
  if (of_openmp != nullptr && of_kokkos != nullptr && thread_count(of_kokkos) != thread_count(first_of(of_openmp)))
    refuse("two variables give a rank different numbers of threads",
           fmt::format("{}, {}", setting(environment, "OMP_NUM_THREADS"), setting(environment, "KOKKOS_NUM_THREADS")),
           "one number: kernels take the one of Kokkos, libraries the one of OpenMP", "unset KOKKOS_NUM_THREADS");
  if (wanted.count > max_threads)
    refuse("more threads than a rank can have", wanted.setting, fmt::format("1 to {}", max_threads),
           "set it to the cores of a rank, or leave it out");
}

void require_whole_team(const WantedThreads& wanted, const Environment& environment) {
#ifdef KOKKOS_ENABLE_OPENMP
  if (wanted.count == 1)
    return;
  const char* const proc_bind = environment("OMP_PROC_BIND");
  const bool binds = proc_bind == nullptr || strcasecmp(proc_bind, "false") != 0;
  for (const char* const name : {"OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (binds && environment(name) != nullptr && has_place_without_core())
      refuse("an environment variable names a core that this process may not use", setting(environment, name),
             "cores that the launcher or taskset left to this process", fmt::format("correct {}, or unset it", name));
  int got = 1;
#pragma omp parallel num_threads(wanted.count)
  {
#pragma omp single
    got = omp_get_num_threads();
  }
  const bool is_dynamic = omp_get_dynamic() != 0;  // then a later region may have fewer, when the machine is busy
  if (got >= wanted.count && !is_dynamic)
    return;
  std::string causes;
  const auto blame = [&](const char* name, bool guilty) {
    if (const std::string text = setting(environment, name); guilty && !text.empty())
      causes += (causes.empty() ? "" : ", ") + text;
  };
  blame("OMP_DYNAMIC", is_dynamic);
  blame("OMP_MAX_ACTIVE_LEVELS", omp_get_max_active_levels() < 1);
  blame("OMP_THREAD_LIMIT", omp_get_thread_limit() < wanted.count);
  refuse("OpenMP does not give a rank the threads that it counts on",
         fmt::format("{} of {} threads{}{}", got, wanted.count, causes.empty() ? "" : ", with ", causes),
         fmt::format("{} in every parallel region ({})", wanted.count, wanted.setting),
         causes.empty() ? "set OMP_NUM_THREADS=1, or look at the OMP_ variables (OMP_DISPLAY_ENV=true prints them)"
                        : fmt::format("unset {}, or set OMP_NUM_THREADS=1", causes.substr(0, causes.find('='))));
#endif
}

}  // namespace espalier
