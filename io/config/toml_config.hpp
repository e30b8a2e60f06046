// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/scalars.hpp"
#include "core/value_range.hpp"
#include "io/config/config_diff.hpp"
#include "io/file.hpp"

namespace espalier {

/// What is read, in the words of messages: what it is called, and where its keys are explained.
struct ConfigKind {
  std::string name = "config";
  std::string help = "`espalier train --keys` explains every key";
};

/// A string as a value of TOML.
std::string toml_quoted(std::string_view text);

/// An override of the key `name`, "run.directory", whatever stands in its value.
std::string override_text(std::string_view name, std::string_view value);

/// A TOML file and overrides "section.key=value" (the same parser; strings may go without quotes) read into
/// typed variables. Problems are collected: finish() throws one Error (usage) that lists all of them with
/// their positions.
///
/// A read leaves its variable alone when the key is absent or wrong, and returns whether the key was given.
class ConfigReader {
 public:
  /// @throws Error (usage) at once for a missing file or a text that is no TOML.
  ConfigReader(const Path& file, const std::vector<std::string>& overrides, ConfigKind kind = {});

  /// `name` stands for the file in messages; a config may also come from overrides alone (empty text).
  ConfigReader(std::string_view text, std::string name, const std::vector<std::string>& overrides,
               ConfigKind kind = {});
  ~ConfigReader();

  bool read(std::string_view section, std::string_view key, bool& value);
  bool read(std::string_view section, std::string_view key, Index& value, IntegerRange range = {});
  bool read(std::string_view section, std::string_view key, double& value, FloatRange range = {});
  bool read(std::string_view section, std::string_view key, std::string& value,
            const std::vector<std::string>& choices = {});
  bool read(std::string_view section, std::string_view key, std::vector<Index>& value, IntegerRange range = {});
  bool read(std::string_view section, std::string_view key, std::vector<double>& value, FloatRange range = {});
  bool read(std::string_view section, std::string_view key,
            std::vector<std::string>& value);  ///< or one string

  /// A string whose meaning the caller looks for; `wanted` says of what else is given which one was.
  bool read_text(std::string_view section, std::string_view key, std::string& value, const std::string& wanted);

  /// A number, or a string with a unit (io/units.hpp).
  bool read_count(std::string_view section, std::string_view key, Index& value, IntegerRange range = {});
  bool read_bytes(std::string_view section, std::string_view key, Index& value, IntegerRange range = {});
  bool read_seconds(std::string_view section, std::string_view key, double& value, FloatRange range = {});

  /// None of the keys of this section is unknown: they are for others.
  void leave(std::string_view section);

  bool has(std::string_view section, std::string_view key) const;

  /// Whatever is given of this section is one problem.
  void refuse(std::string_view section, const std::string& reason);

  /// Call after all reads, before the problems that several keys make together: what was given but never asked for is
  /// unknown, and the key that it was probably meant for counts as refused.
  void check_unknown();

  /// The default of this key follows from `bases`, "model.preset": where one was refused, so is this one.
  void derive(std::string_view section, std::string_view key, std::initializer_list<std::string_view> bases);
  bool was_refused(std::string_view section, std::string_view key) const;

  /// Adds a problem that only the validation of several keys can see: of this one and of `others`,
  /// "batch.sequence_length". Where the value of one was refused, a default stands in its place, and nothing is added.
  void problem(std::string_view section, std::string_view key, std::string_view message,
               std::initializer_list<std::string_view> others = {});
  /// The same of a rule between keys, whatever it names.
  void rule_problem(std::string_view section, std::string_view key, std::string_view message,
                    const std::vector<std::string>& others);
  bool has_problems() const;
  std::vector<std::string> problems() const;  ///< so far, each with its position; in the order of the file

  /// Call after all reads, with check_unknown() if that was not called. @throws Error (usage) if there is any problem;
  /// it says where keys are explained unless all are of rules between keys.
  void finish();

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

/// Writes a resolved config as TOML; sections in order of their first key, doubles so that they read back
/// equal.
class ConfigWriter {
 public:
  /// A line of comment in front of what comes next.
  void comment(std::string_view text);

  /// Starts a section, with a line about it; a write to another section starts that by itself.
  void section(std::string_view section, std::string_view about);
  void write(std::string_view section, std::string_view key, bool value, std::string_view comment = {});
  void write(std::string_view section, std::string_view key, Index value, std::string_view comment = {});
  void write(std::string_view section, std::string_view key, double value, std::string_view comment = {});
  void write(std::string_view section, std::string_view key, const std::string& value, std::string_view comment = {});
  void write(std::string_view section, std::string_view key, const std::vector<Index>& value,
             std::string_view comment = {});
  void write(std::string_view section, std::string_view key, const std::vector<double>& value,
             std::string_view comment = {});
  void write(std::string_view section, std::string_view key, const std::vector<std::string>& value,
             std::string_view comment = {});
  void write(std::string_view section, std::string_view key, const char* value, std::string_view comment = {}) {
    write(section, key, std::string(value), comment);
  }
  std::string text() const { return text_; }

 private:
  void write_line(std::string_view section, std::string_view key, const std::string& value, std::string_view comment);

  std::string text_;
  std::string section_;
};

}  // namespace espalier
