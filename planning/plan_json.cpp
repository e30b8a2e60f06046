// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "io/json_by_name.hpp"
#include "planning/plan_text.hpp"
#include "planning/runnable.hpp"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

Json layout_json(const PlanLayout& layout) {
  return {{"tensor", layout.tensor},
          {"context", layout.context},
          {"data", layout.data},
          {"pipeline", layout.pipeline},
          {"virtual_stages", layout.virtual_stages},
          {"schedule", to_string(layout.schedule)},
          {"micro_batch", layout.micro_batch},
          {"global_batch", layout.global_batch},
          {"recompute", to_string(layout.recompute)},
          {"zero_stage", layout.zero_stage},
          {"sequence_parallel", layout.sequence_parallel},
          {"order", layout.data_inside_pipeline ? "tp,dp,pp" : "tp,pp,dp"},
          {"precision", to_string(layout.precision)}};
}

Json price_json(const PlanProblem& problem, const LayoutPrice& price) {
  Json json{{"layout", layout_json(price.layout)},
            {"step_seconds", price.step_seconds},
            {"error_share", price.error_share},
            {"tokens_per_second", price.tokens_per_second},
            {"mfu", price.model_flops_share},
            {"idle_share", price.idle_share},
            {"memory_bytes", price.memory_bytes},
            {"too_large", why_too_large(problem, price)},
            {"not_runnable", why_not_runnable(problem, price.layout)}};
  json["seconds"] = json_by_name<PlanPhase>(price.seconds);
  json["hidden_data_seconds"] = price.hidden_data_seconds;
  for (const MemoryByCategory& stage : price.memory)
    json["memory_by_stage"].push_back(json_by_name<Category>(stage.bytes));
  return json;
}

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::impossible: return "impossible";
    case Verdict::too_large: return "too_large";
    case Verdict::slower: return "slower";
  }
  return "unknown";
}

Json rejection_json(const Rejection& rejection) {
  return {{"layout", layout_json(rejection.layout)},
          {"verdict", to_string(rejection.verdict)},
          {"reason", rejection.reason}};
}

}  // namespace

std::string layouts_json(const PlanProblem& problem, const std::vector<PlanLayout>& layouts) {
  Json json = Json::array();
  for (const PlanLayout& layout : layouts)
    if (const std::string reason = impossible_text(problem, layout); !reason.empty())
      json.push_back({{"layout", layout_json(layout)}, {"impossible", reason}});
    else
      json.push_back(price_json(problem, price_layout(problem, layout)));
  return json.dump(1) + "\n";
}

std::string search_json(const PlanProblem& problem, const std::vector<PlainRejection>& plain,
                        const SearchResult& result) {
  Json json{{"model", problem.model.name},
            {"parameters", num_parameters(problem.model)},
            {"cluster", problem.cluster.name},
            {"considered", result.num_considered},
            {"impossible", result.num_impossible},
            {"too_large", result.num_too_large},
            {"ranking", Json::array()},
            {"plain_ideas", Json::array()},
            {"rejections", Json::array()}};
  for (const LayoutPrice& price : result.ranking)
    json["ranking"].push_back(price_json(problem, price));
  for (const auto& [name, rejection] : plain) {
    json["plain_ideas"].push_back({{"name", name}});
    json["plain_ideas"].back().update(rejection_json(rejection));
  }
  for (const Rejection& rejection : result.rejections)
    json["rejections"].push_back(rejection_json(rejection));
  return json.dump(1) + "\n";
}

std::string scaling_json(const PlanProblem& problem, const std::vector<ScalePoint>& points) {
  Json json = Json::array();
  for (const ScalePoint& point : points) {
    Json each{{"devices", point.num_devices}, {"global_batch", point.global_batch}, {"what_bends", point.what_bends}};
    if (point.price) {
      each["efficiency"] = point.efficiency;
      each.update(price_json(problem, *point.price));
    }
    json.push_back(each);
  }
  return json.dump(1) + "\n";
}

std::string common_layout_json(const std::vector<PlanProblem>& problems, const CommonLayout& common) {
  Json json{{"layout", common.layout ? layout_json(*common.layout) : Json()}, {"machines", Json::array()}};
  for (std::size_t i = 0; i < common.prices.size(); ++i)
    json["machines"].push_back({{"cluster", problems[i].cluster.name},
                                {"price", price_json(problems[i], common.prices[i])},
                                {"own_best", price_json(problems[i], common.bests[i])},
                                {"loss", common.loss(i)}});
  return json.dump(1) + "\n";
}

}  // namespace espalier
