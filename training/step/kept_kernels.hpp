// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "core/ops/matmul_library.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// The choices of all ranks, each kernel of a product once:
///     [{"made_with": ..., "kernels": {product: {kernel: [rank, ...]}}}]
nlohmann::json stored_choices(const std::vector<MatmulChoices>& by_rank);

/// The kernels among them for a rank on which choices are made with this: for each product its own, where it had the
/// product, else those of the first that had it. @throws std::runtime_error where it is not what stored_choices makes.
std::map<std::string, std::string> kept_kernels(const nlohmann::json& stored, const std::string& made_with, int rank);

/// stored_choices of all ranks on rank 0, of none on the others and where nothing is chosen by time. Collective.
nlohmann::json gather_matmul_choices(const Communicator& world);

/// A start takes the kept_kernels of the checkpoint's state ("matmul_kernels"), so that a resumed run has the same
/// bits. `note` tells where it cannot.
void keep_matmul_choices(const CheckpointReader& checkpoint, int rank,
                         const std::function<void(const std::string&)>& note);

}  // namespace espalier
