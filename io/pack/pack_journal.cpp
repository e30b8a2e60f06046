// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_journal.hpp"

#include <fmt/format.h>

#include <utility>

#include "io/hash.hpp"
#include "io/input_limits.hpp"
#include "io/json_reader.hpp"
#include "io/own_output.hpp"
#include "io/pack/json_text.hpp"

namespace espalier {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TextPosition, offset, line, offset_in_document)
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

// "tokenizer, --document-end": what two identities do not have in common. What a user adds where packing has failed at
// a bad line changes nothing before it.
std::string differing_keys(const json& one, const json& other) {
  std::string keys;
  for (const auto& [key, value] : one.items()) {
    const bool is_added = (key == "--skip-bad" || key == "--allow-binary") && value == true;
    if (!is_added && (!other.is_object() || !other.contains(key) || other[key] != value))
      keys += (keys.empty() ? "" : ", ") + key;
  }
  return keys;
}

std::uint64_t input_hash(const Path& file) {
  std::error_code ignored;
  const auto text = fmt::format("{}\n{}\n{}\n", file.string(), std::filesystem::file_size(file, ignored),
                                std::filesystem::last_write_time(file, ignored).time_since_epoch().count());
  return xxh3_64(text.data(), text.size());
}

}  // namespace

json pack_identity(const Tokenizer& tokenizer, const Path& validation_output, const PackOptions& options) {
  return {{"tokenizer", tokenizer.name()},
          {"--validation", validation_output.empty() ? "" : json_text(json(validation_output.string()))},
          {"--validation-fraction", options.validation_fraction},
          {"--seed", options.seed},
          {"--key", options.key},
          {"--document-separator", json_text(json(options.document_separator))},
          {"--document-end", options.document_end},
          {"--add-special-tokens", options.add_special_tokens},
          {"--skip-bad", options.skip_bad},
          {"--allow-binary", options.allow_binary}};
}

PackJournal::PackJournal(const Path& output, json identity, const std::vector<Path>& files,
                         std::chrono::milliseconds interval)
    : path_(journal_path(output)), identity_(std::move(identity)), interval_(interval) {
  require_own_output(path_, journal_mark);
  for (const Path& file : files)
    inputs_.push_back(input_hash(file));
  std::error_code missing;
  if (std::filesystem::exists(path_, missing) && std::filesystem::file_size(path_, missing) > 0)
    take_left();
}

std::uint64_t PackJournal::inputs_hash(std::size_t begin, std::size_t end) const {
  return xxh3_64(inputs_.data() + begin, (end - begin) * sizeof(inputs_.front()));
}

void PackJournal::take_left() {
  json journal;
  try {
    journal = parse_json(read_file(path_, ExitCode::write, LargestFile::manifest));
  } catch (const JsonError&) {  // written whole or not at all: somebody has changed it
  }
  const auto refuse = [&](const std::string& keys) {
    throw Error(ExitCode::usage, {.what = "an unfinished pack with other inputs or options is here",
                                  .where = path_.string(),
                                  .got = "changed since then: " + keys,
                                  .wanted = "the inputs and options that it began with",
                                  .todo = "use those to continue; or remove this file to start again"});
  };
  if (const std::string keys =
          differing_keys(identity_, journal.is_object() ? journal.value("identity", json()) : json());
      !keys.empty())
    refuse(keys);
  try {
    const PackState state = journal.at("state").get<PackState>();
    file_state_ = journal.at("file_state").get<PackState>();
    const auto is_same = [&](const char* which, std::size_t begin, std::size_t end) {
      return end <= inputs_.size() && journal.at("inputs").at(which) == inputs_hash(begin, end);
    };
    const bool splits = !identity_["--validation"].get_ref<const std::string&>().empty();
    if (!is_same("before", 0, state.file) || (splits && !is_same("all", 0, inputs_.size())))
      refuse("inputs");
    if (is_same("in_work", state.file, state.file + 1))
      left_ = state;
    else if (file_state_.train.num_tokens > 0)
      left_ = file_state_;
    is_written_ = left_.has_value();
  } catch (const json::exception&) {  // another version's: begin anew
  }
}

PackJournal::~PackJournal() {
  std::error_code ignored;
  if (!is_kept_)
    std::filesystem::remove(path_, ignored);
}

bool PackJournal::is_due() const { return std::chrono::steady_clock::now() - last_ >= interval_; }

void PackJournal::write(const PackState& state, const PackState& file_state) {
  const nlohmann::ordered_json inputs = {{"before", inputs_hash(0, state.file)},
                                         {"in_work", inputs_hash(state.file, state.file + 1)},
                                         {"all", inputs_hash(0, inputs_.size())}};
  const nlohmann::ordered_json journal = {{"espalier_pack_journal", 2},
                                          {"identity", identity_},
                                          {"inputs", inputs},
                                          {"state", json(state)},
                                          {"file_state", json(file_state)}};
  write_output(path_, journal_mark, json_text(journal));
  last_ = std::chrono::steady_clock::now();
  is_written_ = true;
}

}  // namespace espalier
