// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/run_facts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/value_range.hpp"
#include "io/json_fields.hpp"

namespace espalier {
namespace {

using nlohmann::json;

constexpr IntegerRange ranks_range{0, most_ranks};
constexpr IntegerRange threads_range{0, 1 << 30};  // on a GPU all that it can hold

// {"dp": {"typical_seconds": t, "slow": [{"from", "to", "seconds"}]}, ...} for the axes of several ranks.
json to_json(const LinkTimes& links) {
  json all = json::object();
  for (const Axis axis : trained_axes) {
    if (links.typical(axis) == 0)
      continue;
    json slow = json::array();
    for (const LinkTimes::Slow& link : links.slow)
      if (link.axis == axis)
        slow.push_back({{"from", link.from}, {"to", link.to}, {"seconds", link.seconds}});
    all[to_string(axis)] = {{"typical_seconds", links.typical(axis)}, {"slow", slow}};
  }
  return all;
}

LinkTimes link_times_from_json(const json& all, int ranks) {
  const IntegerRange ends{0, std::max(0, ranks - 1)};
  LinkTimes links;
  for (const Axis axis : trained_axes) {
    const json& of_axis = object_field_or_empty(all, to_string(axis));
    if (of_axis.empty())
      continue;
    links.typical_seconds[static_cast<std::size_t>(axis)] = field<double>(of_axis, "typical_seconds", seconds_range);
    for (const json& link : list_field(of_axis, "slow"))
      links.slow.push_back({axis, field<int>(link, "from", ends), field<int>(link, "to", ends),
                            field<double>(link, "seconds", seconds_range)});
  }
  return links;
}

void read_hosts(const json& json, RunFacts& facts) {
  if (!json.contains("hosts") || !json.contains("host_of_rank"))
    return;
  facts.hosts = values_field<std::string>(json, "hosts");
  if (facts.hosts.empty())
    refuse_field("hosts", json.at("hosts"), "the names of the hosts, at least one");
  const IntegerRange known{0, static_cast<Index>(facts.hosts.size()) - 1};
  facts.host_of_rank = values_field<std::size_t>(json, "host_of_rank", known);
  if (std::ssize(facts.host_of_rank) != facts.ranks)
    refuse_field("host_of_rank", json.at("host_of_rank"), fmt::format("a host for each of {} ranks", facts.ranks));
}

// Fields of one value each, for the writer and the reader: field(key, value, range...).
template <class Facts, class Field>
void each_field(Facts& facts, const Field& field) {
  field("program", facts.program);
  field("cpu", facts.cpu);
  field("ranks", facts.ranks, ranks_range);
  field("threads", facts.threads, threads_range);
  field("host_threads", facts.host_threads, threads_range);
  field("host_cores", facts.host_cores, ranks_range);
  field("gemm_library", facts.gemm_library);
  field("gemm_flops", facts.gemm_flops, FloatRange{.min = 0, .max = 1e30});
  field("fast_16_bits", facts.fast_16_bits);
  field("first_step", facts.first_step, steps_range);
}

}  // namespace

std::string RunFacts::host_of(std::size_t rank) const {
  return rank < host_of_rank.size() && host_of_rank[rank] < hosts.size() ? hosts[host_of_rank[rank]] : "unknown host";
}

json to_json(const RunFacts& facts) {
  json all = {{"hosts", facts.hosts}, {"host_of_rank", facts.host_of_rank}, {"links", to_json(facts.links)}};
  each_field(facts, [&](const char* key, const auto& value, auto...) { all[key] = value; });
  if (facts.train_tokens > 0) {
    all["train_tokens"] = facts.train_tokens;
    all["unigram_loss"] = facts.unigram_loss;
  }
  return all;
}

RunFacts run_facts_from_json(const json& json) {
  RunFacts facts;
  each_field(facts, [&](const char* key, auto& value, auto... range) { value = field_or(json, key, value, range...); });
  read_hosts(json, facts);
  facts.links = link_times_from_json(object_field_or_empty(json, "links"), facts.ranks);
  facts.train_tokens = field_or(json, "train_tokens", facts.train_tokens, count_range);
  facts.unigram_loss = field_or(json, "unigram_loss", facts.unigram_loss, FloatRange{.min = 0});
  return facts;
}

}  // namespace espalier
