// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/embedding.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct Case {
  Index positions;  // more rows than are used
  std::vector<TokenId> tokens;
  Values token_table, position_table, dx;
  explicit Case(const OpShape& s)
      : positions(s.length + 3),
        tokens(random_tokens("tokens", s.rows(), s.vocabulary)),
        token_table(random_values("token_table", s.vocabulary * s.channels())),
        position_table(random_values("position_table", positions * s.channels())),
        dx(random_values("dx", s.rows() * s.channels())) {}
};

TEST(Embedding, forward_is_that_of_plain_loops) {
  for_each_shape_and_type([]<class T>(const OpShape& s) {
    const Case c(s);
    const auto x = undefined<T>(s.rows(), s.channels());
    embedding_forward<T>(ExecSpace(), x, on_device<TokenId>(c.tokens, s.rows()),
                         on_device<T>(c.token_table, s.vocabulary, s.channels()),
                         on_device<T>(c.position_table, c.positions, s.channels()), s.length);
    EXPECT_TRUE(allclose(
        on_host(x),
        reference::embedding(c.tokens, rounded<T>(c.token_table), rounded<T>(c.position_table), s.channels(), s.length),
        tolerance<T>, {s.rows(), s.channels()}));
  });
}

template <class T>
std::pair<Values, Values> backward(const Case& c, const OpShape& s, double before) {
  const auto dtoken = on_device<State<T>>(Values(c.token_table.size(), before), s.vocabulary, s.channels());
  const auto dposition = on_device<State<T>>(Values(c.position_table.size(), before), c.positions, s.channels());
  embedding_backward<T>(ExecSpace(), dtoken, dposition, on_device<T>(c.dx, s.rows(), s.channels()),
                        on_device<TokenId>(c.tokens, s.rows()), s.length);
  return {on_host(dtoken), on_host(dposition)};
}

TEST(Embedding, gradients_are_those_of_finite_differences) {
  for (const OpShape& s : op_shapes()) {
    SCOPED_TRACE(to_text(s));
    const Case c(s);
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
    const Case c(s);
    const auto [dtoken, dposition] = backward<double>(c, s, 0);
    const auto [dtoken32, dposition32] = backward<float>(c, s, 2);
    EXPECT_TRUE(allclose(dtoken32, reference::add(Values(dtoken.size(), 2.0), dtoken), 1e-5));
    EXPECT_TRUE(allclose(dposition32, reference::add(Values(dposition.size(), 2.0), dposition), 1e-5));
  }
}

}  // namespace
