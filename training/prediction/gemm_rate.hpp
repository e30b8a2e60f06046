// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/ops/attention_library.hpp"
#include "core/ops/matmul_library.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// What run.matmul asks for. @throws Error (usage) naming those present.
template <class T>
MatmulLibrary wanted_matmul_library(const RunConfig& config) {
  return config.run.matmul == "auto" ? default_matmul_library<T>() : parse_matmul_library(config.run.matmul);
}

/// Matrix products and attention go from now on through what run.matmul and run.attention ask for.
template <class T>
void set_libraries(const RunConfig& config) {
  set_matmul_library(wanted_matmul_library<T>(config));
  set_attention_library(parse_attention_library(config.run.attention));
}

/// What rank 0 names, on all ranks. Collective.
MatmulLibrary library_of_root(const Communicator& world, MatmulLibrary library);

/// set_libraries(), with rank 0's choice for products where CPUs differ, so that all multiply alike. Collective.
template <class T>
void agree_on_libraries(const RunConfig& config, const Communicator& world) {
  set_libraries<T>(config);
  set_matmul_library(library_of_root(world, matmul_library()));
}

/// Whether its rate may stand for what products reach here: that of cublaslt_tf32, which takes fp32 operands at fewer
/// bits, only where it is the library that is multiplied with.
bool sets_a_peak(MatmulLibrary library);

/// Multiplies square random matrices with every library present.
/// @returns the best rate of each in FLOP/s, in the order of matmul_libraries(); 0 where `tiled` takes too long, and of
/// those that set no peak.
template <class T>
std::vector<double> measure_matmul_rates(const ExecSpace& exec, Index size, int repetitions);

/// FLOP/s of matrix products on all ranks together: what a GEMM fraction is a share of. All multiply at the same time,
/// by the library that is fastest here, since ranks that share cores or caches are slower than one that works alone;
/// the best of a few moments, some 200 ms in all. Products of `size` squared. The same on every rank; collective.
template <class T>
double measure_gemm_rate(const Communicator& world, Index size = exec_is_host ? 512 : 4096);

/// "matrix products by onednn (best of 3 measured: 432 GFLOP/s)": of measure_gemm_rate().
std::string products_text(double gemm_rate, int ranks);

/// FLOP/s of matrix products on all ranks together by the peak that the maker of the devices names: what MFU is a share
/// of. By the name of the GPU (of a MIG part its share of the processors), else by run.cluster. Nothing where it is not
/// known, as on most CPUs, and where --emulate imitates the operations of another machine.
std::optional<double> peak_rate(const RunConfig& config, const Communicator& world);

}  // namespace espalier
