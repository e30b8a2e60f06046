// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "io/config/key_reader.hpp"
#include "io/nearest_word.hpp"
#include "models/presets.hpp"
#include "training/config/run_config.hpp"

// What training/config/config_sections.hpp shows every key to.

namespace espalier {

/// Reads each key that it visits.
class ReadingVisitor : public KeyReader {
 public:
  using KeyReader::KeyReader;
  void preset(RunConfig::Model& model) {
    const std::vector<std::string>& names = trainable_preset_names();
    if (std::find(names.begin(), names.end(), model.preset) != names.end())  // an unknown one is reported already
      model.shape = model_preset(model.preset);
  }
  void integer(const char* key, int& value, IntegerRange range, const char* comment) {
    KeyReader::integer(key, value, range, comment);
  }
  void integer(const char* key, Index& value, IntegerRange range, const char*) {
    if (!reader_.read(section_, key, value, range) && section_ == "model")
      reader_.derive(section_, key, {"model.preset"});
  }
  void recompute_modes(const char* key, std::vector<Recompute>& value, const char*) {
    std::vector<std::string> words;
    reader_.read(section_, key, words);
    const std::vector<std::string> names = words_of(all_recompute_modes());
    for (std::size_t stage = 0; stage < words.size(); ++stage) {
      value.push_back(parse_recompute(words[stage]).value_or(Recompute::none));
      if (parse_recompute(words[stage]))
        continue;
      const std::string nearest = nearest_word(words[stage], names);
      unread_.emplace_back(
          key, fmt::format("got \"{}\" for stage {}, wanted one of \"{}\"{}", words[stage], stage,
                           fmt::join(names, "\", \""),
                           nearest.empty() ? std::string() : fmt::format("; did you mean \"{}\"?", nearest)));
    }
  }
  void order(const char* key, AxisOrder& value, const char*) {
    std::string text = to_string(value);
    reader_.read(section_, key, text);
    try {
      value = axis_order_from(text);
    } catch (const Error& error) {
      const ErrorReport& report = error.report();
      unread_.emplace_back(key, fmt::format("got {}, wanted {}; {}", report.got, report.wanted, report.todo));
    }
  }

  /// Wrong values of [parallel], reported after what they contradict.
  void report_unread() const {
    for (const auto& [key, message] : unread_)
      reader_.problem("parallel", key, message);
  }

 private:
  std::vector<std::pair<std::string, std::string>> unread_;  // by key
};

/// Makes "section.key=value" of each.
class SettingsVisitor {
 public:
  explicit SettingsVisitor(const char* section) : section_(section) {}
  void section(const char* name, const char*) { section_ = name; }
  void integer(const char* key, Index value, IntegerRange, const char*) { add(key, value); }
  void number(const char* key, double value, FloatRange, const char*) { add(key, value); }
  void boolean(const char* key, bool value, const char*) { add(key, value); }
  void integers(const char* key, const std::vector<Index>& value, IntegerRange, const char*) {
    add(key, fmt::format("[{}]", fmt::join(value, ", ")));
  }
  void choice(const char* key, const std::string& value, const std::vector<std::string>&, const char*) {
    add(key, value);
  }
  template <class Choice, class List>
  void choice(const char* key, Choice value, const List&, const char*) {
    add(key, to_string(value));
  }
  void recompute_modes(const char* key, const std::vector<Recompute>& value, const char*) {
    std::vector<std::string> words;
    for (const Recompute mode : value)
      words.push_back(toml_quoted(to_string(mode)));
    add(key, fmt::format("[{}]", fmt::join(words, ", ")));
  }
  void order(const char* key, const AxisOrder& value, const char*) { add(key, to_string(value)); }
  std::vector<std::string> result() const { return settings_; }

 private:
  template <class Value>
  void add(const char* key, const Value& value) {
    settings_.push_back(fmt::format("{}.{}={}", section_, key, value));
  }
  std::string section_;
  std::vector<std::string> settings_;
};

/// Writes a resolved config.
class WritingVisitor {
 public:
  void section(const char* name, const char* comment) {
    section_ = name;
    writer_.section(name, comment);
  }
  void preset(const RunConfig::Model&) {}
  void integer(const char* key, Index value, IntegerRange, const char* comment) { write(key, value, comment); }
  void count(const char* key, Index value, IntegerRange, const char* comment) { write(key, value, comment); }
  void bytes(const char* key, Index value, IntegerRange, const char* comment) { write(key, value, comment); }
  void number(const char* key, double value, FloatRange, const char* comment) { write(key, value, comment); }
  void seconds(const char* key, double value, FloatRange, const char* comment) { write(key, value, comment); }
  void boolean(const char* key, bool value, const char* comment) { write(key, value, comment); }
  void integers(const char* key, const std::vector<Index>& value, IntegerRange, const char* comment) {
    write(key, value, comment);
  }
  void numbers(const char* key, const std::vector<double>& value, FloatRange, const char* comment) {
    write(key, value, comment);
  }
  void text(const char* key, const std::string& value, const char* comment) { write(key, value, comment); }
  void strings(const char* key, const std::vector<std::string>& value, const char* comment) {
    write(key, value, comment);
  }
  void choice(const char* key, const std::string& value, const std::vector<std::string>& choices, const char* comment) {
    write(key, value, fmt::format("{} ({})", comment, fmt::join(choices, ", ")).c_str());
  }
  template <class Choice, class List>
  void choice(const char* key, Choice value, const List& choices, const char* comment) {
    choice(key, std::string(to_string(value)), words_of(choices), comment);
  }
  void recompute_modes(const char* key, const std::vector<Recompute>& value, const char* comment) {
    write(key, words_of(value), comment);
  }
  void order(const char* key, const AxisOrder& value, const char* comment) { write(key, to_string(value), comment); }
  std::string result() const { return writer_.text(); }

 private:
  template <class Value>
  void write(const char* key, const Value& value, const char* comment) {
    writer_.write(section_, key, value, comment);
  }
  ConfigWriter writer_;
  std::string section_;
};

}  // namespace espalier
