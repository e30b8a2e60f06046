// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <stdexcept>

#include "core/error.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

constexpr std::uint32_t max_match_steps = 10'000'000;
constexpr std::uint32_t max_match_kilobytes = 65536;

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

pcre2_match_data& match_data_of_thread() {
  static thread_local const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create(1, nullptr));  // the whole match
  if (data == nullptr)
    throw std::bad_alloc();
  return *data;
}

std::string pcre2_message(int code) {
  unsigned char text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  bool has_jit = false;
  std::string pattern;

  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    pcre2_code_free(code);
    pcre2_match_context_free(limits);
  }
};

Regex::Regex(std::string_view pattern, RegexDialect dialect) : compiled_(std::make_unique<Compiled>()) {
  if (pattern.size() > longest_pattern)
    throw std::runtime_error(fmt::format("a pattern of {} bytes, wanted at most {}", pattern.size(), longest_pattern));
  compiled_->pattern = pattern;
  const std::string ours = pcre2_pattern(pattern, dialect);
  std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  if (dialect == RegexDialect::oniguruma)
    options |= PCRE2_MULTILINE;
  if (dialect == RegexDialect::fancy_regex)
    options |= PCRE2_DOLLAR_ENDONLY;
  if (dialect == RegexDialect::plain_text)
    options = PCRE2_UTF | PCRE2_LITERAL;
  int error = 0;
  std::size_t at = 0;
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(ours.data()), ours.size(), options, &error, &at, nullptr);
  if (compiled_->code == nullptr)
    throw std::runtime_error(fmt::format("the pattern {:.200}: {} at byte {}", ours, pcre2_message(error), at));
  compiled_->limits = pcre2_match_context_create(nullptr);
  if (compiled_->limits == nullptr)
    throw std::bad_alloc();
  pcre2_set_match_limit(compiled_->limits, max_match_steps);
  pcre2_set_depth_limit(compiled_->limits, max_match_steps);
  pcre2_set_heap_limit(compiled_->limits, max_match_kilobytes);
  compiled_->has_jit = pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE) == 0;  // else it is interpreted
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Regex::Match Regex::find(std::string_view text, std::size_t from) const {
  pcre2_match_data& data = match_data_of_thread();
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  while (from < text.size()) {
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (compiled_->has_jit)
      found = pcre2_jit_match(compiled_->code, subject, text.size(), from, 0, &data, compiled_->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT || found == PCRE2_ERROR_JIT_BADOPTION)
      // The compiled code has a small stack of its own. The interpreter takes its stack from the heap.
      found = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK, &data,
                          compiled_->limits);
    if (found == PCRE2_ERROR_NOMATCH)
      break;
    if (found < 0)
      throw Error(ExitCode::data, {.what = "a tokenizer's pattern takes too many steps on a text",
                                   .where = fmt::format("byte {} of a text of {}", from, text.size()),
                                   .got = fmt::format("{} for {:.200}", pcre2_message(found), compiled_->pattern),
                                   .wanted = fmt::format("a match within {} steps", max_match_steps),
                                   .todo = "use another tokenizer, or text with shorter lines"});
    const std::size_t* const match = pcre2_get_ovector_pointer(&data);
    if (match[1] > match[0])
      return {match[0], match[1]};
    from = match[0] < text.size() ? match[0] + character_bytes(text.substr(match[0])) : text.size();
  }
  return {text.size(), text.size()};
}

}  // namespace espalier
