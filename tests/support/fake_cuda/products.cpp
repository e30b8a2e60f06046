// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What cublasLtMatmul computes: sums in fp32 of numbers of 16 and 32 bits, in fp64 of fp64.
#include "tests/support/fake_cuda/products.hpp"

#include <array>
#include <cmath>
#include <vector>

#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/ptx_numbers.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/report.hpp"

namespace fake_cuda {
namespace {

template <class S>
S load(const char* data, cudaDataType type, std::size_t index) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(static_cast<void*>(&value), data + index * sizeof value, sizeof value);
    return static_cast<S>(value);
  };
  return type == CUDA_R_64F    ? as(double())
         : type == CUDA_R_32F  ? as(float())
         : type == CUDA_R_16BF ? as(BFloat())
                               : as(Half());
}

template <class S>
void store(char* data, cudaDataType type, std::size_t index, S number) {
  const auto as = [&](auto value) { std::memcpy(data + index * sizeof value, &value, sizeof value); };
  if (type == CUDA_R_64F)
    as(static_cast<double>(number));
  else if (type == CUDA_R_32F)
    as(static_cast<float>(number));
  else if (type == CUDA_R_16BF)
    as(BFloat(static_cast<float>(number)));
  else
    as(Half(static_cast<float>(number)));
}

std::size_t place(const Matrix& m, std::size_t row, std::size_t col) {
  return col * static_cast<std::size_t>(m.stride) + row;
}

// 10 bits behind the point are left of 23.
float tf32(float value) {
  return std::isfinite(value) ? float_of((bits_of(value) + 0x0fffU + (bits_of(value) >> 13 & 1)) & ~0x1fffU) : value;
}

// The numbers of op(m), or of its transpose, row after row.
template <class S>
std::vector<S> packed(const Matrix& m, bool transposes, bool rounds, std::size_t padded) {
  const std::size_t rows = transposes ? m.cols : m.rows, cols = transposes ? m.rows : m.cols;
  std::vector<S> numbers(rows * padded);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) {
      const S number = load<S>(m.data, m.type, transposes ? place(m, c, r) : place(m, r, c));
      numbers[r * padded + c] = rounds ? static_cast<S>(tf32(static_cast<float>(number))) : number;
    }
  return numbers;
}

constexpr std::size_t num_parts = 16;

// Beyond, the result stays as it is: only who measures how fast a GPU is multiplies such matrices here.
constexpr std::uint64_t most_terms = std::uint64_t{1} << 30;

template <class S>
S dot(const S* a, const S* b, std::size_t count) {
  std::array<S, num_parts> sums{};
  for (std::size_t i = 0; i < count; i += num_parts)
    for (std::size_t p = 0; p < num_parts; ++p)
      sums[p] += a[i + p] * b[i + p];
  S sum = 0;
  for (const S part : sums)
    sum += part;
  return sum;
}

// GELU in its tanh form, and its derivative.
template <class S>
S inner_of_gelu(S x) {
  return static_cast<S>(0.7978845608028654) * (x + static_cast<S>(0.044715) * x * x * x);
}
template <class S>
S gelu(S x) {
  return static_cast<S>(0.5) * x * (1 + std::tanh(inner_of_gelu(x)));
}
template <class S>
S gelu_slope(S x) {
  const S t = std::tanh(inner_of_gelu(x));
  const S inner_slope = static_cast<S>(0.7978845608028654) * (1 + static_cast<S>(3 * 0.044715) * x * x);
  return static_cast<S>(0.5) * (1 + t) + static_cast<S>(0.5) * x * (1 - t * t) * inner_slope;
}

template <class S>
S after_epilogue(const Product& p, S value, std::size_t row, std::size_t col) {
  const std::size_t at = p.second.data == nullptr ? 0 : place(p.second, row, col);
  if ((p.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
    value += load<S>(p.bias, p.d.type, row);
  if (p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX) {
    store(p.second.data, p.second.type, at, value);
    return gelu(value);
  }
  if (p.epilogue == CUBLASLT_EPILOGUE_DGELU)
    return value * gelu_slope(load<S>(p.second.data, p.second.type, at));
  return value;
}

template <class S>
void multiply_in(const Product& p) {
  const std::size_t inner = p.transposes_a ? p.a.rows : p.a.cols;
  const std::size_t padded = (inner + num_parts - 1) / num_parts * num_parts;
  const std::vector<S> a = packed<S>(p.a, p.transposes_a, p.rounds_to_tf32, padded);   // (m, k)
  const std::vector<S> b = packed<S>(p.b, !p.transposes_b, p.rounds_to_tf32, padded);  // (n, k)
  const auto alpha = static_cast<S>(p.alpha), beta = static_cast<S>(p.beta);
  for (std::size_t col = 0; col < p.d.cols; ++col)
    for (std::size_t row = 0; row < p.d.rows; ++row) {
      S value = alpha * dot(&a[row * padded], &b[col * padded], padded);
      if (beta != 0)
        value += beta * load<S>(p.c.data, p.c.type, place(p.c, row, col));
      store(p.d.data, p.d.type, place(p.d, row, col), after_epilogue(p, value, row, col));
    }
  const bool sums_a = p.epilogue == CUBLASLT_EPILOGUE_BGRADA, sums_b = p.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  for (std::size_t i = 0; (sums_a && i < p.d.rows) || (sums_b && i < p.d.cols); ++i) {
    S sum = 0;
    for (std::size_t k = 0; k < inner; ++k)
      sum += (sums_a ? a : b)[i * padded + k];
    store(p.bias, p.d.type, i, sum);
  }
}

// Of host memory.
void multiply(const Product& product) {
  const std::uint64_t inner = product.transposes_a ? product.a.rows : product.a.cols;
  if (product.d.rows * product.d.cols * inner > most_terms)
    return;
  if (product.a.type == CUDA_R_64F)
    multiply_in<double>(product);
  else
    multiply_in<float>(product);
}

void note(const Matrix& m, bool writes) {
  const std::size_t bytes = m.type == CUDA_R_64F ? 8 : m.type == CUDA_R_32F ? 4 : 2;
  const bool is_one_piece = static_cast<std::uint64_t>(m.stride) == m.rows;
  const std::size_t pieces = is_one_piece ? 1 : m.cols, numbers = is_one_piece ? m.rows * m.cols : m.rows;
  for (std::size_t i = 0; m.data != nullptr && i < pieces; ++i)
    (writes ? note_write : note_read)(m.data + place(m, 0, i) * bytes, numbers * bytes);
}

}  // namespace

void perform(const Product& product) {
  const auto& [a, b, c, d, second, transposes_a, transposes_b, rounds, alpha, beta, epilogue, bias, space, bytes] =
      product;
  for (const Matrix* const read : {&a, &b, &c})
    note(*read, false);
  note(second, epilogue != CUBLASLT_EPILOGUE_DGELU);
  const bool sums = epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
  const std::uint64_t length = epilogue == CUBLASLT_EPILOGUE_BGRADB ? d.cols : d.rows;
  note({d.type, length, 1, static_cast<std::int64_t>(length), bias}, sums);
  note(d, true);
  note_write(space, bytes);
  if (setting("KERNELS", 1) == 0)
    return;
  Product now = product;  // a graph does it again
  for (char** data : {&now.a.data, &now.b.data, &now.c.data, &now.d.data, &now.second.data, &now.bias})
    if (*data != nullptr)
      *data = place_of(*data, 1, "cublasLtMatmul").data;
  multiply(now);
}

}  // namespace fake_cuda
