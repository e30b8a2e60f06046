// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "core/types.hpp"

// Small products of 16-bit types on units that multiply tiles of matrices, as the warps of a block do them. Written
// over a class Warp (warp_cuda.hpp; tests/support/emulated_warp.hpp on hosts), so that every index in here is tested
// where there is no GPU.
//
// A fragment is a small matrix that lies scattered over the 32 lanes of a warp: lane l holds of
//   an operand A (16, 16): rows l/4 and l/4 + 8, columns 2(l%4), +1, +8, +9, as 4 words of two 16-bit numbers;
//   an operand B (16, 8):  the same of its transpose, as 2 words;
//   a sum C (16, 8):       rows l/4 and l/4 + 8, columns 2(l%4), +1, as 4 floats.
// So two sums side by side, rounded, are an operand A: probabilities never leave the registers.

#ifdef __CUDACC__
#define ESPALIER_DEVICE_FUNCTION __device__ __forceinline__
#define ESPALIER_UNROLL _Pragma("unroll")  // registers have no addresses: what indexes them must be known
#else
#define ESPALIER_DEVICE_FUNCTION inline
#define ESPALIER_UNROLL
#endif

namespace espalier::warp_tiles {

using Word = std::uint32_t;  // two 16-bit numbers, the first in the lower half

inline constexpr int warps = 4;  // of a block
inline constexpr int threads = 32 * warps;
inline constexpr int block_rows = 16 * warps;  // queries or keys that a block is responsible for, 16 a warp
inline constexpr int chunk = 8;                // 16-bit numbers that are copied at once

/// One head of one sequence: row t at first + t * stride. Width, stride and address are multiples of `chunk` numbers.
template <class T>
struct Rows {
  T* first;
  Index stride;
  ESPALIER_DEVICE_FUNCTION T* operator()(int t) const { return first + t * stride; }
};

/// Tiles in shared memory have rows of this many numbers: 16 bytes more than the columns, so that the 8 rows that a
/// warp reads at once lie in different banks.
template <int columns>
inline constexpr int padded = columns + chunk;

/// Rows [first, first + rows) into shared memory, asynchronously; zeros beyond length and width. Eight neighbouring
/// threads take the chunks of a row.
template <int rows, int columns, class Warp, class T>
ESPALIER_DEVICE_FUNCTION void copy_tile(const Warp& warp, T* tile, const Rows<const T>& from, int first, int length,
                                        int width) {
  constexpr int columns_at_once = 8 * chunk, rows_at_once = threads / 8;
  static_assert(rows % rows_at_once == 0);
  const int row = warp.thread() / 8;
  const int column = warp.thread() % 8 * chunk;
  T* const to = tile + row * padded<columns> + column;
  const T* const source = from(first + row) + column;
  // copy(to, from, row, column) of each chunk.
  const auto for_chunks = [&](const auto& copy) {
    ESPALIER_UNROLL
    for (int r = 0; r < rows; r += rows_at_once) {
      ESPALIER_UNROLL
      for (int c = 0; c < columns; c += columns_at_once)
        if (c + columns_at_once <= columns || column + c < columns)
          copy(to + r * padded<columns> + c, source + r * from.stride + c, first + row + r, column + c);
    }
  };
  if (first + rows <= length && width == columns)
    for_chunks([&](T* chunk_to, const T* chunk_from, int, int) { warp.copy_chunk(chunk_to, chunk_from); });
  else
    for_chunks([&](T* chunk_to, const T* chunk_from, int at_row, int at_column) {
      const bool inside = at_row < length && at_column < width;
      warp.copy_chunk(chunk_to, inside ? chunk_from : from.first, inside);
    });
}

/// Operand A of all columns: rows [first, first + 16) from device memory.
template <int columns, class Warp, class T>
ESPALIER_DEVICE_FUNCTION void load_rows(const Warp& warp, Word (&a)[columns / 16][4], const Rows<const T>& from,
                                        int first, int length, int width) {
  ESPALIER_UNROLL
  for (int k = 0; k < columns / 16; ++k)
    for (int part = 0; part < 4; ++part) {
      const int row = first + warp.lane() / 4 + part % 2 * 8;
      const int column = k * 16 + warp.lane() % 4 * 2 + part / 2 * 8;
      a[k][part] = row < length && column < width ? warp.template load<Word>(from(row) + column) : 0;
    }
}

/// sum (16, steps) = A (16, columns) * rows^T, with the tile's rows (steps, columns) as they lie. A is given by
/// operand(k, word[4]), for 16 columns from 16 k.
template <int steps, int columns, class Warp, class T, class Operand>
ESPALIER_DEVICE_FUNCTION void multiply_by_rows(const Warp& warp, float (&sum)[steps / 8][4], const T* tile,
                                               const Operand& operand) {
  ESPALIER_UNROLL
  for (int n = 0; n < steps / 8; ++n)
    for (int i = 0; i < 4; ++i)
      sum[n][i] = 0;
  ESPALIER_UNROLL
  for (int k = 0; k < columns / 16; ++k) {
    Word a[4];
    operand(k, a);
    ESPALIER_UNROLL
    for (int n = 0; n < steps / 16; ++n) {
      // Lanes 0-7, 8-15, ... name the rows of one 8x8 matrix each: rows of the tile 0-7 and 8-15, first columns first.
      const int row = n * 16 + warp.lane() / 16 * 8 + warp.lane() % 8;
      const int column = k * 16 + warp.lane() / 8 % 2 * 8;
      Word b[4];
      warp.template load_matrices<false>(b, tile + row * padded<columns> + column);
      warp.template multiply_add<T>(sum[2 * n], a, b[0], b[1]);
      warp.template multiply_add<T>(sum[2 * n + 1], a, b[2], b[3]);
    }
  }
}

/// sum (16, columns) += A (16, steps) * rows (steps, columns); A is given as sums of 8 columns, which are rounded.
template <int steps, int columns, class Warp, class T>
ESPALIER_DEVICE_FUNCTION void add_weighted_rows(const Warp& warp, float (&sum)[columns / 8][4],
                                                const float (&weights)[steps / 8][4], const T* tile) {
  ESPALIER_UNROLL
  for (int k = 0; k < steps / 16; ++k) {
    const Word a[4] = {warp.template round<T>(weights[2 * k][0], weights[2 * k][1]),
                       warp.template round<T>(weights[2 * k][2], weights[2 * k][3]),
                       warp.template round<T>(weights[2 * k + 1][0], weights[2 * k + 1][1]),
                       warp.template round<T>(weights[2 * k + 1][2], weights[2 * k + 1][3])};
    ESPALIER_UNROLL
    for (int n = 0; n < columns / 16; ++n) {
      const int row = k * 16 + warp.lane() % 16;
      const int column = n * 16 + warp.lane() / 16 * 8;
      Word b[4];
      warp.template load_matrices<true>(b, tile + row * padded<columns> + column);
      warp.template multiply_add<T>(sum[2 * n], a, b[0], b[1]);
      warp.template multiply_add<T>(sum[2 * n + 1], a, b[2], b[3]);
    }
  }
}

/// Rows [first, first + 16) of a sum, rounded, to device memory; row i times factor[i / 8 of the lane].
template <int columns, class Warp, class T>
ESPALIER_DEVICE_FUNCTION void store_rows(const Warp& warp, const Rows<T>& to, const float (&sum)[columns / 8][4],
                                         const float (&factor)[2], int first, int length, int width) {
  ESPALIER_UNROLL
  for (int n = 0; n < columns / 8; ++n)
    for (int half = 0; half < 2; ++half) {
      const int row = first + warp.lane() / 4 + half * 8;
      const int column = n * 8 + warp.lane() % 4 * 2;
      if (row < length && column < width)
        warp.store(to(row) + column,
                   warp.template round<T>(sum[n][2 * half] * factor[half], sum[n][2 * half + 1] * factor[half]));
    }
}

}  // namespace espalier::warp_tiles
