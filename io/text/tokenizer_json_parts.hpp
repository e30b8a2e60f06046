// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/scalars.hpp"
#include "io/text/normalizer.hpp"
#include "io/text/pre_tokenizer.hpp"
#include "io/text/text_decoder.hpp"

// The parts of a tokenizer.json beside its model. Null is no part: nothing is done there.

namespace espalier {

/// A part that is not supported.
class UnsupportedTokenizerPart : public std::runtime_error {
 public:
  UnsupportedTokenizerPart(const std::string& part, std::string got, std::string wanted)
      : std::runtime_error(part), got_(std::move(got)), wanted_(std::move(wanted)) {}
  const std::string& got() const { return got_; }
  const std::string& wanted() const { return wanted_; }

 private:
  std::string got_;
  std::string wanted_;
};

/// @throws UnsupportedTokenizerPart for a key that is none of these; std::runtime_error where `json` is no object
void require_keys(const nlohmann::json& json, const std::string& part, std::initializer_list<std::string_view> keys);

/// The id of a token. @param key under which it stands, for the message of std::runtime_error
TokenId token_id_from(const nlohmann::json& value, const char* key);

/// The "type" of a part.
std::string type_of(const nlohmann::json& json);

// They throw UnsupportedTokenizerPart, or std::runtime_error for what is damaged.
void read_normalizer(const nlohmann::json& json, Normalizer& normalizer);
/// @returns whether words are to be bytes (ByteLevel, the last step)
bool read_pre_tokenizer(const nlohmann::json& json, PreTokenizer& pre_tokenizer);
void read_text_decoder(const nlohmann::json& json, TextDecoder& decoder);
void read_post_processor(const nlohmann::json& json, std::vector<TokenId>& prefix, std::vector<TokenId>& suffix);

}  // namespace espalier
