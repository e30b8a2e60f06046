// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/memory_ledger.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"
#include "tests/support/allclose.hpp"
#include "tests/support/matmul_operands.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct MatmulSize {
  Index rows, cols, inner;
};

// Single elements, odd sizes, few rows (16), and sizes around the tiles of the tiled kernel (64 in fp32, 32 in fp64).
const std::vector<MatmulSize> matmul_sizes = {{1, 1, 1},    {1, 7, 5},    {5, 1, 3},     {3, 4, 1},     {16, 35, 77},
                                              {31, 33, 32}, {64, 64, 64}, {65, 63, 129}, {130, 70, 17}, {17, 35, 77}};

// A matrix inside a wider array: what lies between its rows must neither count nor change.
struct Window {
  Index rows, cols, stride;
  Window(Index r, Index c, Index gap) : rows(r), cols(c), stride(c + gap) {}
  Values random(const char* name) const {
    Values values = random_values(name, rows * stride);
    for (Index i = 0; i < rows; ++i)
      for (Index j = cols; j < stride; ++j)
        values[reference::at(i, j, stride)] = std::nan("");
    return values;
  }
};

template <class T>
struct Operands {
  Window c, a, b;
  Transpose ta, tb;
  Values c_values, a_values, b_values;

  Operands(const MatmulSize& p, Transpose transpose_a, Transpose transpose_b, Index gap)
      : c(p.rows, p.cols, gap),
        a(transpose_a == Transpose::no ? p.rows : p.inner, transpose_a == Transpose::no ? p.inner : p.rows, 2 * gap),
        b(transpose_b == Transpose::no ? p.inner : p.cols, transpose_b == Transpose::no ? p.cols : p.inner, 3 * gap),
        ta(transpose_a),
        tb(transpose_b),
        c_values(rounded<T>(c.random("c"))),
        a_values(matmul_operands<T>(a.random("a"))),
        b_values(matmul_operands<T>(b.random("b"))) {}

  Values expected(double alpha, double beta) const {
    Values result = c_values;
    const Index inner = ta == Transpose::no ? a.cols : a.rows;
    for (Index i = 0; i < c.rows; ++i)
      for (Index j = 0; j < c.cols; ++j) {
        double sum = 0;
        for (Index k = 0; k < inner; ++k)
          sum += a_values[ta == Transpose::no ? reference::at(i, k, a.stride) : reference::at(k, i, a.stride)] *
                 b_values[tb == Transpose::no ? reference::at(k, j, b.stride) : reference::at(j, k, b.stride)];
        double& out = result[reference::at(i, j, c.stride)];
        out = alpha * sum + (beta == 0 ? 0 : beta * out);
      }
    return result;
  }

  template <class Out = T>
  Values actual(double alpha, double beta) const {
    const auto c_device = on_device<Out>(c_values, c.rows * c.stride);
    const auto a_device = on_device<T>(a_values, a.rows * a.stride);
    const auto b_device = on_device<T>(b_values, b.rows * b.stride);
    matmul<T, Out>(ExecSpace(), {c_device.data(), c.rows, c.cols, c.stride}, ta,
                   {a_device.data(), a.rows, a.cols, a.stride}, tb, {b_device.data(), b.rows, b.cols, b.stride},
                   static_cast<State<T>>(alpha), static_cast<State<T>>(beta));
    return on_host(c_device);
  }
};

class Matmul : public testing::TestWithParam<MatmulLibrary> {
 protected:
  void SetUp() override { set_matmul_library(GetParam()); }
  void TearDown() override { set_matmul_library(before_); }

 private:
  MatmulLibrary before_ = matmul_library();
};

template <class T>
void compare(const MatmulSize& p, Transpose ta, Transpose tb, Index gap) {
  Operands<T> operands(p, ta, tb, gap);
  for (const auto& [alpha, beta] : {std::pair(1.0, 0.0), {1.0, 1.0}, {1.0, 0.25}, {-0.5, 0.25}, {2.0, 0.0}}) {
    if (beta == 0)
      operands.c_values.assign(operands.c_values.size(), std::nan(""));  // the old content must not be read
    else
      operands.c_values = rounded<T>(operands.c.random("c"));
    const std::vector<Index> shape = {operands.c.rows, operands.c.stride};
    const Values wanted = operands.expected(alpha, beta);
    EXPECT_TRUE(allclose(operands.actual(alpha, beta), wanted,
                         beta == 0 ? tolerance<T> : tolerance_of_sum<T>(matmul_library()), shape))
        << "(" << p.rows << ", " << p.inner << ") x (" << p.inner << ", " << p.cols << "), transposed "
        << (ta == Transpose::yes) << (tb == Transpose::yes) << ", gap " << gap << ", alpha " << alpha << ", beta "
        << beta << ", " << to_string(scalar_type_of<T>());
    if constexpr (has_master_weights<T>) {
      EXPECT_TRUE(allclose(operands.template actual<float>(alpha, beta), wanted, tolerance<float>, shape))
          << "16-bit operands, fp32 result";
    }
  }
}

TEST_P(Matmul, is_that_of_plain_loops) {
  for (const MatmulSize& p : matmul_sizes)
    for (const Transpose ta : {Transpose::no, Transpose::yes})
      for (const Transpose tb : {Transpose::no, Transpose::yes})
        for (const Index gap : {0, 3}) {
          compare<float>(p, ta, tb, gap);
          compare<double>(p, ta, tb, gap);
          compare<bfloat16>(p, ta, tb, gap);
          compare<float16>(p, ta, tb, gap);
        }
}

// What lets generation compute texts together and give each the bits that it gets alone.
template <class T>
void expect_rows_alone(const Operands<T>& together) {
  const Values all = together.actual(1, 0);
  Operands<T> alone = together;
  alone.c.rows = alone.a.rows = 1;
  alone.c_values.resize(static_cast<std::size_t>(alone.c.stride));
  for (Index row = 0; row < together.c.rows; ++row) {
    const auto first = together.a_values.begin() + row * together.a.stride;
    alone.a_values.assign(first, first + together.a.stride);
    const Values got = alone.actual(1, 0);
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + together.c.cols, all.begin() + row * together.c.stride))
        << "row " << row << " of " << together.c.rows;
  }
}

TEST_P(Matmul, few_rows_have_the_bits_of_each_alone) {
  if constexpr (!exec_is_host)
    GTEST_SKIP() << "GPUs promise nothing of the kind";
  for (Index rows = 2; rows <= few_rows; ++rows)
    for (const auto& [cols, inner] : {std::pair<Index, Index>(35, 77), {1, 5}, {64, 256}}) {
      expect_rows_alone(Operands<float>({rows, cols, inner}, Transpose::no, Transpose::yes, rows % 2));
      expect_rows_alone(Operands<double>({rows, cols, inner}, Transpose::no, Transpose::yes, rows % 2));
    }
}

// 16-bit operands are widened in blocks of 2048 x 1024: the seams. Where many rows read an operand it is packed first.
TEST_P(Matmul, of_16_bits_has_no_seams) {
  if (GetParam() == MatmulLibrary::tiled)
    GTEST_SKIP() << "not in blocks";
  for (const MatmulSize& p : {MatmulSize{2050, 3, 1030}, MatmulSize{3, 2049, 5}, MatmulSize{5, 4, 2100},
                              MatmulSize{1025, 65, 33}, MatmulSize{4097, 17, 35}})
    for (const Transpose t : {Transpose::no, Transpose::yes})
      for (const Index gap : {0, 3})
        compare<bfloat16>(p, t, t, gap);
}

// The CPU is asked by the compiler, too: a path that nobody takes would pass every other test.
TEST(MatmulLibraries, bf16_is_multiplied_as_it_is_where_the_cpu_can) {
  const std::vector<MatmulLibrary> present = matmul_libraries();
  const bool has_onednn = std::find(present.begin(), present.end(), MatmulLibrary::onednn) != present.end();
  bool has_units = false;
#if defined(__x86_64__)
  has_units = __builtin_cpu_supports("avx512bf16");
#endif
  EXPECT_EQ(multiplies_16_bits(ScalarType::bf16, MatmulLibrary::onednn), has_onednn && has_units);
  EXPECT_EQ(multiplies_16_bits(ScalarType::bf16, default_matmul_library(ScalarType::bf16)), has_onednn && has_units);
  for (const MatmulLibrary library : present) {
    EXPECT_FALSE(multiplies_16_bits(ScalarType::fp16, library));
    EXPECT_FALSE(multiplies_16_bits(ScalarType::fp32, library));
  }
}

TEST_P(Matmul, of_nothing_scales_the_output) {
  const auto c = on_device<float>(Values{1, 2, 3, 4}, 2, 2);
  const auto empty = on_device<float>(Values{0, 0, 0, 0}, 2, 2);
  const Matrix<const float> a(empty.data(), 2, 0, 2);
  matmul<float>(ExecSpace(), c, Transpose::no, a, Transpose::yes, a, 1.0F, 0.5F);
  EXPECT_TRUE(allclose(on_host(c), {0.5, 1, 1.5, 2}, 0));
}

TEST_P(Matmul, an_empty_output_is_no_error) {
  const auto a = on_device<float>(Values{1, 2, 3, 4}, 2, 2);
  const Matrix<float> c(a.data(), 0, 2, 2);
  matmul<float>(ExecSpace(), c, Transpose::no, Matrix<float>(a.data(), 0, 2, 2), Transpose::no, a);
  EXPECT_TRUE(allclose(on_host(a), {1, 2, 3, 4}, 0));
}

TEST_P(Matmul, sizes_that_do_not_fit_are_refused) {
  const auto a = on_device<float>(Values{1, 2, 3, 4, 5, 6}, 2, 3);
  const auto c = on_device<float>(Values{1, 2, 3, 4}, 2, 2);
  EXPECT_THROW(matmul<float>(ExecSpace(), c, Transpose::no, a, Transpose::no, a), std::logic_error);
  EXPECT_NO_THROW(matmul<float>(ExecSpace(), c, Transpose::no, a, Transpose::yes, a));
}

TEST_P(Matmul, a_size_beyond_the_library_s_integers_is_refused_or_right) {
  const auto a = on_device<float>(Values{3}, 1, 1);
  const auto c = on_device<float>(Values{0}, 1, 1);
  const Matrix<const float> far(a.data(), 1, 1, Index{1} << 32);  // in 32 bits: 0
  try {
    matmul<float>(ExecSpace(), c, Transpose::no, far, Transpose::no, far);
    EXPECT_TRUE(allclose(on_host(c), {9}, 0));
  } catch (const std::logic_error& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("4294967296"), std::string::npos) << refusal.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, Matmul, testing::ValuesIn(matmul_libraries()),
                         [](const auto& library) { return std::string(to_string(library.param)); });

// Copies of its operands lie in memory that Kokkos does not know of.
TEST(MatmulLibraries, memory_that_onednn_works_in_is_counted) {
  const MatmulLibrary before = matmul_library();
  if (!multiplies_16_bits(ScalarType::bf16, MatmulLibrary::onednn))
    GTEST_SKIP() << "no 16-bit units, or no oneDNN";
  set_matmul_library(MatmulLibrary::onednn);
  const std::size_t known = MemoryLedger::instance().library_scratch();
  static_cast<void>(Operands<bfloat16>({.rows = 96, .cols = 80, .inner = 6000}, Transpose::yes, Transpose::yes, 0)
                        .actual<float>(1, 1));
  set_matmul_library(before);
  EXPECT_GT(MemoryLedger::instance().library_scratch(), known + 96 * 64);
}

TEST(MatmulLibraries, kernels_that_were_timed_are_taken_again) {
  if (matmul_choices().made_with.empty())
    GTEST_SKIP() << "kernels are not timed here";
  const auto multiplied = [] {
    return Operands<float>({.rows = 96, .cols = 80, .inner = 64}, Transpose::no, Transpose::no, 0).actual<float>(1, 1);
  };
  const auto wanted = multiplied();
  const MatmulChoices choices = matmul_choices();
  ASSERT_FALSE(choices.kernels.empty());
  EXPECT_FALSE(prefer_matmul_choices({"another library", choices.kernels}));
  EXPECT_TRUE(prefer_matmul_choices(choices));
  EXPECT_EQ(multiplied(), wanted);
  EXPECT_EQ(matmul_choices().kernels, choices.kernels);
  // That no kernel pays is a choice, too, which timing would not make.
  MatmulChoices none = choices;
  for (auto& [name, kernel] : none.kernels)
    kernel.clear();
  EXPECT_TRUE(prefer_matmul_choices(none));
  EXPECT_TRUE(allclose(multiplied(), wanted, 1e-5));
  EXPECT_EQ(matmul_choices().kernels, none.kernels);
  // What cannot be read is chosen anew, perhaps otherwise.
  MatmulChoices damaged = choices;
  for (auto& [name, kernel] : damaged.kernels)
    kernel = kernel.size() > 2 ? "zz" + kernel.substr(2) : "12";
  EXPECT_TRUE(prefer_matmul_choices(damaged));
  EXPECT_TRUE(allclose(multiplied(), wanted, 1e-5));
  EXPECT_NE(matmul_choices().kernels, damaged.kernels);
  EXPECT_TRUE(prefer_matmul_choices({.made_with = choices.made_with, .kernels = {}}));
}

TEST(MatmulLibraries, are_found_by_name) {
  for (const MatmulLibrary library : matmul_libraries())
    EXPECT_EQ(parse_matmul_library(to_string(library)), library);
  try {
    parse_matmul_library("mkl");
    FAIL() << "an unknown library is accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("tiled"), std::string::npos) << error.what();
  }
}

TEST(MatmulLibraries, are_described) { EXPECT_FALSE(describe_matmul_libraries().empty()); }

}  // namespace
