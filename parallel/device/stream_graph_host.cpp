// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/device/stream_graph.hpp"

namespace espalier {

struct StreamGraph::Recording {};

StreamGraph::StreamGraph() = default;
StreamGraph::~StreamGraph() = default;
StreamGraph::StreamGraph(StreamGraph&&) noexcept = default;
StreamGraph& StreamGraph::operator=(StreamGraph&&) noexcept = default;

void StreamGraph::run(const ExecSpace&, const std::function<void()>& work) { work(); }

void call_each_time(const std::function<void()>& call) { call(); }

}  // namespace espalier
