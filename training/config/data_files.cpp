// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/config/data_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>

#include "io/checkpoint/checkpoint_names.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/pack/input_files.hpp"
#include "io/pack/json_text.hpp"
#include "io/tokens/token_file.hpp"
#include "io/units.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/texts.hpp"

namespace espalier {
namespace {

constexpr std::size_t max_notes = 8;  // a data set may have thousands of files

using Note = std::function<void(const std::string&)>;
using Fingerprint = TokenFile::Fingerprint;

nlohmann::json to_json(const Fingerprint& file) {
  nlohmann::json item = {{"bytes", file.bytes}, {"sample", file.sample}};
  if (!file.whole.empty())
    item["whole"] = file.whole;
  if (!file.index.empty())
    item["index"] = file.index;
  return item;
}

Fingerprint fingerprint_from(const nlohmann::json& item) {
  return {field<Index>(item, "bytes", count_range), field<std::string>(item, "sample"),
          field_or(item, "whole", std::string()), field_or(item, "index", std::string())};
}

// Why two that read alike are not the same.
const char* hidden_difference(const Fingerprint& before, const Fingerprint& now) {
  return before.whole == now.whole && before.index != now.index ? ", but it has other documents by its .idx"
                                                                : ", by its header; but its tokens are others";
}

std::string text_of(const Fingerprint& file) {
  return fmt::format("{} bytes, checksum {}", file.bytes, file.checksum_text());
}

// The first of the notes, and how many follow.
void note_first(const std::vector<std::string>& notes, const char* what, const Note& note) {
  for (std::size_t i = 0; i < std::min(notes.size(), max_notes); ++i)
    note(notes[i]);
  if (notes.size() > max_notes)
    note(fmt::format("and {} more", counted(static_cast<Index>(notes.size() - max_notes), what)));
}

void note_repeated_files(const std::vector<std::string>& train, const Note& note) {
  std::map<std::string, Index> times;
  for (const std::string& path : train)
    ++times[path];
  std::vector<std::string> notes;
  for (const auto& [path, count] : times)
    if (count > 1)
      notes.push_back(fmt::format(
          "warning: data.train names {} {} times, so its tokens are read that many times as often", path, count));
  note_first(notes, "repeated file", note);
}

// Validation on what is trained on says nothing about other text.
void note_files_in_both(const std::vector<std::string>& train, const std::vector<std::string>& validation,
                        const nlohmann::json& contents, const Note& note) {
  std::map<std::string, std::string> trained;  // what a file holds, and its path
  for (std::size_t i = 0; i < train.size(); ++i)
    trained.emplace(contents["train"][i].dump(), train[i]);
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < validation.size(); ++i)
    if (const auto same = trained.find(contents["validation"][i].dump()); same != trained.end())
      notes.push_back(
          fmt::format("warning: the validation file {} is also used for training: it has the same tokens as {}",
                      validation[i], same->second));
  note_first(notes, "such file", note);
}

nlohmann::json describe_on_root(const RunConfig& config, const Note& note) {
  nlohmann::json contents = {{"train", nlohmann::json::array()}, {"validation", nlohmann::json::array()}};
  std::vector<TokenFile> files;
  const std::vector<std::string> train = token_files_of(config.data.train);
  const std::vector<std::string> validation = token_files_of(config.data.validation);
  for (const std::vector<std::string>* paths : {&train, &validation})
    for (const std::string& path : *paths)
      files.emplace_back(Path(path));
  const bool reads_all = total_bytes(files) <= config.data.check_limit;
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool is_train = i < train.size();
    contents[is_train ? "train" : "validation"].push_back(to_json(files[i].fingerprint(reads_all)));
    notes.push_back((is_train ? "trains on " : "validates on ") + to_text(files[i].info()));
  }
  note_first(notes, "token file", note);
  note_files_in_both(train, validation, contents, note);
  note_repeated_files(train, note);
  return contents;
}

}  // namespace

std::vector<std::string> token_files_of(const std::vector<std::string>& entries) {
  std::vector<std::string> files;
  for (const std::string& entry : entries)
    for (std::string& file : expand_token_files(entry))
      files.push_back(std::move(file));
  return files;
}

Index total_bytes(const std::vector<TokenFile>& files) {
  Index bytes = 0;
  for (const TokenFile& file : files)
    bytes += file.info().file_bytes();
  return bytes;
}

nlohmann::json describe_data_files(const RunConfig& config, const Communicator& world,
                                   const std::function<void(const std::string&)>& note) {
  std::string contents;
  attempt_together(world, ExitCode::data, [&] {
    if (world.rank() == 0)
      contents = json_text(describe_on_root(
          config, note ? note : [](const std::string&) {}));
  });
  return parse_json(broadcast_text(world, contents, 0));
}

bool knows_data_files(const CheckpointReader& checkpoint) { return checkpoint.state().contains(data_files_key); }

std::string changed_data_files(const CheckpointReader& checkpoint, const nlohmann::json& contents) {
  if (!knows_data_files(checkpoint))
    return "";
  std::string lines;
  try {
    const nlohmann::json& stored = object_field(checkpoint.state(), data_files_key);
    for (const char* const kind : {"train", "validation"}) {
      const nlohmann::json& theirs = list_field(stored, kind);
      const nlohmann::json& ours = list_field(contents, kind);
      for (std::size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
        const auto before = i < theirs.size() ? std::optional(fingerprint_from(theirs[i])) : std::nullopt;
        const auto now = i < ours.size() ? std::optional(fingerprint_from(ours[i])) : std::nullopt;
        if (before == now)
          continue;
        const std::string text_before = before ? text_of(*before) : "absent";
        const std::string text_now = now ? text_of(*now) : "absent";
        lines += fmt::format("\n  data.{}[{}]: {} -> {}{}", kind, i, text_before, text_now,
                             text_before == text_now ? hidden_difference(*before, *now) : "");
      }
    }
  } catch (const std::runtime_error& error) {
    throw Error(ExitCode::checkpoint, {.what = "the list of token files in the checkpoint is damaged",
                                       .where = (checkpoint.path() / manifest_name).string(),
                                       .got = error.what(),
                                       .todo = "resume from an older checkpoint"});
  }
  return lines;
}

}  // namespace espalier
