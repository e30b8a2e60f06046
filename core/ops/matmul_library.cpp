// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/matmul_library.hpp"

#ifdef ESPALIER_HAVE_OPENBLAS
#include <cblas.h>
#endif
#ifdef ESPALIER_HAVE_ONEDNN
#include <dnnl.h>
#endif

#include <atomic>

#include "core/error.hpp"
#include "core/ops/matmul_cublaslt.hpp"
#include "core/ops/matmul_kernels.hpp"
#include "core/ops/matmul_onednn.hpp"

namespace espalier {
namespace {

std::atomic<MatmulLibrary>& chosen_library() {
  static std::atomic<MatmulLibrary> library{matmul_libraries().back()};
  return library;
}

#ifdef ESPALIER_HAVE_OPENBLAS
// Whether OpenBLAS has found kernels for this CPU; where it has not it falls back on those of a very old one.
bool openblas_knows_cpu() {
#if defined(__x86_64__)
  const std::string core = openblas_get_corename();
  for (const char* const old : {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Opteron", "Barcelona"})
    if (core == old)
      return !__builtin_cpu_supports("avx2");
#endif
  return openblas_get_parallel() != 0;  // a serial build leaves all threads but one idle
}
#endif

// oneDNN makes its kernels at run time and so never misses AVX-512; where there is none OpenBLAS is faster.
[[maybe_unused]] bool onednn_excels() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

}  // namespace

const char* to_string(MatmulLibrary library) {
  switch (library) {
    case MatmulLibrary::tiled: return "tiled";
    case MatmulLibrary::kokkos_kernels: return "kokkos_kernels";
    case MatmulLibrary::openblas: return "openblas";
    case MatmulLibrary::onednn: return "onednn";
    case MatmulLibrary::cublaslt: return "cublaslt";
    case MatmulLibrary::cublaslt_tf32: return "cublaslt_tf32";
  }
  return "unknown";
}

MatmulLibrary matmul_library() { return chosen_library(); }
void set_matmul_library(MatmulLibrary library) { chosen_library() = library; }

MatmulLibrary parse_matmul_library(const std::string& name) {
  std::string present;
  for (const MatmulLibrary library : matmul_libraries()) {
    if (name == to_string(library))
      return library;
    present += std::string(present.empty() ? "" : ", ") + to_string(library);
  }
  throw Error(ExitCode::usage, {.what = "this build does not have this GEMM library",
                                .got = name,
                                .wanted = present,
                                .todo = "set run.matmul (of bench step: --matmul) to one of these, or to auto"});
}

std::vector<MatmulLibrary> matmul_libraries() {
  std::vector<MatmulLibrary> libraries = {MatmulLibrary::tiled};
#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
  libraries.push_back(MatmulLibrary::kokkos_kernels);
#endif
#ifdef ESPALIER_HAVE_CUBLASLT
  libraries.push_back(MatmulLibrary::cublaslt_tf32);
  libraries.push_back(MatmulLibrary::cublaslt);
#endif
  if constexpr (exec_is_host) {  // the others read host memory
#ifdef ESPALIER_HAVE_ONEDNN
    libraries.push_back(MatmulLibrary::onednn);
#endif
#ifdef ESPALIER_HAVE_OPENBLAS
    libraries.push_back(MatmulLibrary::openblas);
#endif
  }
  return libraries;
}

MatmulLibrary default_matmul_library([[maybe_unused]] ScalarType type) {
  if constexpr (exec_is_host) {
#ifdef ESPALIER_HAVE_ONEDNN
    if (type != ScalarType::fp64 && onednn_excels())
      return MatmulLibrary::onednn;
#endif
#ifdef ESPALIER_HAVE_OPENBLAS
    if (openblas_knows_cpu())
      return MatmulLibrary::openblas;
#endif
#ifdef ESPALIER_HAVE_ONEDNN
    if (type != ScalarType::fp64)
      return MatmulLibrary::onednn;
#endif
#ifdef ESPALIER_HAVE_OPENBLAS
    return MatmulLibrary::openblas;
#endif
  }
#if defined(ESPALIER_HAVE_CUBLASLT)
  return MatmulLibrary::cublaslt;
#elif defined(ESPALIER_HAVE_KOKKOS_KERNELS)
  return MatmulLibrary::kokkos_kernels;
#else
  return MatmulLibrary::tiled;
#endif
}

bool multiplies_16_bits(ScalarType type, MatmulLibrary library) {
  return type == ScalarType::bf16 && library == MatmulLibrary::onednn && impl::onednn_multiplies_bf16();
}

std::size_t matmul_workspace_bytes(ScalarType type, MatmulLibrary library) {
  if (is_cublaslt(library))
    return impl::cublaslt_workspace_bytes;
  if (is_state_type(type) || !exec_is_host || library == MatmulLibrary::tiled)
    return 0;
  if (multiplies_16_bits(type, library))
    return impl::onednn_packed_bytes;
  return sizeof(float) * impl::widened_edge * (impl::widened_edge + 2 * impl::widened_depth);
}

void release_matmul_workspace() {
  impl::release_widened_workspace();
  impl::release_onednn_workspace();
  impl::release_cublaslt_workspaces();
}

MatmulChoices matmul_choices() { return impl::cublaslt_choices(); }

bool prefer_matmul_choices(const MatmulChoices& choices) {
  if (choices.made_with.empty() || choices.made_with != matmul_choices().made_with)
    return false;
  impl::prefer_cublaslt_choices(choices.kernels);
  return true;
}

std::string describe_matmul_libraries() {
  std::string text = "tiled (own kernel)";
  if (const std::string version = impl::cublaslt_version(); !version.empty())
    text += ", cuBLASLt " + version;
#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
  text += ", Kokkos Kernels";
#endif
#ifdef ESPALIER_HAVE_ONEDNN
  const dnnl_version_t* version = dnnl_version();
  text += fmt::format(", oneDNN {}.{}.{}{}", version->major, version->minor, version->patch,
                      impl::onednn_multiplies_bf16() ? " (bf16 on units of this CPU)" : "");
#endif
#ifdef ESPALIER_HAVE_OPENBLAS
  const char* const threading = openblas_get_parallel() == 2   ? "OpenMP"
                                : openblas_get_parallel() == 1 ? "pthreads"
                                                               : "serial";
  text += fmt::format(", {} on {} kernels ({})", openblas_get_config(), openblas_get_corename(), threading);
#endif
  return text;
}

}  // namespace espalier
