// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "io/own_output.hpp"
#include "io/tokens/token_file.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr OutputMark mark{.kind = "a list", .begin = "# List\n", .part = "end"};

void put(const Path& path, const std::string& text) { std::ofstream(path) << text; }
std::string text_in(const Path& path) { return read_file(path, ExitCode::data); }

}  // namespace

TEST(OwnOutput, replaces_nothing_but_its_own_kind) {
  const TemporaryDirectory directory;
  const Path path = directory / "list";
  write_output(path, mark, "# List\n1 end\n");
  write_output(path, mark, "# List\n2 end\n");
  EXPECT_EQ(text_in(path), "# List\n2 end\n");
  for (const char* const foreign : {"mine", "# Lists\n", "# List\nbegun", "#",
                                    "\x7f"
                                    "ELF"}) {
    put(path, foreign);
    EXPECT_EQ(caught([&] { require_own_output(path, mark); }).code(), ExitCode::write) << foreign;
    EXPECT_EQ(caught([&] { write_output(path, mark, "# List\nend\n"); }).code(), ExitCode::write) << foreign;
    EXPECT_EQ(text_in(path), foreign);
  }
  put(path, "");
  write_output(path, mark, "# List\nend\n");
  for (const char* const other : {"folder", "pipe", "slash/"}) {
    const Path place = directory / other;
    if (std::string(other) == "folder")
      std::filesystem::create_directory(place);
    if (std::string(other) == "pipe") {
      ASSERT_EQ(::mkfifo(place.c_str(), 0600), 0);
    }
    EXPECT_EQ(caught([&] { write_output(place, mark, "# List\nend\n"); }).code(), ExitCode::write) << other;
  }
}

TEST(OwnOutput, follows_links_and_judges_where_they_lead) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "far");
  put(directory / "far/mine", "mine");
  put(directory / "far/ours", "# List\n1 end\n");
  for (const char* const name : {"mine", "ours", "new"})
    std::filesystem::create_symlink(std::string("far/") + name, directory / name);
  EXPECT_EQ(caught([&] { write_output(directory / "mine", mark, "# List\nend\n"); }).code(), ExitCode::write);
  EXPECT_EQ(text_in(directory / "far/mine"), "mine");
  for (const char* const name : {"ours", "new"}) {
    write_output(directory / name, mark, "# List\n2 end\n");
    EXPECT_TRUE(std::filesystem::is_symlink(directory / name));
    EXPECT_EQ(text_in(directory / "far" / name), "# List\n2 end\n");
  }
  std::filesystem::create_symlink("round", directory / "round");
  EXPECT_EQ(caught([&] { write_output(directory / "round", mark, "# List\nend\n"); }).code(), ExitCode::write);
}

TEST(OwnOutput, leaves_alone_what_somebody_else_calls_partial) {
  const TemporaryDirectory directory;
  put(directory / "list.partial", "mine");
  write_output(directory / "list", mark, "# List\nend\n");
  EXPECT_EQ(text_in(directory / "list.partial"), "mine");
  EXPECT_EQ(caught([&] { TokenFileWriter(directory / "list", "byte", 256); }).code(), ExitCode::write);
  EXPECT_EQ(text_in(directory / "list.partial"), "mine");
}

TEST(OwnOutput, of_two_writers_of_a_token_file_the_later_is_told_so_and_a_killed_one_is_forgotten) {
  const TemporaryDirectory directory;
  const Path path = directory / "t.bin";
  {
    TokenFileWriter first(path, "byte", 256);
    const Error error = caught([&] { TokenFileWriter(path, "byte", 256); });
    EXPECT_EQ(error.code(), ExitCode::write);
    EXPECT_NE(std::string(error.what()).find("another process is writing"), std::string::npos) << error.what();
    first.append(std::vector<TokenId>{1, 2});
    first.finish();
  }
  EXPECT_EQ(TokenFile(path).num_tokens(), 2);
  std::filesystem::create_symlink("t.bin", directory / "link");
  put(directory / "killed", text_in(path).substr(0, 16) + std::string(240, '\0'));
  expect_error(ExitCode::data, {"never finished"}, [&] { TokenFile(directory / "killed"); });
  put(partial_file_path(path), text_in(path).substr(0, 8));  // a killed writer's, which holds no lock any more
  TokenFileWriter again(directory / "link", "byte", 256);
  again.append(std::vector<TokenId>{3});
  again.finish();
  EXPECT_EQ(TokenFile(path).num_tokens(), 1) << "the link is followed";
  EXPECT_FALSE(std::filesystem::exists(partial_file_path(path)));
}
