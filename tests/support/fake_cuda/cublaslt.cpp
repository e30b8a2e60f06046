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

#include "tests/support/fake_cuda/handles.hpp"
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

// Of a description, or of a preference: by their numbers.
struct Attributes {
  std::map<int, std::uint64_t> values = {};
  std::uint64_t get(int attribute, std::uint64_t otherwise = 0) const {
    const auto found = values.find(attribute);
    return found == values.end() ? otherwise : found->second;
  }
  void set(int attribute, const void* value, std::size_t bytes, std::size_t wanted) {
    if (bytes != wanted)
      refuse(cudaErrorInvalidValue, "cuBLASLt: attribute " + std::to_string(attribute) + " is set with " +
                                        std::to_string(bytes) + " bytes, it has " + std::to_string(wanted));
    std::memcpy(&values[attribute], value, bytes);
  }
};

struct Description : Attributes {
  cublasComputeType_t compute;
  cudaDataType scale;
  Description(cublasComputeType_t c, cudaDataType s) : compute(c), scale(s) {}
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

// Not destroyed before the end of the process is told.
auto& libraries = *new Handles<cublasLtHandle_t, char>("handle of cuBLASLt");
auto& layouts = *new Handles<cublasLtMatrixLayout_t, Layout>("layout");
auto& descriptions = *new Handles<cublasLtMatmulDesc_t, Description>("description");
auto& preferences = *new Handles<cublasLtMatmulPreference_t, Attributes>("preference");

// What a matmul is described by.
struct Matmul {
  const Description& description;
  const Layout &a, &b, &c, &result;
  Matmul(cublasLtMatmulDesc_t of, cublasLtMatrixLayout_t a_handle, cublasLtMatrixLayout_t b_handle,
         cublasLtMatrixLayout_t c_handle, cublasLtMatrixLayout_t result_handle, const std::string& what)
      : description(descriptions.find(of, what)),
        a(layouts.find(a_handle, what)),
        b(layouts.find(b_handle, what)),
        c(layouts.find(c_handle, what)),
        result(layouts.find(result_handle, what)) {}
};

template <class F>
cublasStatus_t cublas_call(const F& f) {
  return library_call(CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_INVALID_VALUE, f);
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

bool has_second_matrix(std::uint64_t epilogue) { return (epilogue & 128) != 0; }

// What is wrong with a matmul whatever its addresses are.
std::string problem_of(const Matmul& matmul) {
  const auto& [d, a, b, c, result] = matmul;
  const bool ta = d.get(CUBLASLT_MATMUL_DESC_TRANSA) != CUBLAS_OP_N,
             tb = d.get(CUBLASLT_MATMUL_DESC_TRANSB) != CUBLAS_OP_N;
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
  switch (const auto epilogue = d.get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT)) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_BGRADB: return {};
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU: break;
    default: return "epilogue " + std::to_string(epilogue) + ", which the mock does not know";
  }
  const auto stride = d.get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
  return stride >= rows && stride % 8 == 0 ? "" : "a second matrix of stride " + std::to_string(stride);
}

std::uint64_t hash_of(const Matmul& matmul) {
  const Description& d = matmul.description;
  std::string text = std::to_string(d.compute);
  for (const int attribute : {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB, CUBLASLT_MATMUL_DESC_EPILOGUE,
                              CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD})
    text += " " + std::to_string(d.get(attribute));
  for (const Layout* layout : {&matmul.a, &matmul.b, &matmul.c, &matmul.result})
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
  for (const auto& [name, data, layout, alignment, is_written] : operands) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
    if (!is_aligned)
      misuse(what + ": " + name + " is not aligned to the " + std::to_string(alignment) + " bytes promised");
    valid &= is_aligned && is_on_device(data, bytes_of(layout), what + ": " + name);
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

Algorithm read(const cublasLtMatmulAlgo_t& opaque) {
  Algorithm algorithm;
  std::memcpy(&algorithm, &opaque, sizeof algorithm);
  return algorithm;
}

bool fits(const Algorithm& algorithm, const Matmul& matmul) {
  return algorithm.magic == algorithm_magic && algorithm.problem == hash_of(matmul);
}

// All that a matmul reads or writes.
std::vector<Operand> operands_of(const Matmul& matmul, const Algorithm& algorithm, const void* a_data,
                                 const void* b_data, const void* c_data, void* result_data, void* workspace,
                                 std::size_t workspace_bytes) {
  const auto& [d, a, b, c, result] = matmul;
  const auto pointer = [&d = d](int attribute) { return reinterpret_cast<const void*>(d.get(attribute)); };
  const auto epilogue = d.get(CUBLASLT_MATMUL_DESC_EPILOGUE);
  const std::uint64_t one = size_of(result.type);
  const auto vector = [type = result.type](std::uint64_t length) {
    return Layout{type, length, 1, static_cast<std::int64_t>(length)};
  };
  std::vector<Operand> operands{{"A", a_data, a, algorithm.alignments[0]},
                                {"B", b_data, b, algorithm.alignments[1]},
                                {"the result", result_data, result, algorithm.alignments[3], true}};
  if (workspace_bytes > 0)
    operands.push_back({"the workspace", workspace, vector(workspace_bytes / one), 256, true});
  if (c_data != nullptr)
    operands.push_back({"C", c_data, c, algorithm.alignments[2]});
  if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
    operands.push_back({"the bias", pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER), vector(result.rows), one});
  if (epilogue == CUBLASLT_EPILOGUE_BGRADB)
    operands.push_back(
        {"the gradient of the bias", pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER), vector(result.cols), one, true});
  if (has_second_matrix(epilogue))
    operands.push_back({"the second matrix", pointer(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER),
                        Layout{result.type, result.rows, result.cols,
                               static_cast<std::int64_t>(d.get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD))},
                        16, epilogue != CUBLASLT_EPILOGUE_DGELU});
  return operands;
}

}  // namespace

void report_leaked_matmuls() {
  libraries.tell_leaked();
  layouts.tell_leaked();
  descriptions.tell_leaked();
  preferences.tell_leaked();
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "the operation is not supported" : "an error of the mock";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return cublas_call([&] { *handle = libraries.add(std::make_shared<char>(), "a handle of cuBLASLt"); });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return cublas_call([&] { libraries.destroy(handle, "cublasLtDestroy"); });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t stride) {
  return cublas_call([&] {
    *handle = layouts.add(std::make_shared<Layout>(Layout{type, rows, cols, stride}), "a layout of cuBLASLt");
  });
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t handle) {
  return cublas_call([&] { layouts.destroy(handle, "cublasLtMatrixLayoutDestroy"); });
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return cublas_call(
      [&] { *handle = descriptions.add(std::make_shared<Description>(compute, scale), "a description of cuBLASLt"); });
}
cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t handle) {
  return cublas_call([&] { descriptions.destroy(handle, "cublasLtMatmulDescDestroy"); });
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  const bool is_short = attribute == CUBLASLT_MATMUL_DESC_TRANSA || attribute == CUBLASLT_MATMUL_DESC_TRANSB ||
                        attribute == CUBLASLT_MATMUL_DESC_EPILOGUE || attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE;
  return cublas_call([&] {
    descriptions.find(handle, "cublasLtMatmulDescSetAttribute").set(attribute, value, bytes, is_short ? 4 : 8);
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  return cublas_call([&] { *handle = preferences.add(std::make_shared<Attributes>(), "a preference of cuBLASLt"); });
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t handle) {
  return cublas_call([&] { preferences.destroy(handle, "cublasLtMatmulPreferenceDestroy"); });
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  return cublas_call([&] {
    preferences.find(handle, "cublasLtMatmulPreferenceSetAttribute")
        .set(attribute, value, bytes, attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4);
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t library, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t result,
                                              cublasLtMatmulPreference_t preference_handle, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* number) {
  const std::string what = "cublasLtMatmulAlgoGetHeuristic";
  bool is_supported = true;
  *number = 0;
  const cublasStatus_t status = cublas_call([&] {
    libraries.find(library, what);
    const Matmul matmul(description, a, b, c, result, what);
    const Attributes& preference = preferences.find(preference_handle, what);
    if (const std::string problem = problem_of(matmul); !problem.empty())
      refuse(cudaErrorInvalidValue, what + " for " + problem);
    is_supported = matmul.a.type != CUDA_R_64F ||
                   matmul.description.get(CUBLASLT_MATMUL_DESC_EPILOGUE) <= CUBLASLT_EPILOGUE_DEFAULT;
    if (!is_supported)
      return;
    Algorithm algorithm{algorithm_magic, hash_of(matmul), preference.get(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), {}};
    for (int i = 0; i < 4; ++i)
      algorithm.alignments[i] =
          static_cast<std::uint32_t>(preference.get(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, 256));
    for (; *number < std::min(most, 2); ++*number) {
      results[*number] = {};
      std::memcpy(&results[*number].algo, &algorithm, sizeof algorithm);
      results[*number].workspaceSize = algorithm.workspace_bytes;
      results[*number].state = CUBLAS_STATUS_SUCCESS;
    }
  });
  return is_supported ? status : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t library, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t result, const cublasLtMatmulAlgo_t* chosen,
                                       cublasLtMatmulHeuristicResult_t* checked) {
  const std::string what = "cublasLtMatmulAlgoCheck";
  const cublasStatus_t status = cublas_call([&] {
    libraries.find(library, what);
    const Algorithm algorithm = read(*chosen);
    *checked = {};
    checked->algo = *chosen;
    checked->workspaceSize = algorithm.workspace_bytes;
    checked->state = fits(algorithm, Matmul(description, a, b, c, result, what)) ? CUBLAS_STATUS_SUCCESS
                                                                                 : CUBLAS_STATUS_NOT_SUPPORTED;
  });
  return status == CUBLAS_STATUS_SUCCESS ? checked->state : status;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t library, cublasLtMatmulDesc_t description, const void*,
                              const void* a_data, cublasLtMatrixLayout_t a, const void* b_data,
                              cublasLtMatrixLayout_t b, const void* beta, const void* c_data, cublasLtMatrixLayout_t c,
                              void* result_data, cublasLtMatrixLayout_t result, const cublasLtMatmulAlgo_t* chosen,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const std::string what = "cublasLtMatmul";
  return cublas_call([&] {
    libraries.find(library, what);
    const Matmul matmul(description, a, b, c, result, what);
    const Algorithm algorithm = read(*chosen);
    if (!fits(algorithm, matmul) || workspace_bytes < algorithm.workspace_bytes)
      refuse(cudaErrorInvalidValue, what + " with an algorithm that was proposed for another matmul");
    const bool is_double = matmul.a.type == CUDA_R_64F;
    const bool reads_c = is_double ? *static_cast<const double*>(beta) != 0 : *static_cast<const float*>(beta) != 0;
    const std::vector<Operand> operands = operands_of(matmul, algorithm, a_data, b_data, reads_c ? c_data : nullptr,
                                                      result_data, workspace, workspace_bytes);
    if (!are_on_device(operands, what))
      throw Refusal{cudaErrorInvalidValue};
    const auto epilogue = matmul.description.get(CUBLASLT_MATMUL_DESC_EPILOGUE);
    const bool has_pass = has_second_matrix(epilogue) || epilogue == CUBLASLT_EPILOGUE_BGRADB;
    const std::chrono::milliseconds delay(has_pass ? setting("EPILOGUE_MS", 0) : 0);
    enqueue(stream_of(stream, what), what, [operands, what, delay] {
      std::this_thread::sleep_for(delay);
      if (are_on_device(operands, what + ", when it is done"))
        std::for_each(operands.begin(), operands.end(), note);
      return true;
    });
  });
}

}  // extern "C"
