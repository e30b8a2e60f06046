// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "io/file.hpp"

namespace espalier {

/// How far a launch came.
enum class RunState { running, completed, preempted, failed };
inline constexpr std::array all_run_states{RunState::running, RunState::completed, RunState::preempted,
                                           RunState::failed};
const char* to_string(RunState state);

/// What run.json says: how far a launch of `espalier train` came, and who owns the directory.
struct RunRecord {
  std::string
      id;  ///< of the run, from its first launch on: its checkpoints bear it (io/checkpoint/atomic_directory.hpp)
  RunState state = RunState::running;
  std::string cause;  ///< of preempted and failed
  int exit_code = 0;  ///< of failed: with which ranks leave that know the cause; launchers combine those of all ranks
  std::string host;
  std::int64_t pid = 0;
  std::int64_t process_start = 0;  ///< clock ticks after boot: tells a process from a later one with its id
  std::string boot;                ///< the machine's boot id
  std::string directory;           ///< of the run, absolute
  std::string started;             ///< UTC, ISO 8601
  std::string ended;
  std::int64_t starts = 0;                            ///< of this run so far
  nlohmann::json details = nlohmann::json::object();  ///< whatever the trainer wants kept
};

nlohmann::ordered_json to_json(const RunRecord& record);
/// @throws std::exception that names the field which is missing, of another type or out of its range
RunRecord run_record_from_json(const nlohmann::json& json);

/// run.json of a directory, if there is a readable one: absent or damaged is the same to most, as it is advisory.
std::optional<RunRecord> read_run_record(const Path& directory);

/// Whether the process of the launch still lives, as far as this machine can see: false where it ran on another host.
bool is_alive_here(const RunRecord& record);

/// A record with this process, which starts now.
RunRecord record_of_this_process();

/// Stores how the launch ended, now.
void end_record(RunRecord& record, RunState end, const std::string& cause);

/// Whether the machine was restarted since the launch. @pre it was on this host
bool is_of_earlier_boot(const RunRecord& record);

}  // namespace espalier
