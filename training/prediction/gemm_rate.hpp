// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/ops/attention_library.hpp"
#include "core/ops/matmul_library.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// What run.matmul asks for. @throws Error (usage) naming those present.
MatmulLibrary wanted_matmul_library(const RunConfig& config, ScalarType compute);

/// Matrix products and attention go from now on through what run.matmul and run.attention ask for.
void set_libraries(const RunConfig& config);

/// What rank 0 names, on all ranks. Collective.
MatmulLibrary library_of_root(const Communicator& world, MatmulLibrary library);

/// set_libraries(), with rank 0's choice for products where CPUs differ, so that all multiply alike. Collective.
void agree_on_libraries(const RunConfig& config, const Communicator& world);

/// Whether its rate may stand for what products reach here: that of cublaslt_tf32, which takes fp32 operands at fewer
/// bits, only where it is the library that is multiplied with.
bool sets_a_peak(MatmulLibrary library);

/// Multiplies square random matrices with every library present.
/// @returns the best rate of each in FLOP/s, in the order of matmul_libraries(); 0 of those that set no peak, and
/// beyond a size of 1024 of those that reach less than half the best rate there.
std::vector<double> measure_matmul_rates(ScalarType type, const ExecSpace& exec, Index size, int repetitions);

/// FLOP/s of matrix products on all ranks together: what a GEMM fraction is a share of. All multiply at the same time,
/// by the library that is fastest here, since ranks that share cores or caches are slower than one that works alone;
/// the best of a few moments, some 200 ms in all. Products of `size` squared. The same on every rank; collective.
double measure_gemm_rate(ScalarType type, const Communicator& world, Index size = exec_is_host ? 512 : 4096);

/// "matmuls by onednn (best of 3 measured: 432 GFLOP/s)": of measure_gemm_rate().
std::string matmuls_text(double gemm_rate, int ranks);

/// FLOP/s of matrix products on all ranks together by the peak that the maker of the devices names: what MFU is a share
/// of. By the name of the GPU (of a MIG part its share of the processors), else by run.cluster. Nothing where it is not
/// known, as on most CPUs, and where --emulate imitates the operations of another machine.
std::optional<double> peak_rate(const RunConfig& config, const Communicator& world);

}  // namespace espalier
