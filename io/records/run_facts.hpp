// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/axis.hpp"
#include "core/scalars.hpp"

namespace espalier {

/// How long small messages took when a launch tried the links (training/loop/link_check.hpp).
struct LinkTimes {
  /// A link that stands out (parallel/observe/slow_link.hpp), between ranks of the world.
  struct Slow {
    Axis axis = Axis::dp;
    int from = 0;
    int to = 0;
    double seconds = 0;
  };
  std::array<double, num_axes> typical_seconds{};  ///< the median along each axis; 0: it has one rank
  std::vector<Slow> slow = {};

  double typical(Axis axis) const { return typical_seconds[static_cast<std::size_t>(axis)]; }
};

/// What a launch ran on. Empty and 0 where an older version did not note it.
struct RunFacts {
  std::string program = {};
  std::string cpu = {};
  std::vector<std::string> hosts = {};
  std::vector<std::size_t> host_of_rank = {};
  int ranks = 0;
  int threads = 0;       ///< of a rank
  int host_threads = 0;  ///< of all ranks of the host where most of them share a core (parallel/launch/host_cores.hpp)
  int host_cores = 0;    ///< that these may run on
  std::string gemm_library = {};
  double gemm_flops = 0;      ///< per second, all ranks together
  bool fast_16_bits = false;  ///< the machine multiplies 16 bits on units of their own
  Index first_step = 1;       ///< that the launch took
  LinkTimes links = {};
  Index train_tokens = 0;   ///< in the training files
  double unigram_loss = 0;  ///< nats per token of a model that knows how often each token occurs

  std::string host_of(std::size_t rank) const;  ///< "unknown host" where not noted
};

nlohmann::json to_json(const RunFacts& facts);

/// @throws std::runtime_error that names the field which is of another type or out of its range
RunFacts run_facts_from_json(const nlohmann::json& json);

}  // namespace espalier
