// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/checkpoint_names.hpp"

#include <fmt/format.h>

#include <charconv>

namespace espalier {
namespace {

// The digits of PREFIX00003SUFFIX, at least so many.
std::optional<Index> number_in(std::string_view name, std::string_view prefix, std::string_view suffix,
                               std::size_t digits) {
  if (name.size() < prefix.size() + digits + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix))
    return std::nullopt;
  const std::string_view text = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  Index number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && rest == text.data() + text.size() && text.front() != '-';
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace

std::string shard_name(Index rank) { return fmt::format("rank-{:05}.h5", rank); }

bool is_shard_name(std::string_view name) { return number_in(name, "rank-", ".h5", 5).has_value(); }

std::string step_name(Index step) { return fmt::format("step-{:08}", step); }

std::optional<Index> step_in(std::string_view name) { return number_in(name, "step-", "", 8); }

std::string tensor_name(std::string_view group, std::string_view parameter) {
  return fmt::format("{}/{}", group, parameter);
}

}  // namespace espalier
