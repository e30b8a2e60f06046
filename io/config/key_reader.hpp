// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/config/toml_config.hpp"

namespace espalier {

/// The words of these choices, behind those that come first.
template <class List>
std::vector<std::string> words_of(const List& choices, std::vector<std::string> words = {}) {
  for (const auto choice : choices)
    words.emplace_back(to_string(choice));
  return words;
}

/// Reads the keys of a config that it is shown: a visitor of functions that list keys, as visit_model() does.
class KeyReader {
 public:
  explicit KeyReader(ConfigReader& reader) : reader_(reader) {}
  void section(const char* name, const char*) { section_ = name; }
  void integer(const char* key, int& value, IntegerRange range, const char*) {
    Index wide = value;
    reader_.read(section_, key, wide, range);
    value = static_cast<int>(wide);  // the ranges of these are those of an int
  }
  void integer(const char* key, Index& value, IntegerRange range, const char*) {
    reader_.read(section_, key, value, range);
  }
  void count(const char* key, Index& value, IntegerRange range, const char*) {
    reader_.read_count(section_, key, value, range);
  }
  void bytes(const char* key, Index& value, IntegerRange range, const char*) {
    reader_.read_bytes(section_, key, value, range);
  }
  void number(const char* key, double& value, FloatRange range, const char*) {
    reader_.read(section_, key, value, range);
  }
  void seconds(const char* key, double& value, FloatRange range, const char*) {
    reader_.read_seconds(section_, key, value, range);
  }
  void boolean(const char* key, bool& value, const char*) { reader_.read(section_, key, value); }
  void integers(const char* key, std::vector<Index>& value, IntegerRange range, const char*) {
    reader_.read(section_, key, value, range);
  }
  void numbers(const char* key, std::vector<double>& value, FloatRange range, const char*) {
    reader_.read(section_, key, value, range);
  }
  void text(const char* key, std::string& value, const char*) { reader_.read(section_, key, value); }
  void strings(const char* key, std::vector<std::string>& value, const char*) { reader_.read(section_, key, value); }
  void choice(const char* key, std::string& value, const std::vector<std::string>& choices, const char*) {
    reader_.read(section_, key, value, choices);
  }
  template <class Choice, class List>
  void choice(const char* key, Choice& value, const List& choices, const char*) {
    std::string word;
    reader_.read(section_, key, word, words_of(choices));
    for (const Choice choice : choices)
      if (word == to_string(choice))
        value = choice;
  }

 protected:
  ConfigReader& reader_;
  std::string section_;
};

}  // namespace espalier
