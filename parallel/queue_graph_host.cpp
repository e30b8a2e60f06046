// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/queue_graph.hpp"

namespace espalier {

struct QueueGraph::Recording {};

QueueGraph::QueueGraph() = default;
QueueGraph::~QueueGraph() = default;
QueueGraph::QueueGraph(QueueGraph&&) noexcept = default;
QueueGraph& QueueGraph::operator=(QueueGraph&&) noexcept = default;

void QueueGraph::run(const ExecSpace&, const std::function<void()>& work) { work(); }

void call_each_time(const std::function<void()>& call) { call(); }

}  // namespace espalier
