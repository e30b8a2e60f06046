// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/warp_tiles.hpp"

// Causal attention of 16-bit types, as one block of warps does it (Dao, FlashAttention-2, 2023).

namespace espalier::warp_tiles {

/// What a block works on. Columns beyond `width` are zeros.
template <class T>
struct Head {
  Rows<const T> q, k, v;
  int length;  // T
  int width;   // HS
  float scale;
};

/// Rows that pass by at once; fewer where the sums of long rows fill the registers.
template <int columns>
inline constexpr int forward_step = 64;
template <int columns>
inline constexpr int backward_step = columns <= 80 ? 64 : 32;

/// Shared memory of a block, in bytes: two stages of two tiles; for the gradients of keys also the keys and values, and
/// two numbers for each query.
template <int columns>
inline constexpr int forward_bytes = 2 * 2 * forward_step<columns>* padded<columns> * 2;
template <int columns>
inline constexpr int query_gradient_bytes = 2 * 2 * backward_step<columns>* padded<columns> * 2;
template <int columns>
inline constexpr int key_gradient_bytes =
    query_gradient_bytes<columns> + 2 * block_rows* padded<columns> * 2 + 2 * 2 * backward_step<columns> * 4;

/// Two numbers that are loaded at once.
struct alignas(8) Two {
  float first, second;
};

/// Softmax of 16 rows on the way: what a lane knows of rows lane/4 and lane/4 + 8.
struct RunningSoftmax {
  float largest[2];  ///< of scores, not yet scaled
  float total[2];    ///< of this lane's columns alone
};

/// Scores (16, steps) of later keys than their query become -infinity. Rows are from `row` and columns from `column`:
/// queries and keys, or, where keys_are_rows, keys and queries. What lies beyond the end is later than all that counts.
template <int steps, bool keys_are_rows, class Warp>
ESPALIER_DEVICE_FUNCTION void hide_later_keys(const Warp& warp, float (&scores)[steps / 8][4], int row, int column) {
  const int ahead = row + warp.lane() / 4 - (column + warp.lane() % 4 * 2);  // of this lane's first score
  ESPALIER_UNROLL
  for (int n = 0; n < steps / 8; ++n)
    for (int i = 0; i < 4; ++i) {
      const int column_ahead = n * 8 + i % 2 - i / 2 * 8;
      if (keys_are_rows ? column_ahead < ahead : column_ahead > ahead)
        scores[n][i] = -INFINITY;
    }
}

/// Scores (16, steps) become probabilities, times exp(scale * largest); sum, of earlier keys, is brought to the new
/// maximum.
template <int steps, int columns, class Warp>
ESPALIER_DEVICE_FUNCTION void soften(const Warp& warp, RunningSoftmax& softmax, float (&scores)[steps / 8][4],
                                     float (&sum)[columns / 8][4], float scale_log2) {
  ESPALIER_UNROLL
  for (int half = 0; half < 2; ++half) {
    float largest = softmax.largest[half];
    ESPALIER_UNROLL
    for (int n = 0; n < steps / 8; ++n)
      for (int i = 0; i < 2; ++i)
        largest = fmaxf(largest, scores[n][2 * half + i]);
    largest = warp.largest_of_row(largest);
    const float shrink = warp.exp2(scale_log2 * (softmax.largest[half] - largest));
    const float shift = scale_log2 * largest;
    softmax.largest[half] = largest;
    softmax.total[half] *= shrink;
    ESPALIER_UNROLL
    for (int n = 0; n < columns / 8; ++n)
      for (int i = 0; i < 2; ++i)
        sum[n][2 * half + i] *= shrink;
    ESPALIER_UNROLL
    for (int n = 0; n < steps / 8; ++n)
      for (int i = 0; i < 2; ++i) {
        float& score = scores[n][2 * half + i];
        score = warp.exp2(scale_log2 * score - shift);
        softmax.total[half] += score;
      }
  }
}

/// Starts to copy rows [row, row + steps) of two arrays into the two tiles of stage 0 or 1.
template <int steps, int columns, class Warp, class T>
ESPALIER_DEVICE_FUNCTION void copy_stage(const Warp& warp, T* stages, int stage, const Rows<const T>& first,
                                         const Rows<const T>& second, int row, const Head<T>& head) {
  constexpr int tile = steps * padded<columns>;
  copy_tile<steps, columns>(warp, stages + 2 * stage * tile, first, row, head.length, head.width);
  copy_tile<steps, columns>(warp, stages + (2 * stage + 1) * tile, second, row, head.length, head.width);
  warp.end_copies();
}

inline constexpr float log2_of_e = 1.4426950408889634F;

/// out and log_sum_exp of queries [q0, q0 + block_rows).
template <int columns, class Warp, class T>
ESPALIER_DEVICE_FUNCTION void forward_block(const Warp& warp, T* shared, const Head<T>& head, const Rows<T>& out,
                                            float* log_sum_exp, int q0) {
  constexpr int steps = forward_step<columns>;
  constexpr int tile = steps * padded<columns>;
  const int first = q0 + 16 * warp.index();  // of this warp's queries
  const int end = q0 + block_rows < head.length ? q0 + block_rows : head.length;
  const auto copy_keys = [&](int k0, int stage) {
    copy_stage<steps, columns>(warp, shared, stage, head.k, head.v, k0, head);
  };
  copy_keys(0, 0);
  Word q[columns / 16][4];
  load_rows<columns>(warp, q, head.q, first, head.length, head.width);
  float sum[columns / 8][4] = {};
  RunningSoftmax softmax{{-INFINITY, -INFINITY}, {0, 0}};
  const float scale_log2 = head.scale * log2_of_e;
  for (int k0 = 0, stage = 0; k0 < end; k0 += steps, stage = 1 - stage) {
    warp.wait_for_copies();
    warp.block_barrier();  // the tiles are complete, and those of the other stage are no longer read
    if (k0 + steps < end)
      copy_keys(k0 + steps, 1 - stage);
    if (k0 > first + 15)  // later than all queries of this warp
      continue;
    float scores[steps / 8][4];
    multiply_by_rows<steps, columns>(warp, scores, shared + 2 * stage * tile, [&](int k, Word(&a)[4]) {
      ESPALIER_UNROLL
      for (int i = 0; i < 4; ++i)
        a[i] = q[k][i];
    });
    if (k0 + steps - 1 > first)
      hide_later_keys<steps, false>(warp, scores, first, k0);
    soften<steps, columns>(warp, softmax, scores, sum, scale_log2);
    add_weighted_rows<steps, columns>(warp, sum, scores, shared + (2 * stage + 1) * tile);
  }
  float inverse[2];
  ESPALIER_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float total = warp.sum_of_row(softmax.total[half]);
    inverse[half] = 1 / total;
    const int query = first + warp.lane() / 4 + half * 8;
    if (warp.lane() % 4 == 0 && query < head.length)
      log_sum_exp[query] = head.scale * softmax.largest[half] + warp.log(total);
  }
  store_rows<columns>(warp, out, sum, inverse, first, head.length, head.width);
}

// Backward, with P the probabilities and dP = dO V^T:  dV = P^T dO,  dS = P * (dP - rowsum(dO * O)),  dQ = scale dS K,
// dK = scale dS^T Q. One pass for dQ, with a block for each tile of queries, one for dK and dV, with a block for each
// tile of keys: P and dP are made twice, but every sum has one owner and one order. Until dQ is written, rowsum(dO * O)
// of each query lies in its place, in fp32: `projection`.

/// What lies in the place of row t of dQ.
template <class Warp, class T>
ESPALIER_DEVICE_FUNCTION float projection(const Warp& warp, const Rows<T>& dq, int t) {
  return warp.template load<float>(dq(t));
}

/// The projections of queries [q0, q0 + block_rows), a warp a query.
template <class Warp, class T>
ESPALIER_DEVICE_FUNCTION void project_block(const Warp& warp, const Rows<T>& dq, const Rows<const T>& dout,
                                            const Rows<const T>& out, int q0, int length, int width) {
  for (int t = q0 + warp.index(); t < length && t < q0 + block_rows; t += warps) {
    float sum = 0;
    for (int c = warp.lane() * 2; c < width; c += 64) {
      const auto [a, b] = warp.template widen<T>(warp.template load<Word>(dout(t) + c));
      const auto [x, y] = warp.template widen<T>(warp.template load<Word>(out(t) + c));
      sum += a * x + b * y;
    }
    sum = warp.sum_of_warp(sum);
    if (warp.lane() == 0)
      warp.store(dq(t), sum);
  }
}

/// dQ of queries [q0, q0 + block_rows).
template <int columns, class Warp, class T>
ESPALIER_DEVICE_FUNCTION void query_gradient_block(const Warp& warp, T* shared, const Head<T>& head,
                                                   const Rows<const T>& dout, const float* log_sum_exp,
                                                   const Rows<T>& dq, int q0) {
  constexpr int steps = backward_step<columns>;
  constexpr int tile = steps * padded<columns>;
  const int first = q0 + 16 * warp.index();
  const int end = q0 + block_rows < head.length ? q0 + block_rows : head.length;
  const auto copy_keys = [&](int k0, int stage) {
    copy_stage<steps, columns>(warp, shared, stage, head.k, head.v, k0, head);
  };
  copy_keys(0, 0);
  Word q[columns / 16][4], d_o[columns / 16][4];
  load_rows<columns>(warp, q, head.q, first, head.length, head.width);
  load_rows<columns>(warp, d_o, dout, first, head.length, head.width);
  float log_sum[2], project[2];  // of the lane's two queries
  ESPALIER_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = first + warp.lane() / 4 + half * 8;
    log_sum[half] = query < head.length ? log_sum_exp[query] * log2_of_e : 0;
    project[half] = query < head.length ? projection(warp, dq, query) : 0;
  }
  float sum[columns / 8][4] = {};
  const float scale_log2 = head.scale * log2_of_e;
  for (int k0 = 0, stage = 0; k0 < end; k0 += steps, stage = 1 - stage) {
    warp.wait_for_copies();
    warp.block_barrier();  // the tiles are complete, and those of the other stage are no longer read
    if (k0 + steps < end)
      copy_keys(k0 + steps, 1 - stage);
    if (k0 > first + 15)
      continue;
    const T* const keys = shared + 2 * stage * tile;
    float scores[steps / 8][4], dp[steps / 8][4];
    multiply_by_rows<steps, columns>(warp, scores, keys, [&](int k, Word(&a)[4]) {
      ESPALIER_UNROLL
      for (int i = 0; i < 4; ++i)
        a[i] = q[k][i];
    });
    multiply_by_rows<steps, columns>(warp, dp, keys + tile, [&](int k, Word(&a)[4]) {
      ESPALIER_UNROLL
      for (int i = 0; i < 4; ++i)
        a[i] = d_o[k][i];
    });
    if (k0 + steps - 1 > first)
      hide_later_keys<steps, false>(warp, scores, first, k0);
    ESPALIER_UNROLL
    for (int n = 0; n < steps / 8; ++n)
      for (int i = 0; i < 4; ++i) {
        const float p = warp.exp2(scale_log2 * scores[n][i] - log_sum[i / 2]);
        scores[n][i] = p * (dp[n][i] - project[i / 2]);
      }
    add_weighted_rows<steps, columns>(warp, sum, scores, keys);
  }
  warp.block_barrier();  // everyone has read the projections of its rows
  const float scale[2] = {head.scale, head.scale};
  store_rows<columns>(warp, dq, sum, scale, first, head.length, head.width);
}

/// dK and dV of keys [k0, k0 + block_rows). Works on transposed scores (keys, queries), so that the sums over queries
/// are products of what lies in registers.
template <int columns, class Warp, class T>
ESPALIER_DEVICE_FUNCTION void key_gradient_block(const Warp& warp, T* shared, const Head<T>& head,
                                                 const Rows<const T>& dout, const float* log_sum_exp, const Rows<T>& dq,
                                                 const Rows<T>& dk, const Rows<T>& dv, int k0) {
  constexpr int steps = backward_step<columns>;
  constexpr int tile = steps * padded<columns>;
  constexpr int own_tile = block_rows * padded<columns>;
  T* const keys = shared;  // (block_rows, columns)
  T* const values = shared + own_tile;
  T* const stages = shared + 2 * own_tile;                                // 2 of queries and dO (steps, columns) each
  float* const statistics = reinterpret_cast<float*>(stages + 4 * tile);  // 2 of log_sum_exp and projection (steps)
  const int first = k0 + 16 * warp.index();                               // of this warp's keys
  const auto copy_queries = [&](int q0, int stage) {
    copy_stage<steps, columns>(warp, stages, stage, head.q, dout, q0, head);
    if (warp.thread() < steps) {
      const int query = q0 + warp.thread();
      float* const of_stage = statistics + 2 * stage * steps;
      of_stage[warp.thread()] = query < head.length ? log_sum_exp[query] * log2_of_e : 0;
      of_stage[steps + warp.thread()] = query < head.length ? projection(warp, dq, query) : 0;
    }
  };
  copy_tile<block_rows, columns>(warp, keys, head.k, k0, head.length, head.width);
  copy_tile<block_rows, columns>(warp, values, head.v, k0, head.length, head.width);
  copy_queries(k0, 0);  // earlier queries do not see these keys
  float dk_sum[columns / 8][4] = {}, dv_sum[columns / 8][4] = {};
  const float scale_log2 = head.scale * log2_of_e;
  const auto own_rows = [&](const T* own) {
    return [own, &warp](int k, Word(&a)[4]) {
      const int row = 16 * warp.index() + warp.lane() % 16;
      const int column = k * 16 + warp.lane() / 16 * 8;
      warp.template load_matrices<false>(a, own + row * padded<columns> + column);
    };
  };
  for (int q0 = k0, stage = 0; q0 < head.length; q0 += steps, stage = 1 - stage) {
    warp.wait_for_copies();
    warp.block_barrier();  // the tiles are complete, and those of the other stage are no longer read
    if (q0 + steps < head.length)
      copy_queries(q0 + steps, 1 - stage);
    if (q0 + steps <= first)  // earlier than all keys of this warp
      continue;
    const T* const queries = stages + 2 * stage * tile;
    const T* const d_o = queries + tile;
    const float* const log_sum = statistics + 2 * stage * steps;
    const float* const project = log_sum + steps;
    float scores[steps / 8][4], dp[steps / 8][4];  // (16 keys, steps)
    multiply_by_rows<steps, columns>(warp, scores, queries, own_rows(keys));
    multiply_by_rows<steps, columns>(warp, dp, d_o, own_rows(values));
    if (first + 15 > q0)
      hide_later_keys<steps, true>(warp, scores, first, q0);
    ESPALIER_UNROLL
    for (int n = 0; n < steps / 8; ++n) {
      const int query = n * 8 + warp.lane() % 4 * 2;  // the first of two
      const Two log_sums = warp.template load<Two>(log_sum + query);
      const Two projects = warp.template load<Two>(project + query);
      for (int i = 0; i < 4; ++i) {
        const bool second = i % 2 != 0;
        const float p = warp.exp2(scale_log2 * scores[n][i] - (second ? log_sums.second : log_sums.first));
        scores[n][i] = p;
        dp[n][i] = p * (dp[n][i] - (second ? projects.second : projects.first));
      }
    }
    add_weighted_rows<steps, columns>(warp, dv_sum, scores, d_o);
    add_weighted_rows<steps, columns>(warp, dk_sum, dp, queries);
  }
  const float one[2] = {1, 1}, scale[2] = {head.scale, head.scale};
  store_rows<columns>(warp, dv, dv_sum, one, first, head.length, head.width);
  store_rows<columns>(warp, dk, dk_sum, scale, first, head.length, head.width);
}

}  // namespace espalier::warp_tiles
