// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/matmul_choices.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"
#include "parallel/collectives/texts.hpp"

namespace espalier {
namespace {

using nlohmann::json;

json& group_made_with(json& groups, const std::string& made_with) {
  const auto found =
      std::ranges::find_if(groups, [&](const json& group) { return group.at("made_with") == made_with; });
  if (found != groups.end())
    return *found;
  groups.push_back({{"made_with", made_with}, {"kernels", json::object()}});
  return groups.back();
}

// Of the kernels that ranks had for a matmul that of ours.
std::string kernel_of_rank(const json& kernels, const std::string& gemm, int rank) {
  const json& ranks_by_kernel = object_field(kernels, gemm.c_str());
  if (ranks_by_kernel.empty())
    refuse_field(gemm.c_str(), ranks_by_kernel, "a kernel");
  std::string ours = ranks_by_kernel.items().begin().key();
  for (const auto& [kernel, unread] : ranks_by_kernel.items()) {
    const auto ranks = values_field<int>(ranks_by_kernel, kernel.c_str(), IntegerRange{.min = 0});
    if (std::ranges::find(ranks, rank) != ranks.end())
      ours = kernel;
  }
  return ours;
}

}  // namespace

json choices_to_json(const std::vector<MatmulChoices>& by_rank) {
  json groups = json::array();
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    json& group = group_made_with(groups, by_rank[rank].made_with);
    for (const auto& [gemm, kernel] : by_rank[rank].kernels)
      group["kernels"][gemm][kernel].push_back(rank);
  }
  return groups;
}

std::map<std::string, std::string> kernels_for_rank(const json& stored, const std::string& made_with, int rank) {
  std::map<std::string, std::string> kernels;
  for (const json& group : stored) {
    const bool is_ours = field<std::string>(group, "made_with") == made_with;
    const json& of_group = object_field(group, "kernels");
    for (const auto& [gemm, unread] : of_group.items())
      if (const std::string kernel = kernel_of_rank(of_group, gemm, rank); is_ours)
        kernels.emplace(gemm, kernel);
  }
  return kernels;
}

json gather_matmul_choices(const Communicator& world) {
  const MatmulChoices ours = matmul_choices();
  if (ours.made_with.empty())  // a matter of the build, the same on all ranks
    return json::array();
  std::vector<MatmulChoices> by_rank;
  for (const std::string& text :
       gather_texts(world, json_text(json{{"made_with", ours.made_with}, {"kernels", ours.kernels}}))) {
    const json choices = parse_json(text);
    by_rank.push_back({.made_with = choices.at("made_with"), .kernels = choices.at("kernels")});
  }
  return choices_to_json(by_rank);
}

void restore_matmul_choices(const json& stored, int rank, const std::function<void(const std::string&)>& note) {
  const std::string made_with = matmul_choices().made_with;
  if (stored.empty() || made_with.empty())
    return;
  const auto kernels = kernels_for_rank(stored, made_with, rank);
  if (!kernels.empty())
    prefer_matmul_choices({.made_with = made_with, .kernels = kernels});
  else
    note(fmt::format(
        "the matmul kernels were chosen with {} and are chosen again here, with {}: results may differ by rounding",
        field<std::string>(stored.front(), "made_with"), made_with));
}

}  // namespace espalier
