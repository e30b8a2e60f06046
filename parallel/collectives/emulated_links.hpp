// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {

class Communicator;

struct LinkSpeed {
  double latency = 0;           ///< seconds
  double bytes_per_second = 0;  ///< 0: without limit
};

/// An injected fault: what one rank of the world sends to another arrives later.
struct LinkDelay {
  int from = -1;
  int to = -1;
  double seconds = 0;
};

/// An emulated network: a message is complete at its receiver no sooner than on this network. Each rank has one link of
/// each tier, which carries its messages one after another.
struct EmulatedLinks {
  LinkSpeed within_node;
  LinkSpeed between_nodes;
  int ranks_per_node = 0;    ///< consecutive ranks of the world; 0: all ranks on one node
  double message_scale = 1;  ///< each byte counts as this many: tiny tensors stand for large ones
  LinkDelay delayed = {};
  /// Factors beside message_scale, by the first word of a communicator's name: of "tp", or of "dp gradients" by "dp".
  std::map<std::string, double, std::less<>> scales = {};

  bool on() const { return slow(within_node) || slow(between_nodes) || delayed.seconds > 0; }
  double scale(std::string_view communicator) const;
  double delay(int from, int to) const { return from == delayed.from && to == delayed.to ? delayed.seconds : 0; }
  bool same_node(int world_rank, int other) const {
    return node_of_rank(world_rank, ranks_per_node) == node_of_rank(other, ranks_per_node);
  }

 private:
  static bool slow(const LinkSpeed& link) { return link.latency > 0 || link.bytes_per_second > 0; }
};

/// When this rank's links will have sent the messages so far.
class LinkQueue {
 public:
  /// Queues a message at time `now`; returns when it reaches its receiver.
  double send(const EmulatedLinks& links, bool same_node, double bytes, double now) {
    const LinkSpeed& link = same_node ? links.within_node : links.between_nodes;
    double& free_at = free_at_[same_node ? 0 : 1];
    free_at = free_at > now ? free_at : now;
    if (link.bytes_per_second > 0)
      free_at += bytes * links.message_scale / link.bytes_per_second;
    return free_at + link.latency;
  }

 private:
  std::array<double, 2> free_at_{};  // seconds of the job's clock, by tier
};

/// From now on the messages of the whole job take the time of these links, and waits sleep between polls. Links that
/// are not slow switch both off. Collective, between messages.
void emulate_links(const Communicator& world, const EmulatedLinks& links);

}  // namespace espalier
