// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/records/run_paths.hpp"
#include "training/config/stored_config.hpp"
#include "training/loop/resume.hpp"
#include "training/pretrained/hugging_face_init.hpp"

namespace espalier {
namespace {

bool resumes_from_own(const RunConfig& config, const std::string& resume) {
  if (resume != "auto")
    return resume != "never";
  Index of_others = 0;
  return std::ranges::any_of(checkpoints_of_run(config.run.directory, of_others), &CheckpointEntry::complete);
}

void require_init_source(const Path& source) {
  if (kind_of_directory(source) != DirectoryKind::other)
    return;
  std::error_code ignored;
  throw Error(
      ExitCode::checkpoint,
      {.what = "--init-from names neither a run, a checkpoint nor a Hugging Face directory",
       .where = source.string(),
       .got = !std::filesystem::exists(source, ignored)         ? "nothing of this name"
              : !std::filesystem::is_directory(source, ignored) ? "a file"
                                                                : "a directory that has none of these files",
       .wanted = "a directory with config.json (Hugging Face), manifest.json (checkpoint) or checkpoints/ (run)",
       .todo = "name such a directory"});
}

}  // namespace

void require_init_from(const RunConfig& config, const TrainOptions& options) {
  const Path source = options.init_from;
  if (source.empty() || resumes_from_own(config, options.resume))
    return;
  require_init_source(source);
  if (kind_of_directory(source) == DirectoryKind::hugging_face)
    return require_same_model(HuggingFaceWeights(source), config);
  const auto nobody = [](const std::string&) {};  // the launch itself prints what it passes over
  use_newest(complete_checkpoints(source), nobody,
             [&](const Path& path) { require_same_model(CheckpointReader(path), config); });
}

}  // namespace espalier
