// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/io/text/text_fixtures.hpp"

namespace espalier::test {

/// Writes a small tokenizer of text_fixtures.hpp with special tokens more.
/// @param added {"<|im_end|>": 601, ...}
inline void write_tokenizer(const std::filesystem::path& directory, const std::string& name,
                            const nlohmann::json& added) {
  nlohmann::json tokenizer = nlohmann::json::parse(read_bytes(text_fixture(name)));
  nlohmann::json& tokens = tokenizer["added_tokens"];
  for (const auto& [text, id] : added.items()) {
    const bool is_there =
        std::ranges::any_of(tokens, [&token_id = id](const nlohmann::json& token) { return token["id"] == token_id; });
    if (!is_there)
      tokens.push_back({{"id", id},
                        {"content", text},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", true}});
  }
  std::ranges::sort(tokens.get_ref<nlohmann::json::array_t&>(), {},
                    [](const nlohmann::json& token) { return token["id"].get<int>(); });
  write_bytes(directory / "tokenizer.json", tokenizer.dump());
}

/// What transformers made of conversations with chat templates (make_chat_templates.py).
inline nlohmann::json chat_fixture() { return nlohmann::json::parse(read_bytes(text_fixture("chat_templates.json"))); }

/// A tokenizer with ChatML and its tokens, and no system message of its own.
inline void write_chat_tokenizer(const std::filesystem::path& directory) {
  write_tokenizer(directory, "gpt2_like.json", {{"<|im_start|>", 600}, {"<|im_end|>", 601}});
  const nlohmann::json config = {{"chat_template", chat_fixture()["templates"]["chatml"]["template"]}};
  write_bytes(directory / "tokenizer_config.json", config.dump());
}

}  // namespace espalier::test
