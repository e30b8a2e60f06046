// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/matmul_cublaslt.hpp"

#ifdef ESPALIER_HAVE_CUBLASLT
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "core/cuda_check.hpp"
#endif

namespace espalier::impl {

#ifdef ESPALIER_HAVE_CUBLASLT
namespace {

// Everything that the choice of an algorithm may depend on. Alignments are those of the addresses, in bytes.
struct ProductShape {
  ScalarType type, result;
  bool tf32;
  Index rows, cols, inner;
  Transpose ta, tb;
  Index a_stride, b_stride, c_stride;
  bool has_addend;  // beta is not 0
  EpilogueKind epilogue;
  std::uint32_t a_alignment, b_alignment, addend_alignment, c_alignment, bias_alignment, before_gelu_alignment;
  auto operator<=>(const ProductShape&) const = default;  // NOLINT(modernize-use-nullptr): sees a pointer in it
};

// What differs between two products of one shape.
struct Operands {
  const void *a, *b, *addend, *bias;
  void *c, *before_gelu;
  const void *alpha, *beta;
};

std::string to_text(const ProductShape& s) {
  return fmt::format("{} ({}, {}) x ({}, {}) -> {}, transposed {}{}, strides {}, {}, {}, epilogue {}",
                     to_string(s.type), s.rows, s.inner, s.inner, s.cols, to_string(s.result), s.ta == Transpose::yes,
                     s.tb == Transpose::yes, s.a_stride, s.b_stride, s.c_stride, static_cast<int>(s.epilogue));
}

void check(cublasStatus_t status, const char* call, const ProductShape& shape) {
  if (status == CUBLAS_STATUS_SUCCESS)
    return;
  throw Error(status == CUBLAS_STATUS_ALLOC_FAILED ? ExitCode::memory : ExitCode::defect,
              {.what = "cuBLASLt refuses a product",
               .where = fmt::format("{} of {}", call, to_text(shape)),
               .got = cublasLtGetStatusString(status),
               .wanted = "CUBLAS_STATUS_SUCCESS",
               .todo = "choose another library: run.matmul=tiled"});
}

template <auto destroy>
struct Destroy {
  template <class Opaque>
  void operator()(Opaque* object) const {
    static_cast<void>(destroy(object));
  }
};
using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>;
using Event = std::unique_ptr<CUevent_st, Destroy<cudaEventDestroy>>;

// What cuBLASLt proposes, the best first as it guesses. An array: nvcc 13.0 breaks off at a vector or an optional of
// types that, like these of C, have no name but a typedef.
struct Proposals {
  static constexpr int most = 8;
  std::array<cublasLtMatmulHeuristicResult_t, most> results{};
  int count = 0;
};

cudaDataType_t cuda_type(ScalarType type) {
  switch (type) {
    case ScalarType::fp32: return CUDA_R_32F;
    case ScalarType::fp64: return CUDA_R_64F;
    case ScalarType::bf16: return CUDA_R_16BF;
    case ScalarType::fp16: return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

cublasComputeType_t compute_type(const ProductShape& shape) {
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
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

std::uint32_t alignment_of(const void* address) {
  constexpr std::uintptr_t most = 16;  // no kernel asks for more, and what differs in more would be timed apart
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(address) | most;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

Layout layout_of(ScalarType type, Index rows, Index cols, Index stride, const ProductShape& shape) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, cuda_type(type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(cols), stride),
        "cublasLtMatrixLayoutCreate", shape);
  return Layout(layout);
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ESPALIER_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

// A product of one shape. cuBLASLt counts columns first: our row-major c = op(a) op(b) is its c' = op(b)' op(a)', and
// each matrix as it lies is already the transposed one.
class Product {
 public:
  explicit Product(const ProductShape& shape)
      : shape_(shape),
        left_(shape.tb == Transpose::no ? layout_of(shape.type, shape.cols, shape.inner, shape.b_stride, shape)
                                        : layout_of(shape.type, shape.inner, shape.cols, shape.b_stride, shape)),
        right_(shape.ta == Transpose::no ? layout_of(shape.type, shape.inner, shape.rows, shape.a_stride, shape)
                                         : layout_of(shape.type, shape.rows, shape.inner, shape.a_stride, shape)),
        result_(layout_of(shape.result, shape.cols, shape.rows, shape.c_stride, shape)) {
    cublasLtMatmulDesc_t description = nullptr;
    const cudaDataType_t scale = shape.type == ScalarType::fp64 ? CUDA_R_64F : CUDA_R_32F;
    check(cublasLtMatmulDescCreate(&description, compute_type(shape), scale), "cublasLtMatmulDescCreate", shape);
    description_.reset(description);
    set(CUBLASLT_MATMUL_DESC_TRANSA, shape.tb == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, shape.ta == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, cublaslt_epilogue(shape.epilogue));
    if (shape.epilogue == EpilogueKind::bias_gelu || shape.epilogue == EpilogueKind::gelu_gradient)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{shape.c_stride});
  }

  // Chooses an algorithm; none where there is none.
  void choose(cublasLtHandle_t handle, const Operands& operands, void* workspace, cudaStream_t stream) {
    const Proposals found = proposals(handle, operands);
    if (found.count == 0)
      return;
    has_algorithm_ = true;
    algorithm_ = found.results[0].algo;
    if (found.count > 1 && !is_captured(stream))
      algorithm_ = fastest(handle, found, operands, workspace, stream);
  }

  bool has_algorithm() const { return has_algorithm_; }

  void run(cublasLtHandle_t handle, const Operands& operands, void* workspace, cudaStream_t stream) {
    check(run_with(algorithm_, handle, operands, workspace, stream), "cublasLtMatmul", shape_);
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(description_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute", shape_);
  }

  void point_to(const Operands& operands) {
    if (operands.bias != nullptr)
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    if (operands.before_gelu != nullptr)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.before_gelu);
  }

  Proposals proposals(cublasLtHandle_t handle, const Operands& operands) {
    cublasLtMatmulPreference_t created = nullptr;
    check(cublasLtMatmulPreferenceCreate(&created), "cublasLtMatmulPreferenceCreate", shape_);
    const Preference preference(created);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
            "cublasLtMatmulPreferenceSetAttribute", shape_);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{cublaslt_workspace_bytes - 256});
    // Parts of a sum are added in fp32, not in the type of the result: a product is rounded once.
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
      check(status, "cublasLtMatmulAlgoGetHeuristic", shape_);
    const auto end = std::remove_if(found.results.begin(), found.results.begin() + found.count,
                                    [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
    found.count = static_cast<int>(end - found.results.begin());
    return found;
  }

  // Its first proposal, unless another is faster by more than timings vary: so the choice, on which bits depend, is the
  // same in nearly all runs. What would be added to more than once goes to spare memory meanwhile.
  cublasLtMatmulAlgo_t fastest(cublasLtHandle_t handle, const Proposals& found, Operands operands, void* workspace,
                               cudaStream_t stream) {
    constexpr float margin = 0.97F;
    void* spare = nullptr;
    if (shape_.has_addend) {
      const auto bytes = static_cast<std::size_t>(shape_.rows * shape_.c_stride) * size_of(shape_.result);
      if (cudaMalloc(&spare, bytes) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return found.results[0].algo;
      }
      operands.c = spare;
    }
    const std::unique_ptr<void, Destroy<cudaFree>> owner(spare);
    cublasLtMatmulAlgo_t best = found.results[0].algo;
    float best_ms = std::numeric_limits<float>::infinity();
    for (int i = 0; i < found.count; ++i) {
      const cublasLtMatmulAlgo_t& candidate = found.results[static_cast<std::size_t>(i)].algo;
      const float ms = time_ms(candidate, handle, operands, workspace, stream);
      if (ms < margin * best_ms) {
        best = candidate;
        best_ms = ms;
      }
    }
    return best;
  }

  // The best of some runs; infinite where the algorithm does not run.
  float time_ms(const cublasLtMatmulAlgo_t& algorithm, cublasLtHandle_t handle, const Operands& operands,
                void* workspace, cudaStream_t stream) {
    constexpr int runs = 4;  // the first also loads the kernel
    std::array<Event, 2> events;
    for (Event& event : events) {
      cudaEvent_t created = nullptr;
      ESPALIER_CUDA(cudaEventCreate(&created));
      event.reset(created);
    }
    float best = std::numeric_limits<float>::infinity();
    for (int run = 0; run < runs; ++run) {
      ESPALIER_CUDA(cudaEventRecord(events[0].get(), stream));
      if (run_with(algorithm, handle, operands, workspace, stream) != CUBLAS_STATUS_SUCCESS)
        return std::numeric_limits<float>::infinity();
      ESPALIER_CUDA(cudaEventRecord(events[1].get(), stream));
      check_cuda(cudaEventSynchronize(events[1].get()), "cudaEventSynchronize after a product of " + to_text(shape_));
      float ms = 0;
      ESPALIER_CUDA(cudaEventElapsedTime(&ms, events[0].get(), events[1].get()));
      if (run > 0)
        best = std::min(best, ms);
    }
    return best;
  }

  cublasStatus_t run_with(const cublasLtMatmulAlgo_t& algorithm, cublasLtHandle_t handle, const Operands& operands,
                          void* workspace, cudaStream_t stream) {
    point_to(operands);
    return cublasLtMatmul(handle, description_.get(), operands.alpha, operands.b, left_.get(), operands.a, right_.get(),
                          operands.beta, operands.addend, result_.get(), operands.c, result_.get(), &algorithm,
                          workspace, cublaslt_workspace_bytes - 256, stream);
  }

  ProductShape shape_;
  Layout left_, right_, result_;
  Description description_;
  bool has_algorithm_ = false;
  cublasLtMatmulAlgo_t algorithm_{};
};

// The library's state in this process, given back before Kokkos ends.
struct Library {
  cublasLtHandle_t handle = nullptr;
  std::map<ProductShape, Product> products;
  std::map<cudaStream_t, Tensor<std::byte, 1>> workspaces;
  ~Library() {
    if (handle != nullptr)
      static_cast<void>(cublasLtDestroy(handle));
  }
};

std::optional<Library>& library() {
  static std::optional<Library> state;
  static const bool hooked = [] {
    Kokkos::push_finalize_hook([] { state.reset(); });
    return true;
  }();
  static_cast<void>(hooked);
  return state;
}

Library& opened_library(const ProductShape& shape) {
  if (!library()) {
    library().emplace();
    check(cublasLtCreate(&library()->handle), "cublasLtCreate before a product", shape);
  }
  return *library();
}

// At a multiple of 256 bytes, as cuBLASLt wants it; Kokkos aligns to 128.
void* workspace_of(Library& state, cudaStream_t stream) {
  Tensor<std::byte, 1>& memory = state.workspaces[stream];
  if (memory.extent(0) == 0)
    memory = allocate<std::byte>(Category::workspace, "cublaslt", cublaslt_workspace_bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return reinterpret_cast<void*>((address + 255) / 256 * 256);
}

}  // namespace

template <class T, class Out>
bool matmul_cublaslt(const ExecSpace& exec, bool tf32, Matrix<Out> c, Transpose ta, Matrix<const T> a, Transpose tb,
                     Matrix<const T> b, State<T> alpha, State<T> beta, const Epilogue<Out>& epilogue) {
  constexpr Index gelu_step = 8;  // what cuBLASLt wants the stride of the second matrix to be a multiple of
  if (epilogue.before_gelu != nullptr && c.stride % gelu_step != 0)
    return false;
  const Out* const addend = epilogue.addend != nullptr ? epilogue.addend : c.data;
  const ProductShape shape{.type = scalar_type_of<T>(),
                           .result = scalar_type_of<Out>(),
                           .tf32 = tf32 && std::is_same_v<T, float>,
                           .rows = c.rows,
                           .cols = c.cols,
                           .inner = ta == Transpose::no ? a.cols : a.rows,
                           .ta = ta,
                           .tb = tb,
                           .a_stride = a.stride,
                           .b_stride = b.stride,
                           .c_stride = c.stride,
                           .has_addend = beta != State<T>(0),
                           .epilogue = epilogue.kind,
                           .a_alignment = alignment_of(a.data),
                           .b_alignment = alignment_of(b.data),
                           .addend_alignment = alignment_of(addend),
                           .c_alignment = alignment_of(c.data),
                           .bias_alignment = alignment_of(epilogue.bias),
                           .before_gelu_alignment = alignment_of(epilogue.before_gelu)};
  const Operands operands{.a = a.data,
                          .b = b.data,
                          .addend = addend,
                          .bias = epilogue.bias,
                          .c = c.data,
                          .before_gelu = epilogue.before_gelu,
                          .alpha = &alpha,
                          .beta = &beta};
  Library& state = opened_library(shape);
  const cudaStream_t stream = exec.cuda_stream();
  void* const workspace = workspace_of(state, stream);
  const auto [entry, is_new] = state.products.try_emplace(shape, shape);
  Product& product = entry->second;
  if (is_new)
    product.choose(state.handle, operands, workspace, stream);
  if (product.has_algorithm())
    product.run(state.handle, operands, workspace, stream);
  return product.has_algorithm();
}

void release_cublaslt_workspaces() {
  if (library())
    library()->workspaces.clear();
}

std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();  // major * 10000 + minor * 100 + patch
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

#else

template <class T, class Out>
bool matmul_cublaslt(const ExecSpace&, bool, Matrix<Out>, Transpose, Matrix<const T>, Transpose, Matrix<const T>,
                     State<T>, State<T>, const Epilogue<Out>&) {
  return false;
}

void release_cublaslt_workspaces() {}

std::string cublaslt_version() { return {}; }

#endif

#define ESPALIER_INSTANTIATE(T, Out)                                                                                \
  template bool matmul_cublaslt<T, Out>(const ExecSpace&, bool, Matrix<Out>, Transpose, Matrix<const T>, Transpose, \
                                        Matrix<const T>, State<T>, State<T>, const Epilogue<Out>&);
ESPALIER_FOR_PRODUCT_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier::impl
