// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/resume.hpp"

#include <fmt/format.h>

#include "core/ops/matmul.hpp"
#include "parallel/agreement.hpp"
#include "parallel/texts.hpp"
#include "training/training_state.hpp"

namespace espalier {
namespace {

// Complete checkpoints, newest first, as rank 0 sees them.
std::vector<std::string> candidates(const Path& checkpoints, const Communicator& world,
                                    const std::function<void(const std::string&)>& note) {
  std::string list;
  if (world.rank() == 0)
    for (const CheckpointEntry& entry : find_checkpoints(checkpoints)) {
      if (entry.complete)
        list += entry.path.string() + '\n';
      else
        note(fmt::format("passing over {}: {}", entry.path.string(), entry.reason));
    }
  list = broadcast_text(world, list, 0);
  std::vector<std::string> paths;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = list.find('\n', begin);
    paths.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

// Bits depend on the library, so a resumed run keeps the one it started with where the config leaves the choice.
void keep_matmul_library(const CheckpointReader& checkpoint, const RunConfig& config,
                         const std::function<void(const std::string&)>& note) {
  const std::string stored = checkpoint.state().value("matmul", "");
  if (config.run.matmul != "auto" || stored.empty() || stored == to_string(matmul_library()))
    return;
  try {
    set_matmul_library(parse_matmul_library(stored));
  } catch (const Error&) {
    note(
        fmt::format("the checkpoint was trained with the GEMM library {}, which is absent here: results may differ in "
                    "rounding",
                    stored));
  }
}

// All ranks load, or all throw the reason of the first that could not.
template <class T>
Index load(const Path& path, const RunConfig& config, const ProcessMesh& mesh, Trainer<T>& trainer,
           const std::vector<std::string>& tensors, const std::function<void(const std::string&)>& note) {
  std::optional<CheckpointReader> checkpoint;
  attempt_together(mesh.world(), ExitCode::checkpoint, [&] {
    checkpoint.emplace(path);
    load_training_state(*checkpoint, trainer, tensors);
  });
  keep_matmul_library(*checkpoint, config, note);
  note(fmt::format("resumed from {} (step {}, written by {}) on {}", path.string(), trainer.steps_done(),
                   checkpoint->info().layout.value("text", "an unknown layout"), mesh.layout().text()));
  return trainer.steps_done();
}

}  // namespace

template <class T>
Index resume_training(const TrainOptions& options, const Path& checkpoints, const RunConfig& config,
                      const ProcessMesh& mesh, Trainer<T>& trainer,
                      const std::function<void(const std::string&)>& note) {
  const std::vector<std::string> tensors = model_tensors(mesh.world(), trainer.parameters());
  const bool explicit_path = options.resume != "auto" && options.resume != "never";
  if (explicit_path)
    return load(options.resume, config, mesh, trainer, tensors, note);

  const std::vector<std::string> paths = candidates(checkpoints, mesh.world(), note);
  if (options.resume == "never" && !paths.empty())
    throw Error(ExitCode::usage,
                {.what = "the run directory holds checkpoints, and --resume never would write over them",
                 .where = checkpoints.string(),
                 .got = fmt::format("{} checkpoints, the newest {}", paths.size(), paths.front()),
                 .wanted = "an empty run directory",
                 .todo = "resume (leave --resume away), or set run.directory to another directory"});
  for (const std::string& path : paths) {
    try {
      return load(path, config, mesh, trainer, tensors, note);
    } catch (const Error& error) {
      if (error.code() != ExitCode::checkpoint)
        throw;
      note(fmt::format("passing over {}: {}", path, error.what()));
    }
  }
  if (!paths.empty())
    throw Error(ExitCode::checkpoint,
                {.what = "none of the run's checkpoints can be used",
                 .where = checkpoints.string(),
                 .got = fmt::format("{} damaged or foreign checkpoints (named above)", paths.size()),
                 .wanted = "a complete checkpoint of this model",
                 .todo = "restore one from a backup, or start over in another run.directory"});
  if (!options.init_from.empty()) {
    attempt_together(mesh.world(), ExitCode::checkpoint,
                     [&] { load_weights(CheckpointReader(options.init_from), trainer.parameters(), tensors); });
    note(fmt::format("weights from {}", options.init_from));
  }
  return 0;
}

template Index resume_training<float>(const TrainOptions&, const Path&, const RunConfig&, const ProcessMesh&,
                                      Trainer<float>&, const std::function<void(const std::string&)>&);
template Index resume_training<double>(const TrainOptions&, const Path&, const RunConfig&, const ProcessMesh&,
                                       Trainer<double>&, const std::function<void(const std::string&)>&);

}  // namespace espalier
