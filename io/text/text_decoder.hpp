// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/text/regex.hpp"

namespace espalier {

/// What makes the texts of tokens one text: steps in their order, each from a list of texts to another.
class TextDecoder {
 public:
  void add_byte_level();     ///< characters stand for bytes: io/text/byte_level_alphabet.hpp
  void add_byte_fallback();  ///< <0x0A> is a byte
  void add_fuse();           ///< all texts become one
  void add_strip(std::string character, std::size_t left, std::size_t right);  ///< off each, so often at most
  void add_replace(Regex pattern, std::string by);
  /// The mark is a space, and nothing at the beginning of the first text if one was `prepended` there.
  void add_metaspace(std::string mark, bool prepended);

  /// Is it the bytes of byte_level_alphabet() alone, which have been looked up before?
  bool is_byte_level() const { return byte_level_ && steps_.size() == 1; }
  bool empty() const { return steps_.empty(); }

  std::string decode(std::vector<std::string> texts) const;

 private:
  using Texts = std::vector<std::string>;
  std::vector<std::function<Texts(Texts)>> steps_;
  bool byte_level_ = false;
};

}  // namespace espalier
