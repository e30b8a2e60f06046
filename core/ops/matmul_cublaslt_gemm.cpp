// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/matmul_cublaslt_gemm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

#include "core/cuda_check.hpp"

namespace espalier::impl {
namespace {

std::string to_text(const CublasltShape& s) {
  const auto is_yes = [](Transpose transpose) { return transpose == Transpose::yes ? "yes" : "no"; };
  return fmt::format(
      "{}{} ({}, {}) x ({}, {}) {} {}, transposed {}, {}, strides {}, {}, {}, epilogue {}, aligned to {}, {}, {}, {}, "
      "{}, {} bytes",
      to_string(s.type), s.tf32 ? " as tf32" : "", s.rows, s.inner, s.inner, s.cols, s.has_addend ? "+->" : "->",
      to_string(s.result), is_yes(s.ta), is_yes(s.tb), s.a_stride, s.b_stride, s.c_stride, static_cast<int>(s.epilogue),
      s.a_alignment, s.b_alignment, s.addend_alignment, s.c_alignment, s.bias_alignment, s.before_gelu_alignment);
}

cudaDataType_t cuda_type(ScalarType type) {
  switch (type) {
    case ScalarType::fp32: return CUDA_R_32F;
    case ScalarType::fp64: return CUDA_R_64F;
    case ScalarType::bf16: return CUDA_R_16BF;
    case ScalarType::fp16: return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

cublasComputeType_t compute_type(const CublasltShape& shape) {
  if (shape.type == ScalarType::fp64)
    return CUBLAS_COMPUTE_64F;
  return shape.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t cublaslt_epilogue(EpilogueKind kind) {
  switch (kind) {
    case EpilogueKind::none: return CUBLASLT_EPILOGUE_DEFAULT;
    case EpilogueKind::bias: return CUBLASLT_EPILOGUE_BIAS;
    case EpilogueKind::bias_gelu: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case EpilogueKind::gelu_gradient: return CUBLASLT_EPILOGUE_DGELU;
    case EpilogueKind::bias_gradient: return CUBLASLT_EPILOGUE_BGRADB;  // b is our a
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ESPALIER_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

// Short work is run many times in between two events: alone, the time of the host's call would be most of what is seen.
float time_ms(cudaStream_t stream, const std::string& what, const std::function<bool()>& run) {
  constexpr int timings = 4;  // the first also loads the kernel
  constexpr float short_ms = 0.5F;
  std::array<std::unique_ptr<CUevent_st, Destroy<cudaEventDestroy>>, 2> events;
  for (auto& event : events) {
    cudaEvent_t created = nullptr;
    ESPALIER_CUDA(cudaEventCreate(&created));
    event.reset(created);
  }
  float best = std::numeric_limits<float>::infinity();
  int runs = 1;
  for (int timing = 0; timing < timings; ++timing) {
    ESPALIER_CUDA(cudaEventRecord(events[0].get(), stream));
    for (int i = 0; i < runs; ++i)
      if (!run())
        return std::numeric_limits<float>::infinity();
    ESPALIER_CUDA(cudaEventRecord(events[1].get(), stream));
    check_cuda(cudaEventSynchronize(events[1].get()), "cudaEventSynchronize after " + what);
    float ms = 0;
    ESPALIER_CUDA(cudaEventElapsedTime(&ms, events[0].get(), events[1].get()));
    if (timing > 0) {
      best = std::min(best, ms / static_cast<float>(runs));
      runs = best < short_ms ? 16 : 1;
    }
  }
  return best;
}

bool is_faster(float ms, float other_ms) {
  constexpr float margin = 0.97F;
  constexpr float min_gain_ms = 0.002F;  // what short work varies by
  return ms < std::min(margin * other_ms, other_ms - min_gain_ms);
}

void check_cublaslt(cublasStatus_t status, const char* call, const CublasltShape& shape) {
  if (status == CUBLAS_STATUS_SUCCESS)
    return;
  throw Error(status == CUBLAS_STATUS_ALLOC_FAILED ? ExitCode::memory : ExitCode::defect,
              {.what = "cuBLASLt refuses a matmul",
               .where = fmt::format("{} of {}", call, to_text(shape)),
               .got = cublasLtGetStatusString(status),
               .wanted = "CUBLAS_STATUS_SUCCESS",
               .todo = "choose another library: run.matmul=tiled"});
}

// What cuBLASLt proposes, the best first as it guesses. An array: nvcc 13.0 breaks off at a vector or an optional of
// types that, like these of C, have no name but a typedef.
struct CublasltMatmul::Proposals {
  static constexpr int most = 8;
  std::array<cublasLtMatmulHeuristicResult_t, most> results{};
  int count = 0;
};

CublasltMatmul::Layout CublasltMatmul::layout_of(ScalarType type, Index rows, Index cols, Index stride) const {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublaslt(cublasLtMatrixLayoutCreate(&layout, cuda_type(type), static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(cols), stride),
                 "cublasLtMatrixLayoutCreate", shape_);
  return Layout(layout);
}

CublasltMatmul::CublasltMatmul(const CublasltShape& shape)
    : shape_(shape),
      left_(shape.tb == Transpose::no ? layout_of(shape.type, shape.cols, shape.inner, shape.b_stride)
                                      : layout_of(shape.type, shape.inner, shape.cols, shape.b_stride)),
      right_(shape.ta == Transpose::no ? layout_of(shape.type, shape.inner, shape.rows, shape.a_stride)
                                       : layout_of(shape.type, shape.rows, shape.inner, shape.a_stride)),
      result_(layout_of(shape.result, shape.cols, shape.rows, shape.c_stride)) {
  cublasLtMatmulDesc_t description = nullptr;
  const cudaDataType_t scale = shape.type == ScalarType::fp64 ? CUDA_R_64F : CUDA_R_32F;
  check_cublaslt(cublasLtMatmulDescCreate(&description, compute_type(shape), scale), "cublasLtMatmulDescCreate", shape);
  description_.reset(description);
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.tb == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.ta == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, cublaslt_epilogue(shape.epilogue));
  if (shape.epilogue == EpilogueKind::bias_gelu || shape.epilogue == EpilogueKind::gelu_gradient)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{shape.c_stride});
  if (shape.epilogue == EpilogueKind::bias_gradient)
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{cuda_type(shape.result)});
}

void CublasltMatmul::choose(cublasLtHandle_t handle, const Operands& operands, void* workspace, cudaStream_t stream) {
  const Proposals found = proposals(handle, operands);
  if (found.count == 0)
    return;
  has_algorithm_ = true;
  algorithm_ = found.results[0].algo;
  if (!is_captured(stream))
    choose_fastest(handle, found, operands, workspace, stream);
}

std::string CublasltMatmul::text() const { return to_text(shape_); }

std::string CublasltMatmul::choice() const {
  std::array<unsigned char, sizeof(algorithm_)> bytes{};
  std::memcpy(bytes.data(), &algorithm_, sizeof(algorithm_));
  return has_algorithm_ ? fmt::format("{:02x}", fmt::join(bytes, "")) : "";
}

// cuBLASLt promises that the same version of it takes the bytes of an algorithm again.
bool CublasltMatmul::take_choice(cublasLtHandle_t handle, const std::string& choice, const Operands& operands) {
  if (choice.empty()) {
    has_algorithm_ = false;
    return true;
  }
  std::array<unsigned char, sizeof(algorithm_)> bytes{};
  if (choice.size() != 2 * bytes.size())
    return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* const digits = choice.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, bytes[i], 16).ptr != digits + 2)
      return false;
  }
  cublasLtMatmulAlgo_t algorithm{};
  std::memcpy(&algorithm, bytes.data(), sizeof(algorithm));
  point_to(operands);
  cublasLtMatmulHeuristicResult_t result{};
  if (cublasLtMatmulAlgoCheck(handle, description_.get(), left_.get(), right_.get(), result_.get(), result_.get(),
                              &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > usable_workspace)
    return false;
  algorithm_ = algorithm;
  has_algorithm_ = true;
  return true;
}

void CublasltMatmul::run(cublasLtHandle_t handle, const Operands& operands, void* workspace, cudaStream_t stream) {
  check_cublaslt(run_with(algorithm_, handle, operands, workspace, stream), "cublasLtMatmul", shape_);
}

template <class Value>
void CublasltMatmul::set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check_cublaslt(cublasLtMatmulDescSetAttribute(description_.get(), attribute, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute", shape_);
}

void CublasltMatmul::point_to(const Operands& operands) {
  if (operands.bias != nullptr)
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  if (operands.before_gelu != nullptr)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.before_gelu);
}

CublasltMatmul::Proposals CublasltMatmul::proposals(cublasLtHandle_t handle, const Operands& operands) {
  cublasLtMatmulPreference_t created = nullptr;
  check_cublaslt(cublasLtMatmulPreferenceCreate(&created), "cublasLtMatmulPreferenceCreate", shape_);
  const Preference preference(created);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_cublaslt(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
                   "cublasLtMatmulPreferenceSetAttribute", shape_);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{usable_workspace});
  // Parts of a matmul are added in fp32, not in the type of the result. Kernels for 16 bits may round the matmul
  // before they add C or a bias, as some do on Hopper: no preference forbids it.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape_.b_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape_.a_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape_.addend_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape_.c_alignment);
  point_to(operands);
  Proposals found;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, description_.get(), left_.get(), right_.get(),
                                                               result_.get(), result_.get(), preference.get(),
                                                               Proposals::most, found.results.data(), &found.count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
    found.count = 0;  // no kernel for this combination
  else
    check_cublaslt(status, "cublasLtMatmulAlgoGetHeuristic", shape_);
  const auto end = std::remove_if(found.results.begin(), found.results.begin() + found.count,
                                  [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  found.count = static_cast<int>(end - found.results.begin());
  return found;
}

// Its first proposal, unless another is faster: so the choice, on which bits depend, is the same in nearly all runs.
// What would be added to more than once goes to spare memory meanwhile.
void CublasltMatmul::choose_fastest(cublasLtHandle_t handle, const Proposals& found, Operands operands, void* workspace,
                                    cudaStream_t stream) {
  void* spare = nullptr;
  if (shape_.has_addend) {
    const auto bytes = static_cast<std::size_t>(shape_.rows * shape_.c_stride) * size_of(shape_.result);
    if (cudaMalloc(&spare, bytes) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return;
    }
    operands.c = spare;
  }
  const std::unique_ptr<void, Destroy<cudaFree>> owner(spare);
  for (int i = 0; i < found.count; ++i) {
    const cublasLtMatmulAlgo_t& candidate = found.results[static_cast<std::size_t>(i)].algo;
    const float ms = time_ms(stream, "a matmul of " + to_text(shape_), [&] {
      return run_with(candidate, handle, operands, workspace, stream) == CUBLAS_STATUS_SUCCESS;
    });
    if (is_faster(ms, ms_)) {
      algorithm_ = candidate;
      ms_ = ms;
    }
  }
}

cublasStatus_t CublasltMatmul::run_with(const cublasLtMatmulAlgo_t& algorithm, cublasLtHandle_t handle,
                                        const Operands& operands, void* workspace, cudaStream_t stream) {
  point_to(operands);
  return cublasLtMatmul(handle, description_.get(), operands.alpha, operands.b, left_.get(), operands.a, right_.get(),
                        operands.beta, operands.addend, result_.get(), operands.c, result_.get(), &algorithm, workspace,
                        usable_workspace, stream);
}

}  // namespace espalier::impl
