// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/parameter_spec.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"

namespace espalier {

/// What a training checkpoint holds beside its tensors. All fields are checked: types, ranges, and that they agree.
struct StoredState {
  struct NextLoss {
    Index samples = 0;
    double loss = 0;
    std::string compute;  ///< the precision that it was computed in; empty: not said, by older programs
  };

  Index step = 0;
  Index data_position = 0;              ///< samples consumed
  std::vector<IndexRange> passed_over;  ///< global samples that the run leaves out
  Index tokens = 0;
  double loss = 0;
  std::optional<NextLoss> next_loss;
  Index seed = 0;
  std::string tokenizer;                                    ///< empty: the token files did not say
  std::string matmul;                                       ///< GEMM library; empty: not said
  std::string config;                                       ///< TOML, with a section [model]
  Index kokkos = 0;                                         ///< KOKKOS_VERSION; 0: not said
  nlohmann::json loss_scaler;                               ///< LossScaler::state()
  nlohmann::json spike_guard;                               ///< SpikeGuard::state(); null: of older programs
  nlohmann::json data_files;                                ///< training/config/data_files.hpp; null: none
  nlohmann::json matmul_kernels = nlohmann::json::array();  ///< training/step/matmul_choices.hpp
};

/// The key that only a step of `espalier verify --save` has, which no run resumes from: the files it was computed on.
inline constexpr const char* reference_files_key = "token_files";

nlohmann::json to_json(const StoredState& state);

/// @throws Error (checkpoint) that names the field, its value and what is wanted
StoredState read_state(const CheckpointReader& checkpoint);

}  // namespace espalier
