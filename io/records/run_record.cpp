// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/run_record.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <limits>
#include <sstream>

#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/machine.hpp"
#include "io/records/run_paths.hpp"

namespace espalier {
namespace {

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

struct ProcessStat {
  char state = 0;
  std::int64_t start = 0;
};

// Fields 3 and 22 of /proc/PID/stat; the command in field 2 may contain anything, but its last ')' ends it. Zeros: no
// process, or none that can be seen.
ProcessStat process_stat(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const std::size_t command_end = line.rfind(')');
  if (command_end == std::string::npos)
    return {};
  std::istringstream fields(line.substr(command_end + 1));
  ProcessStat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field)
    fields >> skipped;
  fields >> stat.start;
  return stat;
}

}  // namespace

const char* to_string(RunState state) {
  switch (state) {
    case RunState::running: return "running";
    case RunState::completed: return "completed";
    case RunState::preempted: return "preempted";
    case RunState::failed: return "failed";
  }
  return "unknown";
}

nlohmann::ordered_json to_json(const RunRecord& record) {
  return {{"id", record.id},
          {"state", to_string(record.state)},
          {"cause", record.cause},
          {"exit_code", record.exit_code},
          {"host", record.host},
          {"pid", record.pid},
          {"process_start", record.process_start},
          {"boot", record.boot},
          {"directory", record.directory},
          {"started", record.started},
          {"ended", record.ended},
          {"starts", record.starts},
          {"details", record.details}};
}

RunRecord run_record_from_json(const nlohmann::json& json) {
  constexpr std::size_t longest_cause = std::size_t{1} << 20;  // it may list where thousands of ranks were
  RunRecord record;
  record.id = field_or(json, "id", std::string());  // not in the records of older versions
  record.state = choice_field(json, "state", all_run_states);
  record.cause = field<std::string>(json, "cause", longest_cause);
  record.exit_code = field_or(json, "exit_code", 0, IntegerRange{0, 255});  // not in the records of older versions
  record.host = field<std::string>(json, "host");
  record.pid = field<std::int64_t>(json, "pid", IntegerRange{0, std::numeric_limits<pid_t>::max()});
  record.process_start = field<std::int64_t>(json, "process_start", IntegerRange{.min = 0});
  record.boot = field<std::string>(json, "boot");
  record.directory = field_or(json, "directory", std::string());  // not in the records of older versions
  record.started = field<std::string>(json, "started");
  record.ended = field<std::string>(json, "ended");
  record.starts = field<std::int64_t>(json, "starts", count_range);
  record.details = object_field(json, "details");
  return record;
}

std::optional<RunRecord> read_run_record(const Path& directory) {
  try {
    return run_record_from_json(
        parse_json(read_file(directory / RunFile::record, ExitCode::data, LargestFile::record)));
  } catch (const std::exception&) {  // absent or damaged: it is advisory
    return std::nullopt;
  }
}

bool is_alive_here(const RunRecord& record) {
  if (record.state != RunState::running || record.host != host_name() || record.boot != boot_id() || record.pid <= 0)
    return false;
  if (::kill(static_cast<pid_t>(record.pid), 0) != 0 && errno == ESRCH)
    return false;
  const ProcessStat stat = process_stat(record.pid);
  const bool has_ended = stat.state == 'Z' || stat.state == 'X';  // and only waits for its parent to take note
  return !has_ended && (stat.start == 0 || stat.start == record.process_start);
}

RunRecord record_of_this_process() {
  RunRecord record;
  record.host = host_name();
  record.pid = ::getpid();
  record.process_start = process_stat(record.pid).start;
  record.boot = boot_id();
  record.started = utc_now();
  return record;
}

void end_record(RunRecord& record, RunState end, const std::string& cause) {
  record.state = end;
  record.cause = cause;
  record.ended = utc_now();
}

bool is_of_earlier_boot(const RunRecord& record) { return record.boot != boot_id(); }

}  // namespace espalier
