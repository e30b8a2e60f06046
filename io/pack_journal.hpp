// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/pack.hpp"
#include "io/text_reader.hpp"
#include "io/token_file.hpp"
#include "io/validation_split.hpp"

namespace espalier {

/// How far a text is packed.
struct PackState {
  std::size_t file = 0;   ///< among the inputs
  TextPosition position;  ///< in it
  PackSummary summary;    ///< of all before
  bool has_train_text = false;
  bool has_validation_text = false;
  TokenFileWriter::Progress train;
  TokenFileWriter::Progress validation;
  ValidationSplit::Settled split;
};

/// A file beside the output that says how far it is written, so that a killed `data pack` goes on from there. It is
/// removed with the object: at the end, and where packing fails.
class PackJournal {
 public:
  /// @param identity decides about the tokens: inputs, tokenizer, options. Where a journal of another one stands,
  /// an Error (usage).
  PackJournal(const Path& output, nlohmann::json identity, std::chrono::milliseconds interval);
  ~PackJournal();
  PackJournal(const PackJournal&) = delete;
  PackJournal& operator=(const PackJournal&) = delete;

  /// What a killed process has left.
  const std::optional<PackState>& left() const { return left_; }

  /// Is it time to write it again?
  bool is_due() const;
  void write(const PackState& state);

 private:
  Path path_;
  nlohmann::json identity_;
  std::chrono::milliseconds interval_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::optional<PackState> left_;
};

/// What decides about the tokens of files; of each its path, size and time of change.
nlohmann::json pack_identity(const std::vector<Path>& files, const Tokenizer& tokenizer, const Path& validation_output,
                             const PackOptions& options);

}  // namespace espalier
