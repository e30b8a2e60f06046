// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/file.hpp"
#include "parallel/observe/timeline.hpp"

namespace espalier {

/// DIRECTORY/rank-00003.json
Path trace_path(const Path& directory, int rank);

/// "rank 3: stage 1, replica 0, tensor 1"
std::string trace_process_name(int rank, int stage, int replica, int tensor);

/// Writes DIRECTORY/rank-00003.json: Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
/// A rank is a process, numbered from 1 as Perfetto keeps 0 for the idle process. Events of one track that overlap
/// without one containing the other, as messages in flight do, get further threads: viewers draw a thread as a stack.
/// Throws Error(write).
void write_trace(const Path& directory, int rank, const std::string& process_name,
                 std::span<const TimelineEvent> events);

/// Joins the files of ranks 0 to num_ranks - 1 into DIRECTORY/trace.json. Returns the ranks whose file is absent or
/// not one of write_trace's: those that ended early.
std::vector<int> merge_traces(const Path& directory, int num_ranks);

/// The events that write_trace() put into a file of one rank, in its order: by track, thread and begin. A category that
/// is no phase word is left out. Throws Error(data), with the line, if the file cannot be read or is not one of
/// write_trace's, which are written at once: a torn one is damaged.
std::vector<TimelineEvent> read_trace(const Path& path);

}  // namespace espalier
