// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/parallel_encoder.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

namespace espalier {
namespace {

constexpr std::size_t bytes_per_thread = std::size_t{4} << 20;

}  // namespace

ParallelEncoder::ParallelEncoder(const Tokenizer& tokenizer, Index num_threads)
    : tokenizer_(tokenizer),
      num_threads_(num_threads > 0 ? static_cast<std::size_t>(num_threads)
                                   : std::max(1U, std::thread::hardware_concurrency())) {
  if (tokenizer.is_local())  // no work: reading and writing take longer
    num_threads_ = 1;
}

void ParallelEncoder::add(std::string text, EncodeOptions options, TokenFileWriter& writer) {
  num_bytes_ += text.size();
  tasks_.push_back({std::move(text), options, &writer});
  if (num_bytes_ >= (num_threads_ == 1 ? 1 : num_threads_ * bytes_per_thread))
    flush();
}

void ParallelEncoder::encode_task(Task& task) const {
  try {
    tokenizer_.encode(task.text, task.tokens, task.options);
    std::string().swap(task.text);
  } catch (...) {
    task.failure = std::current_exception();
  }
}

void ParallelEncoder::flush() {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < tasks_.size(); i = next++)
      encode_task(tasks_[i]);
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(num_threads_, tasks_.size()); ++i)
    threads.emplace_back(work);
  work();
  threads.clear();  // waits for them
  for (const Task& task : tasks_) {
    if (task.failure)
      std::rethrow_exception(task.failure);
    task.writer->append(task.tokens);
  }
  tasks_.clear();
  num_bytes_ = 0;
}

}  // namespace espalier
