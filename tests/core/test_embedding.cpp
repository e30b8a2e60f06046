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
  Values token_embedding, position_embedding, dx;
  explicit EmbeddingCase(const OpShape& s)
      : positions(s.length + 3),
        tokens(random_tokens("tokens", s.rows(), s.vocabulary)),
        token_embedding(random_values("token_table", s.vocabulary * s.channels())),
        position_embedding(random_values("position_table", positions * s.channels())),
        dx(random_values("dx", s.rows() * s.channels())) {}
};

// The table cut into `parts`, each applied on its own and added, positions in two pieces of rows: as ranks do it.
template <class T>
Values forward(const EmbeddingCase& c, const OpShape& s, Index parts) {
  const auto x = undefined<T>(s.rows(), s.channels());
  const auto part_of_x = undefined<T>(s.rows(), s.channels());
  Kokkos::deep_copy(x, T(0));
  const auto table = on_device<T>(c.token_embedding, s.vocabulary, s.channels());
  Values sum(static_cast<std::size_t>(s.rows() * s.channels()), 0.0);
  for (Index part = 0; part < parts; ++part) {
    const IndexRange rows = Shard{0, part, parts}.range(s.vocabulary);
    const Tensor<T, 2> ours(table.data() + rows.begin * s.channels(), rows.size(), s.channels());
    embedding_forward<T>(ExecSpace(), part_of_x, on_device<TokenId>(c.tokens, s.rows()), ours, rows.begin);
    sum = reference::add(sum, on_host(part_of_x));
  }
  Kokkos::deep_copy(x, on_device<T>(sum, s.rows(), s.channels()));
  const auto positions = on_device<T>(c.position_embedding, c.positions, s.channels());
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
                           reference::embedding(c.tokens, rounded<T>(c.token_embedding),
                                                rounded<T>(c.position_embedding), s.channels(), s.length),
                           tolerance<T>, {s.rows(), s.channels()}))
          << parts << " parts";
  });
}

TEST(Embedding, positions_of_rows_may_be_given) {
  const Values table = random_values("table", 6 * 5), x = random_values("x", 4 * 5);
  const std::vector<int> given = {3, 0, 5, 3};
  const auto device = on_device<float>(x, 4, 5);
  add_positions<float>(ExecSpace(), device, device, on_device<float>(table, 6, 5), 4, 0, on_device<int>(given, 4));
  Values wanted;
  for (std::size_t i = 0; i < x.size(); ++i)
    wanted.push_back(x[i] + table[static_cast<std::size_t>(given[i / 5]) * 5 + i % 5]);
  EXPECT_TRUE(allclose(on_host(device), wanted, tolerance<float>, {4, 5}));
}

// The table by two ranks, the positions in two pieces of rows.
template <class T>
std::pair<Values, Values> backward(const EmbeddingCase& c, const OpShape& s, double before) {
  const auto dtoken = on_device<State<T>>(Values(c.token_embedding.size(), before), s.vocabulary, s.channels());
  const auto dposition = on_device<State<T>>(Values(c.position_embedding.size(), before), c.positions, s.channels());
  const auto dx = on_device<T>(c.dx, s.rows(), s.channels());
  const auto tokens = on_device<TokenId>(c.tokens, s.rows());
  const Index half = s.vocabulary / 2;
  const Tensor<State<T>, 2> low(dtoken.data(), half, s.channels());
  const Tensor<State<T>, 2> high(dtoken.data() + half * s.channels(), s.vocabulary - half, s.channels());
  const Tensor<int, 1> scratch("scratch", embedding_scratch(s.vocabulary));
  embedding_backward<T>(ExecSpace(), low, dx, tokens, scratch);
  embedding_backward<T>(ExecSpace(), high, dx, tokens, scratch, half);
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
    EXPECT_TRUE(
        gradient_check([&](const Values& v) { return loss(v, c.position_embedding); }, c.token_embedding, dtoken));
    EXPECT_TRUE(
        gradient_check([&](const Values& v) { return loss(c.token_embedding, v); }, c.position_embedding, dposition));
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

// More rows of a token than a team lists at once, on GPUs, and tokens that occur once; sums in row order, to the bit.
TEST(Embedding, gradients_of_many_rows_are_added_in_their_order) {
  constexpr Index rows = 5003, vocabulary = 523;
  const auto compare = [&](const std::vector<TokenId>& tokens, Index channels) {
    const Values dx = random_values("dx", rows * channels);
    std::vector<float> wanted(static_cast<std::size_t>(vocabulary * channels), 0.5F);
    for (Index n = 0; n < rows; ++n)
      for (Index c = 0; c < channels; ++c)
        wanted[reference::at(tokens[static_cast<std::size_t>(n)], c, channels)] +=
            static_cast<float>(dx[reference::at(n, c, channels)]);
    const auto table = on_device<float>(Values(wanted.size(), 0.5), vocabulary, channels);
    embedding_backward<float>(ExecSpace(), table, on_device<float>(dx, rows, channels),
                              on_device<TokenId>(tokens, rows),
                              Tensor<int, 1>("scratch", embedding_scratch(vocabulary)));
    EXPECT_EQ(on_host(table), Values(wanted.begin(), wanted.end()));
  };
  std::vector<TokenId> tokens = random_tokens("tokens", rows, vocabulary);
  compare(tokens, 7);
  for (std::size_t n = 0; n < tokens.size(); ++n)
    if (n % 7 != 0)
      tokens[n] = 17;
  compare(tokens, 8);
}

}  // namespace
