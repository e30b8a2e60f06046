// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/json_fields.hpp"
#include "io/text/tokenizer_json_parts.hpp"

// What stands around a text: begin of text, end of text.

namespace espalier {
namespace {

using Json = nlohmann::json;

constexpr std::size_t max_pieces = 1000;

void read_template(const Json& json, std::vector<TokenId>& prefix, std::vector<TokenId>& suffix) {
  const std::string part = "post_processor TemplateProcessing";
  require_keys(json, part, {"type", "single", "pair", "special_tokens"});
  const Json& special_tokens = object_field(json, "special_tokens");
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  int num_texts = 0;
  for (const Json& piece : list_field(json, "single", max_pieces)) {
    require_keys(piece, part + ".single", {"SpecialToken", "Sequence"});
    if (piece.contains("Sequence")) {
      if (const std::string id = field<std::string>(object_field(piece, "Sequence"), "id");
          id != "A" || ++num_texts > 1)
        throw UnsupportedTokenizerPart(part + ".single", num_texts > 1 ? "the text twice" : "the text " + id,
                                       "$A once");
      continue;
    }
    const std::string name = field<std::string>(object_field(piece, "SpecialToken"), "id");
    const Json& ids = list_field(object_field(special_tokens, name.c_str()), "ids", max_pieces);
    for (const Json& id : ids)
      (num_texts == 0 ? before : after).push_back(token_id_from(id, "ids"));
  }
  if (num_texts == 0)
    throw UnsupportedTokenizerPart(part + ".single", "no text", "$A once");
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
}

// ["</s>", 2]
TokenId id_of_pair(const Json& json, const char* key) {
  const Json& pair = list_field(json, key, 2);
  if (pair.size() != 2)
    refuse_field(key, pair, "a token and its id");
  return token_id_from(pair[1], key);
}

}  // namespace

void read_post_processor(const Json& json, std::vector<TokenId>& prefix, std::vector<TokenId>& suffix) {
  if (json.is_null())
    return;
  const std::string type = type_of(json);
  const std::string part = "post_processor " + type;
  if (type == "Sequence") {
    require_keys(json, part, {"type", "processors"});
    for (const Json& step : list_field(json, "processors", max_pieces))
      read_post_processor(step, prefix, suffix);
  } else if (type == "ByteLevel") {  // of offsets alone
    require_keys(json, part, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "TemplateProcessing") {
    read_template(json, prefix, suffix);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    require_keys(json, part, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    prefix.insert(prefix.begin(), id_of_pair(json, "cls"));
    suffix.push_back(id_of_pair(json, "sep"));
  } else {
    throw UnsupportedTokenizerPart("post_processor", type,
                                   "Sequence, ByteLevel, TemplateProcessing, RobertaProcessing or BertProcessing");
  }
}

}  // namespace espalier
