// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "training/config/stored_config.hpp"
#include "training/loop/resume.hpp"
#include "training/pretrained/hugging_face_start.hpp"

namespace espalier {
namespace {

bool goes_on_from_own(const RunConfig& config, const std::string& resume) {
  if (resume != "auto")
    return resume != "never";
  Index of_others = 0;
  return std::ranges::any_of(checkpoints_of_run(config.run.directory, of_others), &CheckpointEntry::complete);
}

void require_a_start(const Path& start) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return std::filesystem::exists(start / name, ignored); };
  if (has("config.json") || has("manifest.json") || has("checkpoints") || has("run.json"))
    return;
  throw Error(
      ExitCode::checkpoint,
      {.what = "--init-from names neither a run, a checkpoint nor a Hugging Face directory",
       .where = start.string(),
       .got = !std::filesystem::exists(start, ignored)         ? "nothing of this name"
              : !std::filesystem::is_directory(start, ignored) ? "a file"
                                                               : "a directory that has none of these files",
       .wanted = "a directory with config.json (Hugging Face), manifest.json (checkpoint) or checkpoints/ (run)",
       .todo = "name such a directory"});
}

}  // namespace

void require_init_from(const RunConfig& config, const TrainOptions& options) {
  const Path start = options.init_from;
  if (start.empty() || goes_on_from_own(config, options.resume))
    return;
  require_a_start(start);
  if (is_hugging_face_directory(start))
    return require_same_model(HuggingFaceWeights(start), config);
  const auto nobody = [](const std::string&) {};  // the start itself tells what it passes over
  use_newest(complete_checkpoints(start), nobody,
             [&](const Path& path) { require_same_model(CheckpointReader(path), config); });
}

}  // namespace espalier
