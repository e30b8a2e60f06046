// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <new>

#include "core/error.hpp"

using namespace espalier;

namespace {

TEST(Error, is_one_block_without_empty_lines) {
  const Error error(ExitCode::data, {.what = "a token is out of range", .got = "300", .todo = "pack again"});
  EXPECT_STREQ(error.what(), "a token is out of range\n  got:    300\n  do:     pack again");
  EXPECT_EQ(error.code(), ExitCode::data);
}

TEST(Error, assertions_name_condition_place_and_message) {
  try {
    ESPALIER_ASSERT(1 + 1 == 3, "arithmetic has changed");
    FAIL();
  } catch (const std::logic_error& error) {
    const std::string text = error.what();
    for (const char* part : {"arithmetic has changed", "1 + 1 == 3", "test_error.cpp:"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Error, any_exception_becomes_one) {
  const Error own = error_from(Error(ExitCode::data, {.what = "a", .got = "b"}), ExitCode::write);
  EXPECT_EQ(own.code(), ExitCode::data);
  EXPECT_EQ(own.report().got, "b");
  EXPECT_EQ(error_from(std::bad_alloc(), ExitCode::write).code(), ExitCode::memory);
  const std::runtime_error kokkos("Kokkos failed to allocate memory for label \"x\"");
  EXPECT_EQ(error_from(kokkos, ExitCode::write).code(), ExitCode::memory);
  EXPECT_EQ(error_from(std::logic_error("broken"), ExitCode::checkpoint).code(), ExitCode::defect) << "our own mistake";
  const Error other = error_from(std::runtime_error("no such luck"), ExitCode::checkpoint);
  EXPECT_EQ(other.code(), ExitCode::checkpoint);
  EXPECT_STREQ(other.what(), "no such luck");
}

TEST(Error, what_the_system_refuses_is_no_defect) {
  const auto code_of = [](const auto& use) {
    try {
      use();
    } catch (const std::exception& error) {
      return error_from(error, ExitCode::defect).code();
    }
    return ExitCode::ok;
  };
  using std::filesystem::filesystem_error;
  const auto file_error = [](std::errc code) {
    throw filesystem_error("stat", "/nowhere", std::make_error_code(code));
  };
  EXPECT_EQ(code_of([&] { std::filesystem::directory_iterator("/nowhere/at/all"); }), ExitCode::usage);
  EXPECT_EQ(code_of([&] { file_error(std::errc::permission_denied); }), ExitCode::usage);
  EXPECT_EQ(code_of([&] { file_error(std::errc::no_space_on_device); }), ExitCode::write);
  EXPECT_EQ(code_of([] { throw std::system_error(EBADF, std::generic_category()); }), ExitCode::write);
  EXPECT_EQ(code_of([] { throw std::system_error(EAGAIN, std::generic_category(), "thread"); }), ExitCode::memory);
  EXPECT_EQ(code_of([] {
              std::ifstream file("/nowhere/at/all");
              file.exceptions(std::ios::failbit);
            }),
            ExitCode::write);
  EXPECT_EQ(code_of([] { std::string(std::string().max_size() + 1, 'x'); }), ExitCode::memory) << "an absurd size";
}

}  // namespace
