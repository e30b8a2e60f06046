// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Misuse, counts, and what is said at the end of the process.
#include "tests/support/fake_cuda/report.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tests/support/fake_cuda/device.hpp"

namespace fake_cuda {
namespace {

constexpr int exit_code = 97;
constexpr int most_lines = 50;
int num_misuses = 0;

// mpiexec tells ranks so.
const char* rank_text() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* const rank = std::getenv(name))
      return rank;
  return "0";
}

// The counts at the first and at the last launch of the kernel that marks a step.
struct Marks {
  std::uint64_t number = 0;
  Counts first, last;
};
Marks& marks() {
  static Marks& all = *new Marks;
  return all;
}

struct Named {
  const char* name;
  std::uint64_t Counts::*count;
};
constexpr Named named_counts[] = {{"allocations", &Counts::allocations},
                                  {"frees", &Counts::frees},
                                  {"pinned_allocations", &Counts::pinned_allocations},
                                  {"pinned_frees", &Counts::pinned_frees},
                                  {"device_synchronizations", &Counts::device_synchronizations},
                                  {"stream_synchronizations", &Counts::stream_synchronizations},
                                  {"event_synchronizations", &Counts::event_synchronizations},
                                  {"blocking_copies", &Counts::blocking_copies},
                                  {"copies", &Counts::copies},
                                  {"memsets", &Counts::memsets},
                                  {"launches", &Counts::launches},
                                  {"products", &Counts::products},
                                  {"messages", &Counts::messages},
                                  {"streams", &Counts::streams},
                                  {"events", &Counts::events},
                                  {"captures", &Counts::captures},
                                  {"graph_instantiations", &Counts::graph_instantiations},
                                  {"graph_launches", &Counts::graph_launches},
                                  {"peak_bytes", &Counts::peak_bytes}};

void write_report(const char* path) {
  const Counts& c = counts();
  std::string text = std::string("{\"rank\": ") + rank_text() + ", \"misuses\": " + std::to_string(num_misuses);
  for (const auto& [name, count] : named_counts)
    text += std::string(", \"") + name + "\": " + std::to_string(c.*count);
  text += ", \"marks\": " + std::to_string(marks().number);
  for (const auto& [name, count] : named_counts)
    text += std::string(", \"marked_") + name + "\": " + std::to_string(marks().last.*count - marks().first.*count);
  text += ", \"kernels\": {";
  const char* separator = "";
  for (const auto& [name, launches] : c.kernels) {
    text += separator + ('"' + name) + "\": " + std::to_string(launches);
    separator = ", ";
  }
  text += "}}\n";
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    misuse(std::string("ESPALIER_FAKE_CUDA_REPORT=") + path + " cannot be written");
  if (file >= 0)
    close(file);
}

[[gnu::destructor]] void end_of_process() {
  if (was_used()) {
    if (setting("LEAKS", 1) != 0) {
      tell_leaked_graphs();
      tell_leaked_streams();
      tell_leaked_products();
      tell_leaked_communicators();
      tell_leaked_cudnn();
      tell_leaked_memory();
    }
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

Lock lock_all() {
  static std::mutex& mutex = *new std::mutex;
  return Lock(mutex);
}

void misuse(const std::string& text) {
  if (++num_misuses <= most_lines)
    std::fprintf(stderr, "fake CUDA: %s\n", text.c_str());
  if (setting("ABORT", 0) != 0)  // for a debugger
    std::abort();
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

cudaError_t refuse(cudaError_t status, const std::string& text) {
  misuse(text + " (" + cudaGetErrorName(status) + ")");
  return answer(status);
}

long long setting(const char* name, long long otherwise) {
  const char* const text = std::getenv((std::string("ESPALIER_FAKE_CUDA_") + name).c_str());
  return text == nullptr ? otherwise : std::atoll(text);
}

void note_launch(const std::string& kernel) {
  ++counts().launches;
  ++counts().kernels[kernel];
  const char* const mark = std::getenv("ESPALIER_FAKE_CUDA_MARK");
  if (mark == nullptr || kernel.find(mark) == std::string::npos)
    return;
  marks().last = counts();
  if (++marks().number == 1)
    marks().first = counts();
}

Counts& counts() {
  static Counts& all = *new Counts;
  return all;
}

}  // namespace fake_cuda
