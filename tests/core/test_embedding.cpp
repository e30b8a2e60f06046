// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/embedding.hpp"
#include "core/parameter.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct EmbeddingCase {
  Index positions;  // more rows than are used
  std::vector<TokenId> tokens;
  Values token_table, position_table, dx;
  explicit EmbeddingCase(const OpShape& s)
      : positions(s.length + 3),
        tokens(random_tokens("tokens", s.rows(), s.vocabulary)),
        token_table(random_values("token_table", s.vocabulary * s.channels())),
        position_table(random_values("position_table", positions * s.channels())),
        dx(random_values("dx", s.rows() * s.channels())) {}
};

// The table cut into `parts`, each applied on its own and added, positions in two pieces of rows: as ranks do it.
template <class T>
Values forward(const EmbeddingCase& c, const OpShape& s, Index parts) {
  const auto x = undefined<T>(s.rows(), s.channels());
  const auto part_of_x = undefined<T>(s.rows(), s.channels());
  Kokkos::deep_copy(x, T(0));
  const auto table = on_device<T>(c.token_table, s.vocabulary, s.channels());
  Values sum(static_cast<std::size_t>(s.rows() * s.channels()), 0.0);
  for (Index part = 0; part < parts; ++part) {
    const IndexRange rows = Shard{0, part, parts}.range(s.vocabulary);
    const Tensor<T, 2> ours(table.data() + rows.begin * s.channels(), rows.size(), s.channels());
    embedding_forward<T>(ExecSpace(), part_of_x, on_device<TokenId>(c.tokens, s.rows()), ours, rows.begin);
    sum = reference::add(sum, on_host(part_of_x));
  }
  Kokkos::deep_copy(x, on_device<T>(sum, s.rows(), s.channels()));
  const auto positions = on_device<T>(c.position_table, c.positions, s.channels());
  const Index half = s.rows() / 2;
  const Tensor<T, 2> front(x.data(), half, s.channels()),
      back(x.data() + half * s.channels(), s.rows() - half, s.channels());
  add_positions<T>(ExecSpace(), front, front, positions, s.length);
  add_positions<T>(ExecSpace(), back, back, positions, s.length, half);
  return on_host(x);
}

TEST(Embedding, forward_is_that_of_plain_loops) {
  for_each_shape_and_type([]<class T>(const OpShape& s) {
    const EmbeddingCase c(s);
    for (const Index parts : {Index{1}, std::min<Index>(3, s.vocabulary)})
      EXPECT_TRUE(allclose(forward<T>(c, s, parts),
                           reference::embedding(c.tokens, rounded<T>(c.token_table), rounded<T>(c.position_table),
                                                s.channels(), s.length),
                           tolerance<T>, {s.rows(), s.channels()}))
          << parts << " parts";
  });
}

// The table by two ranks, the positions in two pieces of rows.
template <class T>
std::pair<Values, Values> backward(const EmbeddingCase& c, const OpShape& s, double before) {
  const auto dtoken = on_device<State<T>>(Values(c.token_table.size(), before), s.vocabulary, s.channels());
  const auto dposition = on_device<State<T>>(Values(c.position_table.size(), before), c.positions, s.channels());
  const auto dx = on_device<T>(c.dx, s.rows(), s.channels());
  const auto tokens = on_device<TokenId>(c.tokens, s.rows());
  const Index half = s.vocabulary / 2;
  const Tensor<State<T>, 2> low(dtoken.data(), half, s.channels());
  const Tensor<State<T>, 2> high(dtoken.data() + half * s.channels(), s.vocabulary - half, s.channels());
  embedding_backward<T>(ExecSpace(), low, dx, tokens);
  embedding_backward<T>(ExecSpace(), high, dx, tokens, half);
  const Index first = s.rows() / 2;
  const Tensor<T, 2> front(dx.data(), first, s.channels());
  const Tensor<T, 2> back(dx.data() + first * s.channels(), s.rows() - first, s.channels());
  add_positions_backward<T>(ExecSpace(), dposition, front, s.length);
  add_positions_backward<T>(ExecSpace(), dposition, back, s.length, first);
  return {on_host(dtoken), on_host(dposition)};
}

TEST(Embedding, gradients_are_those_of_finite_differences) {
  for (const OpShape& s : op_shapes()) {
    SCOPED_TRACE(to_text(s));
    const EmbeddingCase c(s);
    const auto [dtoken, dposition] = backward<double>(c, s, 0);
    const auto loss = [&](const Values& tokens, const Values& positions) {
      return dot(c.dx, reference::embedding(c.tokens, tokens, positions, s.channels(), s.length));
    };
    EXPECT_TRUE(gradient_check([&](const Values& v) { return loss(v, c.position_table); }, c.token_table, dtoken));
    EXPECT_TRUE(gradient_check([&](const Values& v) { return loss(c.token_table, v); }, c.position_table, dposition));
  }
}

TEST(Embedding, gradients_are_added_and_fp32_follows_fp64) {
  for (const OpShape& s : op_shapes()) {
    SCOPED_TRACE(to_text(s));
    const EmbeddingCase c(s);
    const auto [dtoken, dposition] = backward<double>(c, s, 0);
    const auto [dtoken32, dposition32] = backward<float>(c, s, 2);
    EXPECT_TRUE(allclose(dtoken32, reference::add(Values(dtoken.size(), 2.0), dtoken), 1e-5));
    EXPECT_TRUE(allclose(dposition32, reference::add(Values(dposition.size(), 2.0), dposition), 1e-5));
  }
}

}  // namespace
