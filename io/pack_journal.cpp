// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack_journal.hpp"

#include <fmt/format.h>

#include <utility>

#include "io/hash.hpp"
#include "io/input_limits.hpp"
#include "io/json_reader.hpp"
#include "io/json_text.hpp"
#include "io/own_output.hpp"

namespace espalier {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TextPosition, offset, line, in_long)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PackSummary, num_documents, num_validation_documents, num_cut_documents,
                                   num_bad_lines, first_bad_line, text_bytes)

static void to_json(json& value, const TokenFileWriter::Progress& progress) {
  value = {progress.num_tokens, progress.num_documents, progress.payload_hash};
}
static void from_json(const json& value, TokenFileWriter::Progress& progress) {
  progress = {value.at(0), value.at(1), value.at(2)};
}
static void to_json(json& value, const ValidationSplit::Settled& split) {
  value = {split.bins, split.is_by_number, split.cut_bin, split.share_of_cut, split.slack_of_cut};
}
static void from_json(const json& value, ValidationSplit::Settled& split) {
  split = {value.at(0), value.at(1), value.at(2), value.at(3), value.at(4)};
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PackState, file, position, summary, has_train_text, has_validation_text, train,
                                   validation, split)

namespace {

constexpr OutputMark journal_mark{.kind = "the journal of `espalier data pack`",
                                  .begin = "{\"espalier_pack_journal\":"};

Path journal_path(const Path& output) { return followed(output) += ".journal"; }

// "tokenizer, document_end": what two identities do not have in common.
std::string differing_keys(const json& one, const json& other) {
  std::string keys;
  for (const auto& [key, value] : one.items())
    if (!other.is_object() || !other.contains(key) || other[key] != value)
      keys += (keys.empty() ? "" : ", ") + key;
  return keys;
}

}  // namespace

json pack_identity(const std::vector<Path>& files, const Tokenizer& tokenizer, const Path& validation_output,
                   const PackOptions& options) {
  Hasher inputs;
  for (const Path& file : files) {
    std::error_code ignored;
    const auto text = fmt::format("{}\n{}\n{}\n", file.string(), std::filesystem::file_size(file, ignored),
                                  std::filesystem::last_write_time(file, ignored).time_since_epoch().count());
    inputs.update(text.data(), text.size());
  }
  return {{"inputs", inputs.xxh3_128()},
          {"tokenizer", tokenizer.name()},
          {"--validation", json_text(json(validation_output.string()))},
          {"--validation-fraction", options.validation_fraction},
          {"--seed", options.seed},
          {"--key", options.key},
          {"--document-separator", json_text(json(options.document_separator))},
          {"--document-end", options.document_end},
          {"--add-special-tokens", options.add_special_tokens},
          {"--skip-bad", options.skip_bad},
          {"--allow-binary", options.allow_binary}};
}

PackJournal::PackJournal(const Path& output, json identity, std::chrono::milliseconds interval)
    : path_(journal_path(output)), identity_(std::move(identity)), interval_(interval) {
  require_own_output(path_, journal_mark);
  std::error_code missing;
  if (!std::filesystem::exists(path_, missing) || std::filesystem::file_size(path_, missing) == 0)
    return;
  json journal;
  try {
    journal = parse_json(read_file(path_, ExitCode::write, LargestFile::manifest));
  } catch (const JsonError&) {  // written whole or not at all: somebody has changed it
  }
  const json found = journal.is_object() && journal.contains("identity") ? journal["identity"] : json();
  if (const std::string keys = differing_keys(identity_, found); !keys.empty())
    throw Error(ExitCode::usage, {.what = "an unfinished pack of something else stands here",
                                  .where = path_.string(),
                                  .got = "other than then: " + keys,
                                  .wanted = "the inputs and options that it was begun with, to go on with it",
                                  .todo = "give those; or remove this file, and the output is made anew"});
  try {
    left_ = journal.at("state").get<PackState>();
  } catch (const json::exception&) {  // another version's: begin anew
  }
}

PackJournal::~PackJournal() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

bool PackJournal::is_due() const { return std::chrono::steady_clock::now() - last_ >= interval_; }

void PackJournal::write(const PackState& state) {
  nlohmann::ordered_json journal = {{"espalier_pack_journal", 1}, {"identity", identity_}, {"state", json(state)}};
  write_output(path_, journal_mark, json_text(journal));
  last_ = std::chrono::steady_clock::now();
}

}  // namespace espalier
