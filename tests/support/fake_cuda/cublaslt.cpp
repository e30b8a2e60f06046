// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// cuBLASLt: matmuls are described, proposed and checked, and access what they are given. They compute nothing. No fp64
// with an epilogue, as in cuBLASLt.
#include <cublasLt.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

struct Layout {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t stride;  // of a column
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  std::map<int, std::uint64_t> attributes;
  std::uint64_t get(cublasLtMatmulDescAttributes_t attribute) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? 0 : found->second;
  }
};

struct Preference {
  std::map<int, std::uint64_t> attributes;
  std::uint64_t get(cublasLtMatmulPreferenceAttributes_t attribute, std::uint64_t otherwise) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? otherwise : found->second;
  }
};

// What a proposal was made for; stored in the opaque bytes of an algorithm.
struct Algorithm {
  std::uint64_t magic;
  std::uint64_t problem;  // a hash of the layouts and the description but its pointers
  std::uint64_t workspace_bytes;
  std::uint32_t alignments[4];  // of A, B, C, D
};
constexpr std::uint64_t algorithm_magic = 0x0A16000000000001;
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

std::map<const void*, std::string>& objects() {
  static auto& all = *new std::map<const void*, std::string>;
  return all;
}

template <class Object, class Handle>
Object* object_of(Handle handle, const std::string& kind) {
  const auto found = objects().find(handle);
  if (found != objects().end() && found->second == kind)
    return reinterpret_cast<Object*>(handle);
  misuse("cuBLASLt is handed something that is no " + kind + " or was destroyed");
  return nullptr;
}

// What a product is described by; null pointers where a handle is wrong.
struct Described {
  const Description* description;
  const Layout *a, *b, *c, *result;
  bool is_complete() const { return description && a && b && c && result; }
};
Described operands_of(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t result) {
  return {object_of<Description>(description, "description"), object_of<Layout>(a, "layout"),
          object_of<Layout>(b, "layout"), object_of<Layout>(c, "layout"), object_of<Layout>(result, "layout")};
}

template <class Handle, class Object>
cublasStatus_t create(Handle* handle, Object object, const std::string& kind) {
  const Lock lock = lock_all();
  *handle = reinterpret_cast<Handle>(new Object(std::move(object)));
  objects()[*handle] = kind;
  return CUBLAS_STATUS_SUCCESS;
}

template <class Object, class Handle>
cublasStatus_t destroy(Handle handle, const std::string& kind) {
  const Lock lock = lock_all();
  Object* const object = object_of<Object>(handle, kind);
  if (object == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  objects().erase(handle);
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set(std::map<int, std::uint64_t>& attributes, int attribute, const void* value, std::size_t bytes,
                   std::size_t wanted) {
  if (bytes != wanted) {
    misuse("cuBLASLt: attribute " + std::to_string(attribute) + " is set with " + std::to_string(bytes) +
           " bytes, it has " + std::to_string(wanted));
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::uint64_t stored = 0;
  std::memcpy(&stored, value, bytes);
  attributes[attribute] = stored;
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t size_of(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}
std::size_t bytes_of(const Layout& l) {
  return ((l.cols - 1) * static_cast<std::uint64_t>(l.stride) + l.rows) * size_of(l.type);
}
std::string text_of(const Layout& l) {
  return "(" + std::to_string(l.rows) + ", " + std::to_string(l.cols) + ") of stride " + std::to_string(l.stride);
}

bool has_bias(std::uint64_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
bool has_bias_gradient(std::uint64_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool has_second_matrix(std::uint64_t epilogue) { return (epilogue & 128) != 0; }

// What is wrong with a product whatever its addresses are.
std::string problem_of(const Description& d, const Layout& a, const Layout& b, const Layout& c, const Layout& result) {
  const bool ta = d.get(CUBLASLT_MATMUL_DESC_TRANSA) != CUBLAS_OP_N,
             tb = d.get(CUBLASLT_MATMUL_DESC_TRANSB) != CUBLAS_OP_N;
  const auto epilogue = d.get(CUBLASLT_MATMUL_DESC_EPILOGUE);
  const auto rows = ta ? a.cols : a.rows, inner = ta ? a.rows : a.cols;
  const auto inner_b = tb ? b.cols : b.rows, cols = tb ? b.rows : b.cols;
  for (const Layout* layout : {&a, &b, &c, &result})
    if (layout->rows == 0 || layout->cols == 0 || layout->stride < static_cast<std::int64_t>(layout->rows) ||
        size_of(layout->type) == 0)
      return "a matrix " + text_of(*layout);
  if (inner != inner_b || rows != result.rows || cols != result.cols || c.rows != rows || c.cols != cols)
    return text_of(a) + " times " + text_of(b) + " to " + text_of(result);
  if (a.type != b.type || c.type != result.type)
    return "two types";
  const bool is_double = a.type == CUDA_R_64F;
  if (is_double != (d.scale == CUDA_R_64F) || is_double != (d.compute == CUBLAS_COMPUTE_64F) ||
      is_double != (result.type == CUDA_R_64F))
    return "types that do not fit the arithmetic";
  constexpr std::uint64_t known[] = {0,
                                     CUBLASLT_EPILOGUE_DEFAULT,
                                     CUBLASLT_EPILOGUE_BIAS,
                                     CUBLASLT_EPILOGUE_GELU_AUX,
                                     CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                     CUBLASLT_EPILOGUE_DGELU,
                                     CUBLASLT_EPILOGUE_BGRADA,
                                     CUBLASLT_EPILOGUE_BGRADB};
  if (std::find(std::begin(known), std::end(known), epilogue) == std::end(known))
    return "epilogue " + std::to_string(epilogue) + ", which the mock does not know";
  if (has_second_matrix(epilogue)) {
    const auto stride = d.get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
    if (stride < rows || stride % 8 != 0)
      return "a second matrix of stride " + std::to_string(stride);
  }
  return {};
}

std::uint64_t hash_of(const Described& of) {
  const Description& d = *of.description;
  std::string text = std::to_string(d.compute) + " " + std::to_string(d.get(CUBLASLT_MATMUL_DESC_TRANSA)) + " " +
                     std::to_string(d.get(CUBLASLT_MATMUL_DESC_TRANSB)) + " " +
                     std::to_string(d.get(CUBLASLT_MATMUL_DESC_EPILOGUE)) + " " +
                     std::to_string(d.get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD));
  for (const Layout* layout : {of.a, of.b, of.c, of.result})
    text += " " + text_of(*layout) + " " + std::to_string(layout->type);
  return std::hash<std::string>()(text);
}

// A matrix or vector that a matmul accesses.
struct Operand {
  const char* name;
  const void* data;
  Layout layout;
  std::uint64_t alignment;
  bool is_written = false;
};

bool are_on_device(const std::vector<Operand>& operands, const std::string& what) {
  bool valid = true;
  for (const auto& [name, data, layout, alignment, is_written] : operands)
    if (!is_on_device(data, bytes_of(layout), what + ": " + name)) {
      valid = false;
    } else if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
      misuse(what + ": " + name + " is not aligned to the " + std::to_string(alignment) + " bytes promised");
      valid = false;
    }
  return valid;
}

// Not what lies between columns.
void note(const Operand& operand) {
  const auto& [type, rows, cols, stride] = operand.layout;
  const bool is_one_piece = static_cast<std::uint64_t>(stride) == rows;
  for (std::uint64_t col = 0; col < (is_one_piece ? 1 : cols); ++col)
    (operand.is_written ? note_write : note_read)(
        static_cast<const char*>(operand.data) + col * static_cast<std::uint64_t>(stride) * size_of(type),
        (is_one_piece ? rows * cols : rows) * size_of(type));
}

}  // namespace

void tell_leaked_products() {
  for (const auto& [handle, kind] : objects())
    misuse("cuBLASLt: a " + kind + " was never destroyed");
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "the operation is not supported"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "an invalid value"
                                                 : "an error of the mock";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return create(handle, 0, "handle"); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<int>(handle, "handle"); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t stride) {
  return create(handle, Layout{type, rows, cols, stride}, "layout");
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t handle) {
  return destroy<Layout>(handle, "layout");
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return create(handle, Description{compute, scale, {}}, "description");
}
cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t handle) {
  return destroy<Description>(handle, "description");
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  const Lock lock = lock_all();
  Description* const description = object_of<Description>(handle, "description");
  if (description == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool is_short = attribute == CUBLASLT_MATMUL_DESC_TRANSA || attribute == CUBLASLT_MATMUL_DESC_TRANSB ||
                        attribute == CUBLASLT_MATMUL_DESC_EPILOGUE || attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE;
  return set(description->attributes, attribute, value, bytes, is_short ? 4 : 8);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  return create(handle, Preference{}, "preference");
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t handle) {
  return destroy<Preference>(handle, "preference");
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  const Lock lock = lock_all();
  Preference* const preference = object_of<Preference>(handle, "preference");
  if (preference == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  return set(preference->attributes, attribute, value, bytes,
             attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description_handle,
                                              cublasLtMatrixLayout_t a_handle, cublasLtMatrixLayout_t b_handle,
                                              cublasLtMatrixLayout_t c_handle, cublasLtMatrixLayout_t result_handle,
                                              cublasLtMatmulPreference_t preference_handle, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  const Lock lock = lock_all();
  *count = 0;
  const Described of = operands_of(description_handle, a_handle, b_handle, c_handle, result_handle);
  const auto* const preference = object_of<Preference>(preference_handle, "preference");
  if (!of.is_complete() || preference == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (const std::string problem = problem_of(*of.description, *of.a, *of.b, *of.c, *of.result); !problem.empty()) {
    misuse("cublasLtMatmulAlgoGetHeuristic for " + problem);
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (of.a->type == CUDA_R_64F && of.description->get(CUBLASLT_MATMUL_DESC_EPILOGUE) > CUBLASLT_EPILOGUE_DEFAULT)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  Algorithm algorithm{algorithm_magic, hash_of(of), preference->get(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0), {}};
  for (int i = 0; i < 4; ++i)
    algorithm.alignments[i] = static_cast<std::uint32_t>(preference->get(
        static_cast<cublasLtMatmulPreferenceAttributes_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i), 256));
  for (*count = 0; *count < std::min(most, 2); ++*count) {
    results[*count] = {};
    std::memcpy(&results[*count].algo, &algorithm, sizeof algorithm);
    results[*count].workspaceSize = algorithm.workspace_bytes;
    results[*count].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description_handle,
                                       cublasLtMatrixLayout_t a_handle, cublasLtMatrixLayout_t b_handle,
                                       cublasLtMatrixLayout_t c_handle, cublasLtMatrixLayout_t result_handle,
                                       const cublasLtMatmulAlgo_t* chosen, cublasLtMatmulHeuristicResult_t* checked) {
  const Lock lock = lock_all();
  const Described of = operands_of(description_handle, a_handle, b_handle, c_handle, result_handle);
  if (object_of<int>(handle, "handle") == nullptr || !of.is_complete())
    return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm algorithm;
  std::memcpy(&algorithm, chosen, sizeof algorithm);
  *checked = {};
  checked->algo = *chosen;
  checked->workspaceSize = algorithm.workspace_bytes;
  const bool fits = algorithm.magic == algorithm_magic && algorithm.problem == hash_of(of);
  return checked->state = fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description_handle, const void* alpha,
                              const void* a_data, cublasLtMatrixLayout_t a_handle, const void* b_data,
                              cublasLtMatrixLayout_t b_handle, const void* beta, const void* c_data,
                              cublasLtMatrixLayout_t c_handle, void* result_data, cublasLtMatrixLayout_t result_handle,
                              const cublasLtMatmulAlgo_t* chosen, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const Lock lock = lock_all();
  const Described of = operands_of(description_handle, a_handle, b_handle, c_handle, result_handle);
  const auto& [d, a, b, c, result] = of;
  if (object_of<int>(handle, "handle") == nullptr || !of.is_complete() || alpha == nullptr || beta == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm algorithm;
  std::memcpy(&algorithm, chosen, sizeof algorithm);
  if (algorithm.magic != algorithm_magic || algorithm.problem != hash_of(of) ||
      workspace_bytes < algorithm.workspace_bytes) {
    misuse("cublasLtMatmul with an algorithm that was proposed for another product");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto pointer = [d](auto attribute) { return reinterpret_cast<const void*>(d->get(attribute)); };
  const bool reads_c =
      a->type == CUDA_R_64F ? *static_cast<const double*>(beta) != 0 : *static_cast<const float*>(beta) != 0;
  const auto epilogue = d->get(CUBLASLT_MATMUL_DESC_EPILOGUE);
  const auto vector = [&](std::uint64_t length) {
    return Layout{result->type, length, 1, static_cast<std::int64_t>(length)};
  };
  const std::uint64_t one = size_of(result->type);
  std::vector<Operand> operands{{"A", a_data, *a, algorithm.alignments[0]},
                                {"B", b_data, *b, algorithm.alignments[1]},
                                {"the result", result_data, *result, algorithm.alignments[3], true}};
  if (workspace_bytes > 0)
    operands.push_back({"the workspace", workspace, vector(workspace_bytes / one), 256, true});
  if (reads_c)
    operands.push_back({"C", c_data, *c, algorithm.alignments[2]});
  if (has_bias(epilogue))
    operands.push_back({"the bias", pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER), vector(result->rows), one});
  if (has_bias_gradient(epilogue))
    operands.push_back({"the gradient of the bias", pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER),
                        vector(epilogue == CUBLASLT_EPILOGUE_BGRADA ? result->rows : result->cols), one, true});
  if (has_second_matrix(epilogue))
    operands.push_back({"the second matrix", pointer(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER),
                        Layout{result->type, result->rows, result->cols,
                               static_cast<std::int64_t>(d->get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD))},
                        16, epilogue != CUBLASLT_EPILOGUE_DGELU});
  ++counts().products;
  const std::string what = "cublasLtMatmul";
  if (!are_on_device(operands, what))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool has_pass = has_second_matrix(epilogue) || has_bias_gradient(epilogue);
  const std::chrono::milliseconds delay(has_pass ? setting("EPILOGUE_MS", 0) : 0);
  const cudaError_t queued = enqueue(stream, what, [operands, what, delay] {
    std::this_thread::sleep_for(delay);
    if (are_on_device(operands, what + ", when it is done"))
      std::for_each(operands.begin(), operands.end(), note);
    return true;
  });
  return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
