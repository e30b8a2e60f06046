// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of attention on tensor cores, run by emulated warps: their indices, not their speed.
#include "core/ops/attention.hpp"
#include "core/ops/attention_tiles.hpp"
#include "tests/support/emulated_warp.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

using namespace warp_tiles;

// The arrays of one sequence on the host, as (T, heads of Q, of K, of V) like on the device.
template <class T>
struct Problem {
  OpShape shape;
  std::vector<T> qkv, dout, out, dqkv;
  std::vector<float> log_sum_exp;

  explicit Problem(const OpShape& s)
      : shape(s),
        qkv(of_type(random_values("qkv", s.rows() * 3 * s.channels(), 2))),
        dout(of_type(random_values("dout", s.rows() * s.channels()))),
        out(dout.size(), T(NAN)),
        dqkv(qkv.size(), T(NAN)),
        log_sum_exp(static_cast<std::size_t>(s.heads * s.length), NAN) {}

  static std::vector<T> of_type(const Values& values) {
    std::vector<T> result;
    for (const double value : values)
      result.emplace_back(static_cast<float>(value));
    return result;
  }
  static Values to_values(const std::vector<T>& numbers) {
    Values values;
    for (const T& number : numbers)
      values.push_back(static_cast<double>(static_cast<float>(number)));
    return values;
  }

  template <class Element>
  Rows<Element> part(Element* first, Index head, Index part, Index parts) const {
    return {first + (part * shape.heads + head) * shape.head_size, parts * shape.channels()};
  }
  Head<T> head(Index h) const {
    return {part(qkv.data(), h, 0, 3),         part(qkv.data(), h, 1, 3),
            part(qkv.data(), h, 2, 3),         static_cast<int>(shape.length),
            static_cast<int>(shape.head_size), static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_size)))};
  }

  // block(warp, shared memory, head, first row) of every block of a kernel.
  template <class Block>
  void for_blocks(int shared_bytes, const Block& block) {
    for (Index h = 0; h < shape.heads; ++h)
      for (int first = 0; first < shape.length; first += block_rows) {
        std::vector<T> shared(static_cast<std::size_t>(shared_bytes) / sizeof(T) + 8, T(NAN));
        void* memory = shared.data();
        std::size_t room = shared.size() * sizeof(T);
        T* const aligned = static_cast<T*>(std::align(16, static_cast<std::size_t>(shared_bytes), memory, room));
        EmulatedBlock::run([&](const EmulatedWarp& warp) { block(warp, aligned, h, first); });
      }
  }

  template <int columns>
  void run() {
    for_blocks(forward_bytes<columns>, [&](const EmulatedWarp& warp, T* shared, Index h, int first) {
      forward_block<columns>(warp, shared, head(h), part(out.data(), h, 0, 1), log_sums(h), first);
    });
    for_blocks(0, [&](const EmulatedWarp& warp, T*, Index h, int first) {
      project_block(warp, part(dqkv.data(), h, 0, 3), part<const T>(dout.data(), h, 0, 1),
                    part<const T>(out.data(), h, 0, 1), first, static_cast<int>(shape.length),
                    static_cast<int>(shape.head_size));
    });
    for_blocks(key_gradient_bytes<columns>, [&](const EmulatedWarp& warp, T* shared, Index h, int first) {
      key_gradient_block<columns>(warp, shared, head(h), part<const T>(dout.data(), h, 0, 1), log_sums(h),
                                  part(dqkv.data(), h, 0, 3), part(dqkv.data(), h, 1, 3), part(dqkv.data(), h, 2, 3),
                                  first);
    });
    for_blocks(query_gradient_bytes<columns>, [&](const EmulatedWarp& warp, T* shared, Index h, int first) {
      query_gradient_block<columns>(warp, shared, head(h), part<const T>(dout.data(), h, 0, 1), log_sums(h),
                                    part(dqkv.data(), h, 0, 3), first);
    });
  }

  float* log_sums(Index h) { return log_sum_exp.data() + h * shape.length; }
};

// What attention in fp64 makes of the same rounded numbers.
Values wanted_gradient(const Values& qkv, const Values& dout, const OpShape& s) {
  const AttentionShape shape{s.batch, s.length, s.heads, s.head_size};
  const auto qkv_device = on_device<double>(qkv, s.rows(), 3 * s.channels());
  const auto out = undefined<double>(s.rows(), s.channels());
  const auto log_sum_exp = undefined<double>(s.rows() * s.heads);
  const auto dqkv = undefined<double>(s.rows(), 3 * s.channels());
  attention_forward<double>(ExecSpace(), out, log_sum_exp, qkv_device, shape);
  attention_backward<double>(ExecSpace(), dqkv, on_device<double>(dout, s.rows(), s.channels()), out, log_sum_exp,
                             qkv_device, shape);
  return on_host(dqkv);
}

template <class T, int columns>
void compare(Index length, Index heads, Index head_size) {
  const OpShape s{1, length, heads, head_size, 1};
  SCOPED_TRACE(to_text(s) + " " + to_string(scalar_type_of<T>()));
  Problem<T> problem(s);
  problem.template run<columns>();
  const Values qkv = Problem<T>::to_values(problem.qkv), dout = Problem<T>::to_values(problem.dout);
  Values log_sum_exp(problem.log_sum_exp.size());
  const Values out = reference::attention(qkv, s, &log_sum_exp);
  EXPECT_TRUE(allclose(Problem<T>::to_values(problem.out), out, 4 * tolerance<T>, {s.rows(), s.channels()}));
  EXPECT_TRUE(allclose(Values(problem.log_sum_exp.begin(), problem.log_sum_exp.end()), log_sum_exp, tolerance<T>,
                       {s.batch, s.heads, s.length}));
  const Values actual = Problem<T>::to_values(problem.dqkv), wanted = wanted_gradient(qkv, dout, s);
  EXPECT_TRUE(allclose(actual, wanted, 24 * tolerance<T>, {s.rows(), 3, s.heads, s.head_size}));
  double error = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    error += (actual[i] - wanted[i]) * (actual[i] - wanted[i]);
  EXPECT_LT(std::sqrt(error), 2 * tolerance<T> * std::sqrt(dot(wanted, wanted)));
}

TEST(AttentionTiles, of_each_width_are_those_of_plain_loops) {
  compare<bfloat16, 64>(97, 1, 64);
  compare<bfloat16, 80>(97, 1, 80);
  compare<bfloat16, 96>(97, 1, 96);
  compare<bfloat16, 128>(97, 1, 128);
  compare<float16, 64>(97, 1, 64);
}

TEST(AttentionTiles, seams_and_narrow_heads_are_right) {
  for (const Index length : {1, 16, 63, 64, 65, 130})
    compare<bfloat16, 64>(length, 1, 8);
  compare<float16, 64>(66, 3, 40);
  compare<bfloat16, 128>(130, 1, 104);
}

}  // namespace
