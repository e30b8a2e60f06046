// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <type_traits>

#include "io/json_by_name.hpp"
#include "io/pack/json_text.hpp"
#include "planning/interval.hpp"
#include "planning/layout_limits.hpp"
#include "planning/mitigation.hpp"
#include "planning/no_layout.hpp"
#include "planning/plan_text.hpp"
#include "planning/run_cost.hpp"
#include "planning/runnable.hpp"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json word_or_number(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value>)
    return value;
  else
    return to_string(value);
}

// The keys of --fix and --layout, and what these do not have.
Json layout_json(const Layout& layout) {
  Json json;
  each_choice([&](const char* key, auto, auto chosen) { json[key] = word_or_number(layout.*chosen); });
  json.update({{"global_batch", layout.global_batch}, {"precision", to_string(layout.precision)}});
  return json;
}

Json interval_json(const Interval& interval) { return {{"low", interval.low}, {"high", interval.high}}; }

Json predicted_json(const Predicted& predicted) {
  return {{"value", predicted.value}, {"low", predicted.interval.low}, {"high", predicted.interval.high}};
}

// What the cluster states no price or power for is null.
Json run_json(const PlanProblem& problem, const RunCost& run) {
  return {{"tokens", problem.num_tokens},
          {"steps", run.steps},
          {"days", predicted_json(run.days)},
          {"device_hours", predicted_json(run.device_hours)},
          {"cost", run.cost ? predicted_json(*run.cost) : Json()},
          {"currency", problem.cluster.currency},
          {"energy_kwh", run.energy ? predicted_json(*run.energy) : Json()}};
}

Json known(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json price_json(const PlanProblem& problem, const LayoutPrice& price) {
  Json json{{"layout", layout_json(price.layout)},
            {"step_seconds", price.step_seconds},
            {"step_interval", interval_json(price.step_interval)},
            {"tokens_per_second", price.tokens_per_second},
            {"mfu", known(price.flops_shares.mfu)},
            {"gemm_fraction", known(price.flops_shares.gemm_fraction)},
            {"idle_share", price.idle_share},
            {"memory_bytes", price.memory_bytes},
            {"memory_interval", interval_json(price.memory_interval)},
            {"run", problem.num_tokens > 0 ? run_json(problem, run_cost(problem, price)) : Json()},
            {"too_large", why_too_large(problem, price)},
            {"not_runnable", why_not_runnable(problem, price.layout)}};
  json["seconds"] = json_by_name<Phase>(price.seconds.seconds);
  json["recompute_seconds"] = price.recompute_seconds;
  json["overlapped_data_seconds"] = price.overlapped_data_seconds;
  for (const MemoryByCategory& stage : price.memory)
    json["memory_by_stage"].push_back(json_by_name<Category>(stage.bytes));
  return json;
}

// The machine, and what of it is free.
Json machine_json(const PlanProblem& problem) {
  const Cluster& cluster = problem.cluster;
  return {{"cluster", cluster.name},
          {"device", cluster.device.name},
          {"unmeasured", unfitted_text(cluster.device)},
          {"nodes", cluster.num_nodes},
          {"devices_per_node", cluster.devices_per_node},
          {"device_memory_bytes", cluster.device.memory_bytes},
          {"free_bytes", free_bytes(problem)}};
}

Json model_json(const PlanProblem& problem) {
  return {{"model", problem.model_name},
          {"parameters", num_parameters(problem.model)},
          {"sequence_length", problem.sequence_length}};
}

Json size_json(const LayoutSpace& space) {
  return {{"devices", space.num_devices}, {"global_batch", space.global_batch}};
}

Json goals_json(const LayoutPrice& price, const Goal& goal) {
  Json json = Json::array();
  for (const GoalResult& each : goal_results(price, goal))
    json.push_back({{"asked", each.asked},
                    {"met", each.is_met()},
                    {"reached", each.reached},
                    {"margin", each.margin},
                    {"nearest", each.nearest}});
  return json;
}

Json curve_goals_json(const std::vector<ScalePoint>& points, const Goal& goal) {
  Json json = Json::array();
  for (const CurveGoal& each : goals_on_curve(points, goal))
    json.push_back({{"asked", each.asked},
                    {"holds_from", each.holds_from ? Json(*each.holds_from) : Json()},
                    {"holds_at", each.holds_at},
                    {"nearest", each.nearest.nearest},
                    {"nearest_devices", each.nearest_devices}});
  return json;
}

Json points_json(const PlanProblem& problem, const std::vector<ScalePoint>& points, const Goal& goal) {
  Json json = Json::array();
  for (const ScalePoint& point : points) {
    Json each{{"devices", point.num_devices}, {"global_batch", point.global_batch}, {"limited_by", point.limited_by}};
    if (point.price) {
      each["efficiency"] = point.efficiency;
      each["goals"] = goals_json(*point.price, goal);
      each.update(price_json(problem, *point.price));
    }
    json.push_back(each);
  }
  return json;
}

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::impossible: return "impossible";
    case Verdict::too_large: return "too_large";
    case Verdict::slower: return "slower";
    case Verdict::alike: return "alike";
    case Verdict::not_searched: return "not_searched";
  }
  return "unknown";
}

Json rejection_json(const Rejection& rejection) {
  return {{"layout", layout_json(rejection.layout)},
          {"verdict", to_string(rejection.verdict)},
          {"reason", rejection.reason}};
}

Json error_json(const ErrorReport& error) {
  return {
      {"what", error.what}, {"where", error.where}, {"got", error.got}, {"wanted", error.wanted}, {"do", error.todo}};
}

// What was asked, how many layouts were looked at, and all that was not chosen.
Json search_head_json(const PlanProblem& problem, const LayoutSpace& space, const std::vector<PlainRejection>& plain,
                      const SearchResult& result, std::size_t most) {
  Json json = model_json(problem);
  json.update(machine_json(problem));
  json.update(size_json(space));
  json.update({{"considered", result.num_considered},
               {"impossible", result.num_impossible},
               {"too_large", result.num_too_large},
               {"goals", Json::array()},
               {"ranking", Json::array()},
               {"plain_ideas", Json::array()},
               {"rejections", Json::array()}});
  for (const auto& [name, rejection] : plain) {
    json["plain_ideas"].push_back({{"name", name}});
    json["plain_ideas"].back().update(rejection_json(rejection));
  }
  for (std::size_t i = 0; i < result.rejections.size() && i < most; ++i)
    json["rejections"].push_back(rejection_json(result.rejections[i]));
  return json;
}

Json joint_json(const std::vector<PlanProblem>& problems, const JointSearch& search) {
  if (!search.job)
    return {{"impossible", search.why_none}};
  const JointJob& job = *search.job;
  const std::optional<RunCost> run = job.run_cost(problems);
  return {{"layout", layout_json(job.layout)},
          {"first", problems[static_cast<std::size_t>(job.first)].cluster.name},
          {"first_stages", job.first_stages},
          {"layers", {job.layers_on(0), job.layers_on(1)}},
          {"step_seconds", job.step_seconds},
          {"step_interval", interval_json(job.step_interval)},
          {"tokens_per_second", job.tokens_per_second},
          {"link_seconds", job.link_seconds},
          {"memory_bytes", job.memory_bytes},
          {"run", run ? run_json(problems.front(), *run) : Json()}};
}

// What the memo says of the recommended layout beside its price.
Json reasons_json(const PlanProblem& problem, const LayoutSpace& space, const LayoutPrice& best) {
  const auto phase = [&](const Bottleneck& of) { return Json{{"name", of.name()}, {"seconds", of.seconds(best)}}; };
  Json json{{"state_bytes", all_state_bytes(problem.model, best.layout.precision)},
            {"bottleneck", phase(bottleneck(best))},
            {"longest_beside_compute", phase(longest_beside_compute(best))},
            {"changes", Json::array()}};
  const auto add = [&](const Mitigation& change) {
    json["changes"].push_back({{"change", change.change},
                               {"gain", change.gain},
                               {"step_seconds", change.price.step_seconds},
                               {"seconds", json_by_name<Phase>(change.price.seconds.seconds)},
                               {"memory_bytes", change.price.memory_bytes},
                               {"obstacle", change.obstacle},
                               {"condition", change.condition},
                               {"not_runnable", change.lacks}});
  };
  for (const Mitigation& change : mitigations(problem, space, best))
    add(change);
  if (const std::optional<Mitigation> machine = better_machine(problem, best))
    add(*machine);
  return json;
}

}  // namespace

std::string layouts_json(const PlanProblem& problem, const LayoutSpace& space, const std::vector<Layout>& layouts) {
  Json json = model_json(problem);
  json.update(machine_json(problem));
  json.update(size_json(space));
  json["layouts"] = Json::array();
  for (const Layout& layout : layouts)
    if (const std::string reason = impossible_text(problem, layout); !reason.empty())
      json["layouts"].push_back({{"layout", layout_json(layout)}, {"impossible", reason}});
    else
      json["layouts"].push_back(price_json(problem, price_layout(problem, layout)));
  return json_text(json, 1) + "\n";
}

std::string search_json(const PlanProblem& problem, const LayoutSpace& space, const Goal& goal,
                        const std::vector<PlainRejection>& plain, const SearchResult& result, std::size_t most,
                        const std::vector<ScalePoint>& points) {
  Json json = search_head_json(problem, space, plain, result, most);
  json["goals"] = goals_json(result.ranking.front(), goal);
  if (!points.empty()) {
    json["curve_goals"] = curve_goals_json(points, goal);
    json["points"] = points_json(problem, points, goal);
  }
  for (std::size_t i = 0; i < result.ranking.size() && i < most; ++i)
    json["ranking"].push_back(price_json(problem, result.ranking[i]));
  json.update(reasons_json(problem, space, result.ranking.front()));
  json["num_alike"] = result.num_alike;
  json["resolution"] = step_resolution(problem.cluster);
  json["fewer_devices"] = result.fewer_devices ? price_json(problem, *result.fewer_devices) : Json();
  json["not_built"] = Json();
  if (result.not_built) {
    json["not_built"] = price_json(problem, *result.not_built);
    json["not_built"]["gain"] = result.gain_of_not_built();
  }
  return json_text(json, 1) + "\n";
}

std::string no_layout_json(const PlanProblem& problem, const LayoutSpace& space, const ErrorReport& error,
                           const std::vector<PlainRejection>& plain, const SearchResult& result, std::size_t most) {
  Json json = search_head_json(problem, space, plain, result, most);
  json["no_layout"] = error_json(error);
  const Index devices = result.num_too_large > 0 ? fewest_devices(problem, space) : 0;
  json["fewest_devices"] = devices > 0 ? Json(devices) : Json();
  return json_text(json, 1) + "\n";
}

std::string scaling_json(const PlanProblem& problem, const std::vector<ScalePoint>& points, const Goal& goal) {
  Json json = model_json(problem);
  json.update(machine_json(problem));
  json.erase("nodes");  // a curve has more than one number of them
  json["curve_goals"] = curve_goals_json(points, goal);
  json["points"] = points_json(problem, points, goal);
  return json_text(json, 1) + "\n";
}

std::string common_layout_json(const std::vector<PlanProblem>& problems, const LayoutSpace& space,
                               const CommonLayout& common, const Goal& goal, const JointSearch* joint,
                               const ErrorReport* error) {
  Json json = model_json(problems.front());
  json.update({{"global_batch", space.global_batch},
               {"layout", common.layout ? layout_json(*common.layout) : Json()},
               {"machines", Json::array()},
               {"comparison", comparison_sentences(problems, common)},
               {"joint", joint ? joint_json(problems, *joint) : Json()}});
  if (common.layout)
    json["devices"] = common.layout->num_devices();
  for (std::size_t i = 0; i < problems.size(); ++i) {
    Json machine = machine_json(problems[i]);
    machine["devices"] = problems[i].cluster.num_devices();
    if (common.has(i) && !common.bests.empty()) {
      LayoutSpace own = space;
      own.num_devices = problems[i].cluster.num_devices();
      machine.update({{"price", price_json(problems[i], common.price(i))},
                      {"own_best", price_json(problems[i], common.bests[i])},
                      {"loss", common.layout ? Json(common.loss(i)) : Json()},
                      {"goals", goals_json(common.price(i), goal)}});
      machine.update(reasons_json(problems[i], own, common.price(i)));
    } else {
      machine.update({{"price", Json()}, {"own_best", Json()}, {"why_none", common.why_none[i]}});
    }
    json["machines"].push_back(machine);
  }
  if (error)
    json["no_layout"] = error_json(*error);
  return json_text(json, 1) + "\n";
}

}  // namespace espalier
