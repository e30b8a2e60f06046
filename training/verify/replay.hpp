// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "training/loop/incidents.hpp"

namespace espalier {

struct TensorNorm {
  std::string name;
  double norm = 0;  ///< 2-norm of its gradient
};

/// One sample of a step, alone.
struct ReplayedSample {
  Index sample = 0;  ///< global
  std::string file;
  Index first_token = 0;     ///< position in the file
  double loss = 0;           ///< mean over its tokens; the step's is the mean of these
  double gradient_norm = 0;  ///< of its loss; the step's gradient is the mean of the samples'
  TensorNorm largest;        ///< the tensor with the largest gradient
};

struct Replay {
  double loss = 0;                      ///< of the whole step, computed again
  double gradient_norm = 0;             ///< before clipping
  std::vector<TensorNorm> tensors;      ///< of the step, largest first; those that are not finite before all others
  std::vector<ReplayedSample> samples;  ///< in the order of the step
};

/// The config of the incident's run, laid out on one rank; overrides win, in which paths of data may have to be named
/// anew. @throws Error (usage).
RunConfig replay_config(const Path& incident, const std::vector<std::string>& overrides);

/// Computes the step of an incident again from the weights kept with it: as a whole, then sample by sample. Nothing is
/// updated or written. @throws Error (checkpoint, data) for damaged files, (memory) where one rank is too small.
Replay replay(const Path& incident_path, const Incident& incident, const RunConfig& config, const ProcessMesh& mesh,
              const std::function<void(const std::string&)>& note);

/// Whether the replay gave what was recorded: both not finite, or equal within `tolerance` of the larger.
bool is_reproduced(double recorded, double replayed, double tolerance);

}  // namespace espalier
