// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Misuse, counts, and what is said at the end of the process.
#include "tests/support/fake_cuda/report.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

#include "tests/support/fake_cuda/call.hpp"

namespace fake_cuda {
namespace {

constexpr int exit_code = 97;
constexpr int max_lines = 50;
int num_misuses = 0;

using Counts = std::map<std::string, std::uint64_t>;

// Not destroyed before the end of the process is told.
auto& counts = *new Counts{{"allocations", 0},
                           {"frees", 0},
                           {"pinned_allocations", 0},
                           {"pinned_frees", 0},
                           {"device_synchronizations", 0},
                           {"stream_synchronizations", 0},
                           {"blocking_copies", 0},
                           {"streams", 0},
                           {"events", 0},
                           {"graph_launches", 0},
                           {"launches", 0},
                           {"messages", 0}};
auto& kernels = *new Counts;
// At the first and at the last launch of the kernel that marks a step.
auto& first_mark = *new std::optional<Counts>;
auto& last_mark = *new Counts;

// mpiexec tells ranks so.
const char* rank_text() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* const rank = std::getenv(name))
      return rank;
  return "0";
}

void write_report(const char* path) {
  std::string text = std::string("{\"rank\": ") + rank_text();
  const auto add = [&](const std::string& name, std::uint64_t number) {
    text.append(", \"").append(name).append("\": ").append(std::to_string(number));
  };
  for (const auto& [name, number] : counts) {
    add(name, number);
    add("marked_" + name, first_mark ? last_mark[name] - first_mark->at(name) : 0);
  }
  for (const auto& [name, launches] : kernels)
    add(name, launches);
  text.append("}\n");
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    misuse(std::string("ESPALIER_FAKE_CUDA_REPORT=") + path + " cannot be written");
  if (file >= 0)
    close(file);
}

[[gnu::destructor]] void end_of_process() {
  if (was_used()) {
    tell_leaked_graphs();
    tell_leaked_streams();
    report_leaked_matmuls();
    tell_leaked_communicators();
    tell_leaked_cudnn();
    tell_leaked_memory();
    if (const char* const path = std::getenv("ESPALIER_FAKE_CUDA_REPORT"))
      write_report(path);
  }
  if (num_misuses > 0) {
    std::fprintf(stderr, "fake CUDA: rank %s: %d misuses\n", rank_text(), num_misuses);
    std::fflush(nullptr);
    _exit(exit_code);
  }
}

}  // namespace

void misuse(const std::string& text) {
  if (++num_misuses <= max_lines)
    std::fprintf(stderr, "fake CUDA: %s\n", text.c_str());
}

std::string readable(const std::string& text) {
  const std::size_t first = text.rfind(' ') + 1;  // 0 where there is none
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(text.c_str() + first, nullptr, nullptr, &status), std::free);
  if (status != 0)
    return text;
  std::string after = name.get();
  if (const std::size_t ours = after.find("espalier::"); ours != std::string::npos)
    after.erase(0, ours);
  return text.substr(0, first) + after.substr(0, 100);
}

long long setting(const char* name, long long otherwise) {
  const char* const text = std::getenv((std::string("ESPALIER_FAKE_CUDA_") + name).c_str());
  return text == nullptr ? otherwise : std::atoll(text);
}

std::uint64_t count(const std::string& name) { return ++counts.at(name); }

void note_launch(const std::string& kernel) {
  count("launches");
  ++kernels[kernel];
  const char* const mark = std::getenv("ESPALIER_FAKE_CUDA_MARK");
  if (mark == nullptr || kernel.find(mark) == std::string::npos)
    return;
  last_mark = counts;
  if (!first_mark)
    first_mark = counts;
}

}  // namespace fake_cuda
