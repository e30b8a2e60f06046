// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/rank_file_name.hpp"

#include <fmt/format.h>

#include <charconv>

namespace espalier {
namespace {

constexpr std::string_view prefix = "rank-";

}  // namespace

std::string rank_file_name(Index rank, std::string_view ending) {
  return fmt::format("{}{:05}{}", prefix, rank, ending);
}

std::optional<Index> rank_in(std::string_view name, std::string_view ending) {
  Index rank = -1;
  if (name.starts_with(prefix))
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), rank);
  return rank >= 0 && name == rank_file_name(rank, ending) ? std::optional(rank) : std::nullopt;
}

}  // namespace espalier
