// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"
#include "tests/support/world.hpp"

namespace espalier::test {
namespace {

std::string text_of(int rank) {
  return std::string(static_cast<std::size_t>(rank * 700), static_cast<char>('a' + rank));
}

TEST(Texts, OfAnyLengthReachRankZeroInOrder) {
  const std::vector<std::string> texts = gather_texts(world(), text_of(world().rank()));  // rank 0's is empty
  if (world().rank() != 0) {
    EXPECT_TRUE(texts.empty());
    return;
  }
  ASSERT_EQ(static_cast<int>(texts.size()), world().size());
  for (int rank = 0; rank < world().size(); ++rank)
    EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
}

TEST(Texts, AreBroadcastFromAnyRank) {
  for (int root = 0; root < world().size(); ++root)
    EXPECT_EQ(broadcast_text(world(), text_of(world().rank()), root), text_of(root));
}

TEST(Texts, SeveralAreBroadcastFromAnyRank) {
  const auto texts_of = [](int rank) {  // as many as the rank's number, an empty one and one with a line break
    std::vector<std::string> texts(static_cast<std::size_t>(rank), text_of(rank) + "\n");
    if (rank > 1)
      texts[1].clear();
    return texts;
  };
  for (int root = 0; root < world().size(); ++root)
    EXPECT_EQ(broadcast_texts(world(), texts_of(world().rank()), root), texts_of(root));
}

TEST(Agreement, SuccessOfAllIsSuccess) {
  int runs = 0;
  attempt_together(world(), ExitCode::write, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST(Agreement, TheLowestFailureIsThrownOnAllRanks) {
  const int last = world().size() - 1;
  for (int first_failing = 0; first_failing <= last; ++first_failing) {
    try {
      attempt_together(world(), ExitCode::checkpoint, [&] {
        if (world().rank() >= first_failing)
          throw Error(ExitCode::write, {.what = "cannot write", .where = "/f", .got = "ENOSPC", .todo = "free space"});
      });
      ADD_FAILURE() << "nothing was thrown on rank " << world().rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::write);
      EXPECT_EQ(error.report().what, "cannot write");
      EXPECT_EQ(error.report().got, "ENOSPC");
      EXPECT_EQ(error.report().wanted, "");
      EXPECT_EQ(error.report().todo, "free space");
      EXPECT_EQ(error.report().where, world().size() == 1 ? "/f" : "/f, rank " + std::to_string(first_failing));
    }
  }
  barrier(world());  // all ranks are still in step
}

template <class Exception>
void expect_code(ExitCode wanted) {
  try {
    attempt_together(world(), ExitCode::checkpoint, [&] {
      if (world().rank() == world().size() - 1)
        throw Exception("broken");
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), wanted);
    EXPECT_EQ(error.report().what, "broken");
  }
}

TEST(Agreement, WhatIsNoErrorOfOursGetsTheCodeGiven) { expect_code<std::runtime_error>(ExitCode::checkpoint); }

// A broken assertion must not pass for a damaged checkpoint, which a start would pass over.
TEST(Agreement, MistakesOfOursStayDefects) { expect_code<std::logic_error>(ExitCode::defect); }

}  // namespace
}  // namespace espalier::test
