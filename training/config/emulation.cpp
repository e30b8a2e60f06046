// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/config/emulation.hpp"

#include <filesystem>
#include <sstream>

#include "parallel/mesh/reduction_groups.hpp"
#include "training/config/config_visitors.hpp"

namespace espalier {
namespace {

template <class Emulate, class Visitor>
void visit_emulate(Emulate& e, Visitor&& v) {
  v.section("emulate", "Imitates another machine: operations and messages take at least these times.");
  v.seconds("forward", e.forward, {0, 1e6}, "of one micro-batch through a chunk");
  v.seconds("backward_input", e.backward_input, {0, 1e6}, "of one micro-batch through a chunk");
  v.seconds("backward_weight", e.backward_weight, {0, 1e6}, "of one micro-batch through a chunk");
  v.seconds("optimizer", e.optimizer, {0, 1e6}, "of one update");
  v.seconds("latency", e.latency, {0, 1e6}, "of a message within a node");
  v.number("bandwidth", e.bandwidth, {0, 1e18}, "bytes per second of a rank's link within its node; 0: unlimited");
  v.seconds("node_latency", e.node_latency, {0, 1e6}, "of a message between nodes");
  v.number("node_bandwidth", e.node_bandwidth, {0, 1e18}, "the same to other nodes");
  v.integer("ranks_per_node", e.ranks_per_node, {0, most_ranks}, "0: all ranks on one node");
  v.integers("part_percent", e.part_percent, {1, 100000},
             "of these times, for each chunk in forward order; []: 100 each");
  v.integers("backward_percent", e.backward_percent, {1, 100000}, "the same for backward; []: as part_percent");
  v.number("message_scale", e.message_scale, {0, 1e18}, "factor of the bytes of messages");
  v.number("tensor_message_scale", e.tensor_message_scale, {0, 1e18}, "further factor on the tensor axis");
  v.number("data_message_scale", e.data_message_scale, {0, 1e18},
           "further factor of gradients, except for norms shared by tensor ranks");
  v.number("pipeline_message_scale", e.pipeline_message_scale, {0, 1e18}, "further factor between stages");
  v.boolean("per_layer", e.per_layer, "forward and backward are times of a layer, not of a chunk");
  v.seconds("data", e.data, {0, 1e6}, "of reading the tokens of a step");
  v.integer("planned_microbatches", e.planned_microbatches, {0},
            "rehearsals: micro-batches of the plan; 0: no rehearsal");
  v.integer("slow_rank", e.slow_rank, {-1, most_ranks}, "a fault: this rank computes slower; -1: none");
  v.number("slow_factor", e.slow_factor, {1, 1e6}, "factor of its forward and backward times");
  v.integers("delayed_link", e.delayed_link, {0, most_ranks},
             "a fault: messages from the first rank to the second are late; []: none");
  v.seconds("delay", e.delay, {0, 1e6}, "time by which they are late");
}

// A file may have a name with "=".
bool is_setting(const std::string& text) {
  std::error_code missing;
  return text.find('=') != std::string::npos && !std::filesystem::exists(text, missing);
}

double reduction_scale(const RunConfig::Emulate& emulate, const GroupKey& group) {
  return has_message_scale(group) ? emulate.data_message_scale : 1;
}

}  // namespace

RunConfig::Emulate read_emulation(const std::vector<std::string>& given) {
  const ConfigKind kind{.name = "emulation", .help = "`espalier train --keys --emulate forward=0` explains every key"};
  RunConfig::Emulate emulate;
  for (const std::string& each : given) {
    ConfigReader reader = is_setting(each) ? ConfigReader("", "--emulate", {"emulate." + each}, kind)
                                           : ConfigReader(Path(each), {}, kind);
    read_emulate_keys(reader, emulate);
    reader.finish();
  }
  return emulate;
}

void read_emulate_keys(ConfigReader& reader, RunConfig::Emulate& emulate) {
  visit_emulate(emulate, ReadingVisitor(reader));
}

std::string all_emulate_keys(const RunConfig::Emulate& emulate) {
  WritingVisitor writer;
  visit_emulate(emulate, writer);
  return writer.result();
}

std::string changed_emulate_keys(const RunConfig::Emulate& emulate) {
  if (emulate == RunConfig::Emulate{})
    return "";
  const std::string usual = all_emulate_keys();
  std::istringstream lines(all_emulate_keys(emulate));
  std::string text;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with('[') || usual.find("\n" + line + "\n") == std::string::npos)
      text += line + "\n";
  return text;
}

double emulated_seconds(const RunConfig::Emulate& emulate, OperationKind kind, Index layers, int part) {
  const std::vector<Index>& percent = kind == OperationKind::forward || emulate.backward_percent.empty()
                                          ? emulate.part_percent
                                          : emulate.backward_percent;
  const double share = percent.empty() ? 1 : static_cast<double>(percent.at(static_cast<std::size_t>(part))) / 100;
  const double times = share * (emulate.per_layer ? static_cast<double>(layers) : 1);
  switch (kind) {
    case OperationKind::forward: return times * emulate.forward;
    case OperationKind::backward: return times * (emulate.backward_input + emulate.backward_weight);
    case OperationKind::backward_input: return times * emulate.backward_input;
    case OperationKind::backward_weight: return times * emulate.backward_weight;
    default: return 0;
  }
}

double slow_factor(const RunConfig::Emulate& emulate, int world_rank) {
  return world_rank == emulate.slow_rank ? emulate.slow_factor : 1;
}

bool has_message_scale(const GroupKey& group) { return !group.axes.contains(Axis::tp); }

double message_scale(const RunConfig::Emulate& emulate, Axis axis) {
  return emulate.message_scale * (axis == Axis::tp   ? emulate.tensor_message_scale
                                  : axis == Axis::dp ? emulate.data_message_scale
                                                     : emulate.pipeline_message_scale);
}

double message_scale(const RunConfig::Emulate& emulate, const GroupKey& group) {
  return emulate.message_scale * reduction_scale(emulate, group);
}

EmulatedLinks emulated_links(const RunConfig::Emulate& emulate) {
  EmulatedLinks links{.within_node = {emulate.latency, emulate.bandwidth},
                      .between_nodes = {emulate.node_latency, emulate.node_bandwidth},
                      .ranks_per_node = static_cast<int>(emulate.ranks_per_node),
                      .message_scale = emulate.message_scale,
                      .scales = {{to_string(Axis::tp), emulate.tensor_message_scale},
                                 {to_string(Axis::pp), emulate.pipeline_message_scale}}};
  for (const GroupKey& group : reduction_groups)
    links.scales[to_string(group)] = reduction_scale(emulate, group);
  if (!emulate.delayed_link.empty())
    links.delayed = {static_cast<int>(emulate.delayed_link[0]), static_cast<int>(emulate.delayed_link[1]),
                     emulate.delay};
  return links;
}

void emulate_network(const RunConfig::Emulate& emulate, const Communicator& world) {
  emulate_links(world, emulated_links(emulate));
}

}  // namespace espalier
