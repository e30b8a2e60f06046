// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/same_launch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <vector>

#include "core/error.hpp"
#include "io/hash.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"

namespace espalier {
namespace {

constexpr std::size_t hash_size = 32;

void append(std::string& field, const std::string& text) { field += (field.empty() ? "" : "; ") + text; }

std::string next_line(std::istringstream& stream, std::string& section) {
  std::string line;
  if (!std::getline(stream, line))
    return "(no line)";
  if (line.starts_with("["))
    section = line;
  return line;
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1)
      ++last;
    runs.push_back(last == i ? fmt::format("{}", ranks[i]) : fmt::format("{} to {}", ranks[i], ranks[last]));
    i = last + 1;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(runs, ", "));
}

std::vector<int> different_ranks(const Communicator& world, const std::string& text) {
  const std::string own = xxh3_128(text.data(), text.size());
  std::string all(hash_size * static_cast<std::size_t>(world.size()), '\0');
  all_gather(world, std::span<char>(all.data(), all.size()), std::span<const char>(own.data(), own.size()));
  std::vector<int> different;
  for (int rank = 1; rank < world.size(); ++rank)
    if (all.compare(hash_size * static_cast<std::size_t>(rank), hash_size, all, 0, hash_size) != 0)
      different.push_back(rank);
  return different;
}

DifferingLines first_differing_lines(const std::string& first, const std::string& second) {
  std::istringstream first_stream(first);
  std::istringstream second_stream(second);
  std::string first_section;
  std::string second_section;
  const auto in_section = [](const std::string& line, const std::string& section) {
    return section.empty() || section == line ? line : fmt::format("{} in {}", line, section);
  };
  while (first_stream || second_stream) {
    const std::string a = next_line(first_stream, first_section);
    const std::string b = next_line(second_stream, second_section);
    if (a != b)
      return {in_section(a, first_section), in_section(b, second_section)};
  }
  return {};
}

void require_same_launch(const Communicator& world, const std::string& resolved_config, const std::string& program) {
  const std::vector<int> other_config = different_ranks(world, resolved_config);
  const std::vector<int> other_program = different_ranks(world, program);
  if (other_config.empty() && other_program.empty())
    return;
  ErrorReport report{.what = "the ranks were not started in the same way"};
  if (!other_config.empty()) {
    const int rank = other_config.front();
    const std::string wanted = broadcast_text(world, resolved_config, 0);
    const DifferingLines lines = first_differing_lines(wanted, broadcast_text(world, resolved_config, rank));
    append(report.where, fmt::format("{} with another config than rank 0", ranks_text(other_config)));
    append(report.got, fmt::format("{} on rank {}", lines.second, rank));
    append(report.wanted, fmt::format("{} as on rank 0", lines.first));
    append(report.todo, "give every rank the same config file and overrides");
  }
  if (!other_program.empty()) {
    const int rank = other_program.front();
    const std::string wanted = broadcast_text(world, program, 0);
    append(report.where, fmt::format("{} from another program file than rank 0", ranks_text(other_program)));
    append(report.got, fmt::format("program {} on rank {}", broadcast_text(world, program, rank), rank));
    append(report.wanted, fmt::format("program {} as on rank 0", wanted));
    append(report.todo, "start one build on all hosts (compare `espalier --version`)");
  }
  throw Error(ExitCode::usage, std::move(report));
}

}  // namespace espalier
