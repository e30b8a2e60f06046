// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "io/token_file.hpp"

namespace espalier {

/// Encodes texts on several threads and appends their tokens to token files in the order of the texts. Keeps some MiB
/// of texts a thread.
class ParallelEncoder {
 public:
  /// @param tokenizer outlives this  @param num_threads 0: one a core
  ParallelEncoder(const Tokenizer& tokenizer, Index num_threads);

  /// @param writer outlives the next flush()
  void add(std::string text, EncodeOptions options, TokenFileWriter& writer);
  /// Encodes and appends what was added. @throws what encode() threw for the first of the texts
  void flush();

 private:
  struct Task {
    std::string text;
    EncodeOptions options;
    TokenFileWriter* writer;
    std::vector<TokenId> tokens = {};
    std::exception_ptr failure = {};
  };
  void encode_task(Task& task) const;

  const Tokenizer& tokenizer_;
  std::size_t num_threads_;
  std::vector<Task> tasks_;
  std::size_t num_bytes_ = 0;  // of their texts
};

}  // namespace espalier
