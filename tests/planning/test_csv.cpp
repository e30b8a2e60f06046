// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "tests/published/csv.hpp"

using namespace espalier;
using testing::HasSubstr;

namespace {

TEST(Csv, reads_quotes_commas_and_line_ends) {
  const auto rows = parse_csv("id,notes,x\r\na,\"one, \"\"two\"\"\nthree\",4.5\n\nb,,\n", "t.csv").rows;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].text("notes"), "one, \"two\"\nthree");
  EXPECT_EQ(*rows[0].number("x"), 4.5);
  EXPECT_EQ(rows[0].line(), 2u);
  EXPECT_EQ(rows[1].line(), 5u);
  EXPECT_FALSE(rows[1].has("x"));
  EXPECT_FALSE(rows[1].number("x"));
  EXPECT_EQ(rows[1].text("missing column"), "");
}

TEST(Csv, short_rows_lack_their_last_columns) {
  const auto rows = parse_csv("id,x,y\na,1\n", "t.csv").rows;
  EXPECT_TRUE(rows[0].has("x"));
  EXPECT_FALSE(rows[0].has("y"));
}

TEST(Csv, says_where_it_is_wrong) {
  try {
    parse_csv("id,x\na,1\nb,\"2\n", "t.csv");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_EQ(error.report().where, "t.csv:3");
  }
  EXPECT_EQ(parse_csv("id,x\na,1,2,3\n", "t.csv").rows[0].num_excess(), 2u);
  EXPECT_THROW(parse_csv("id,x\na,1x\n", "t.csv").rows[0].number("x"), Error);
  EXPECT_THROW(parse_csv("id,x\na,inf\n", "t.csv").rows[0].number("x"), Error);
  try {
    parse_csv("id,x\na,four\n", "t.csv").rows[0].number("x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.report().where, "t.csv:2");
    EXPECT_EQ(error.report().got, "four");
    EXPECT_THAT(error.report().todo, HasSubstr("column x"));
  }
}

TEST(Csv, blank_records_and_empty_fields_at_the_end_are_nothing) {
  const CsvTable table = parse_csv("x, id ,\r\n\r\n1,a,,\r\n,,\r\n  \r\n2,\"b\"", "t.csv");
  EXPECT_EQ(table.columns, (std::vector<std::string>{"x", "id", ""}));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].text("id"), "a");
  EXPECT_EQ(table.rows[1].text("id"), "b");
  EXPECT_TRUE(parse_csv("", "t.csv").columns.empty());
}

TEST(Csv, words_for_what_is_not_known_are_absent) {
  const CsvTable table = parse_csv("a,b,c,d,e,f\nn/a,-,NaN,?,none,Unknown\n", "t.csv");
  for (const char* const column : {"a", "b", "c", "d", "f"})
    EXPECT_FALSE(table.rows[0].has(column)) << column;
  EXPECT_EQ(table.rows[0].text("e"), "none");  // a word for recomputation
}

TEST(Csv, a_column_has_one_name) {
  try {
    parse_csv("id,x,id\na,1,b\n", "t.csv");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.report().what, "a column is named twice");
    EXPECT_EQ(error.report().got, "id");
  }
}

}  // namespace
