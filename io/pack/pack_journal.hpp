// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/pack/pack.hpp"
#include "io/pack/text_reader.hpp"
#include "io/tokens/token_file.hpp"
#include "io/tokens/validation_split.hpp"

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

/// A file beside the output that says how far the output is written, so that a `data pack` that was killed or failed
/// continues from there. Inputs behind that place may have changed by then. Where the input at that place has changed,
/// packing continues with the beginning of this input. With validation no input may have changed, as every document
/// decides about the others.
/// The file is removed with the object, unless keep() was called.
class PackJournal {
 public:
  /// @param identity decides about the tokens: tokenizer, options; of `files` path, size and time of change do. Where a
  /// journal of others stands, an Error (usage).
  PackJournal(const Path& output, nlohmann::json identity, const std::vector<Path>& files,
              std::chrono::milliseconds interval);
  ~PackJournal();
  PackJournal(const PackJournal&) = delete;
  PackJournal& operator=(const PackJournal&) = delete;

  /// What a killed process has left.
  const std::optional<PackState>& left() const { return left_; }
  /// What had been packed where the file began in which left() is.
  const PackState& file_state() const { return file_state_; }

  /// Is it time to write it again?
  bool is_due() const;
  void write(const PackState& state, const PackState& file_state);
  bool is_written() const { return is_written_; }
  void keep() { is_kept_ = true; }

 private:
  void take_left();
  std::uint64_t inputs_hash(std::size_t begin, std::size_t end) const;

  Path path_;
  nlohmann::json identity_;
  std::chrono::milliseconds interval_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::vector<std::uint64_t> inputs_;  // a hash of what is known of each
  std::optional<PackState> left_;
  PackState file_state_;
  bool is_written_ = false;
  bool is_kept_ = false;
};

/// What decides about the tokens of files.
nlohmann::json pack_identity(const Tokenizer& tokenizer, const Path& validation_output, const PackOptions& options);

}  // namespace espalier
