// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/training/run_starts.hpp"

// Runs in which one step meets samples that no model expects.

namespace espalier::test {

inline constexpr Index poisoned_step = 14;
inline const std::vector<Index> poisoned_samples = {(poisoned_step - 1) * 8 + 2, (poisoned_step - 1) * 8 + 3,
                                                    (poisoned_step - 1) * 8 + 6};

/// As tiny_config(): 20 steps in `name`, a window of 8 steps, a spike in step 14.
inline RunConfig poisoned_config(const SharedFolder& folder, const std::string& name, int ranks,
                                 std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"stability.spike_window=8", "stability.spike_threshold=6",
                             "run.directory=\"" + (folder / name).string() + "\""});
  RunConfig config = tiny_config(folder, ranks, more);
  const Index length = config.sequence_length;
  constexpr Index num_tokens = 5000;
  const Index num_samples = (num_tokens - 1) / length;
  std::vector<IndexRange> windows;
  for (const Index sample : poisoned_samples) {
    const Index window = permuted_index(static_cast<std::uint64_t>(config.run.seed), 0, sample, num_samples);
    windows.push_back({window * length, (window + 1) * length});
  }
  write_tokens(folder / "poisoned.bin", num_tokens, config.model.shape.vocab_size, windows);
  config.data.train = {(folder / "poisoned.bin").string()};
  return config;
}

/// The steps of a run that were spikes, as metrics.jsonl tells.
inline std::vector<Index> anomalies(const RunConfig& config) {
  std::vector<Index> steps;
  for (const auto& line : read_metrics(Path(config.run.directory) / "metrics.jsonl"))
    if (line.contains("anomaly"))
      steps.push_back(line.at("step").get<Index>());
  return steps;
}

template <class P>
std::vector<Compute<P>> flat_weights(const TypedTrainer<P>& trainer) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), trainer.store().flat_weights());
  return std::vector<Compute<P>>(host.data(), host.data() + host.extent(0));
}

}  // namespace espalier::test
