// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Misuse, counts, and what is said at the end of the process.
#include "tests/support/fake_cuda/report.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

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

void write_report(const char* path) {
  const Counts& c = counts();
  std::string text = std::string("{\"rank\": ") + rank_text();
  const auto add = [&text](const char* name, std::uint64_t value) {
    text += std::string(", \"") + name + "\": " + std::to_string(value);
  };
  add("misuses", static_cast<std::uint64_t>(num_misuses));
  add("allocations", c.allocations);
  add("frees", c.frees);
  add("pinned_allocations", c.pinned_allocations);
  add("pinned_frees", c.pinned_frees);
  add("device_synchronizations", c.device_synchronizations);
  add("stream_synchronizations", c.stream_synchronizations);
  add("event_synchronizations", c.event_synchronizations);
  add("blocking_copies", c.blocking_copies);
  add("copies", c.copies);
  add("memsets", c.memsets);
  add("launches", c.launches);
  add("products", c.products);
  add("messages", c.messages);
  add("streams", c.streams);
  add("events", c.events);
  add("captures", c.captures);
  add("graph_instantiations", c.graph_instantiations);
  add("graph_launches", c.graph_launches);
  add("peak_bytes", c.peak_bytes);
  add("distinct_kernels", c.kernels.size());
  text += ", \"kernels\": {";
  const char* separator = "";
  for (const auto& [name, number] : c.kernels) {
    text += separator + ('"' + name) + "\": " + std::to_string(number);
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
    tell_leaked_graphs();
    tell_leaked_streams();
    tell_leaked_products();
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

cudaError_t refuse(cudaError_t status, const std::string& text) {
  misuse(text + " (" + cudaGetErrorName(status) + ")");
  return answer(status);
}

long long setting(const char* name, long long otherwise) {
  const char* const text = std::getenv((std::string("ESPALIER_FAKE_CUDA_") + name).c_str());
  return text == nullptr ? otherwise : std::atoll(text);
}

Counts& counts() {
  static Counts& all = *new Counts;
  return all;
}

}  // namespace fake_cuda
