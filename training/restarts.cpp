// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/restarts.hpp"

#include <fmt/format.h>

namespace espalier {
namespace {

constexpr const char* restarts_key = "restarts";

std::optional<Restarts> restarts_in(const RunRecord& record) {
  try {
    const nlohmann::json& json = record.details.at(restarts_key);
    return Restarts{json.at("from_step").get<Index>(), json.at("fruitless").get<Index>()};
  } catch (const nlohmann::json::exception&) {  // of an older program, or edited
    return std::nullopt;
  }
}

bool ended_well(const RunRecord& record) { return record.state == "completed" || record.state == "preempted"; }

}  // namespace

Restarts count_restarts(const std::optional<RunRecord>& previous, Index from_step) {
  Restarts restarts{.from_step = from_step};
  if (!previous || ended_well(*previous))
    return restarts;
  if (const auto before = restarts_in(*previous); before && from_step <= before->from_step)
    restarts.fruitless = before->fruitless + 1;
  return restarts;
}

nlohmann::json to_json(const Restarts& restarts) {
  return {{restarts_key, {{"from_step", restarts.from_step}, {"fruitless", restarts.fruitless}}}};
}

void require_progress(const Restarts& restarts, const Path& run_directory, const std::optional<RunRecord>& previous) {
  if (restarts.fruitless < Restarts::most_fruitless)
    return;
  throw Error(
      ExitCode::no_progress,
      {.what = fmt::format("{} starts in a row have saved no checkpoint: do not requeue", restarts.fruitless),
       .where = run_directory.string(),
       .got = fmt::format("each went on after step {}; the last one: {}", restarts.from_step,
                          previous->cause.empty() ? "ended without signing off" : previous->cause),
       .wanted = "a new checkpoint",
       .todo = "find out why (run.json, metrics.jsonl, the log; checkpoint.interval may be longer than the job); "
               "then start once with --retry"});
}

}  // namespace espalier
