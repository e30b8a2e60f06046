// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "io/markup.hpp"

namespace {

using namespace espalier;

TEST(Markup, escapes_what_html_knows) {
  EXPECT_EQ(html_escaped("<script>\"a\" & 'b'</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;");
  EXPECT_EQ(html_escaped("tree \xC3\xA4 \xE2\x82\xAC"), "tree \xC3\xA4 \xE2\x82\xAC");
  // Torn and overlong UTF-8, and control characters: none of them reaches a parser.
  EXPECT_EQ(html_escaped(std::string_view("a\xC3", 2)), "a\uFFFD");
  EXPECT_EQ(html_escaped("\xC0\xBC"), "\uFFFD\uFFFD");
  EXPECT_EQ(html_escaped("\xE2<b>"), "\uFFFD&lt;b&gt;");
  EXPECT_EQ(html_escaped(std::string_view("\0\x1B\n", 3)), "\\x00\\x1b\n");
}

}  // namespace
