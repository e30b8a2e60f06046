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

/// The choices of all ranks, each kernel of a matmul once:
///     [{"made_with": ..., "kernels": {matmul: {kernel: [rank, ...]}}}]
nlohmann::json choices_to_json(const std::vector<MatmulChoices>& by_rank);

/// The kernels for `rank`, of those chosen with `made_with`: of each matmul those of the same rank, or where it did not
/// have the matmul those of the first rank that did. @throws std::runtime_error where it is not what choices_to_json
/// makes.
std::map<std::string, std::string> kernels_for_rank(const nlohmann::json& stored, const std::string& made_with,
                                                    int rank);

/// choices_to_json of all ranks on rank 0, of none on the others and where nothing is chosen by time. Collective.
nlohmann::json gather_matmul_choices(const Communicator& world);

/// Prefers the kernels_for_rank of what a checkpoint has stored, so that a resumed run has the same bits. `note` gets
/// where it cannot.
void restore_matmul_choices(const nlohmann::json& stored, int rank,
                            const std::function<void(const std::string&)>& note);

}  // namespace espalier
