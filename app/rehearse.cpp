// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/rehearse.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <utility>

#include "app/print.hpp"
#include "core/printable_text.hpp"
#include "io/file.hpp"
#include "io/json_by_name.hpp"
#include "io/own_output.hpp"
#include "io/pack/json_text.hpp"
#include "io/records/run_directory.hpp"
#include "io/records/run_paths.hpp"
#include "planning/runnable.hpp"
#include "training/config/emulation.hpp"

namespace espalier {
namespace {

constexpr int max_ranks = 64;
constexpr OutputMark rehearsal_mark{.kind = "the config of a rehearsal", .begin = "# `espalier plan --rehearse`\n"};

/// What a rehearsal leaves in its directory.
struct RehearsalFiles {
  explicit RehearsalFiles(const Path& in) : directory(in) {}
  Path directory;
  Path config = directory / "rehearsal.toml";
  Path emulation = directory / "emulate.toml";
  Path tokens = directory / "tokens.bin";
  Path log = directory / "log.txt";
  Path run = directory / "run";
};

int num_cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

// Makes the directory, or removes the earlier rehearsal from it; the config, by which it is known as ours, is written
// over.
void prepare(const RehearsalFiles& files) {
  if (!is_utf8(files.directory.string()))
    throw Error(ExitCode::usage, {.what = "the name of a rehearsal's directory is not UTF-8",
                                  .where = files.directory.string(),
                                  .wanted = "a name that a config can hold",
                                  .todo = "choose another directory: --rehearse DIRECTORY"});
  std::error_code error;
  const bool is_ours = is_own_output(files.config, rehearsal_mark);
  if (!is_ours && std::filesystem::exists(files.directory, error) && !std::filesystem::is_empty(files.directory, error))
    throw Error(ExitCode::usage, {.what = "the rehearsal directory has files that no rehearsal wrote",
                                  .where = files.directory.string(),
                                  .todo = "choose another directory: --rehearse DIRECTORY"});
  std::filesystem::create_directories(files.directory, error);
  if (error)
    throw_write_error("cannot make a directory", files.directory, error.value());
  for (const Path& old : {files.emulation, files.tokens, files.log, files.run})
    if (std::filesystem::remove_all(old, error); error)
      throw_write_error("cannot remove what an earlier rehearsal left", old, error.value());
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

// In the child: output into the log, one thread a rank.
[[noreturn]] void become(const std::vector<std::string>& command, const char* log) {
  const int file = ::open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  std::vector<char*> arguments;
  for (const std::string& word : command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  const std::string reason = fmt::format("{}: {}\n", command.front(), system_message(errno));
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, reason.data(), reason.size());
  ::_exit(127);
}

int exit_code_of(const std::vector<std::string>& command, const Path& log) {
  const pid_t child = ::fork();
  if (child < 0)
    throw Error(ExitCode::usage, {.what = "cannot start a process",
                                  .where = command.front(),
                                  .got = system_message(errno),
                                  .todo = "end other processes, or raise the limit (ulimit -u)"});
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // who stops the planner stops the rehearsal
    become(command, log.c_str());
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string last_lines(const Path& log) {
  constexpr std::size_t most = 1200;
  const std::string text = read_file(log, ExitCode::data);
  return text.substr(text.size() > most ? text.size() - most : 0);
}

// Launchers that start nothing end with others: 1, 127, 255.
bool is_exit_code_of_train(int code) {
  return std::ranges::any_of(exit_meanings(), [&](const ExitMeaning& known) {
    return code == static_cast<int>(known.code) && known.code != ExitCode::ok && known.code != ExitCode::defect;
  });
}

// What run.json says counts: a launcher combines the codes of all ranks, and gives its own for a rank that was killed.
// Without that file nothing trained: the launcher's code is all there is.
[[noreturn]] void throw_failed(const std::optional<RunRecord>& record, int code,
                               const std::vector<std::string>& command, const RehearsalFiles& files) {
  const std::string again =
      fmt::format("{} says more; to repeat it without the plan: {}", files.log.string(), fmt::join(command, " "));
  const std::string end = fmt::format("exit code {}, after\n{}", code, last_lines(files.log));
  if (record && record->state == RunState::failed)
    throw Error(record->exit_code > 0 ? static_cast<ExitCode>(record->exit_code) : ExitCode::defect,
                {.what = "the rehearsal failed",
                 .where = (files.run / RunFile::record).string(),
                 .got = record->cause,
                 .todo = again});
  if (record)  // running: killed; preempted: asked to stop
    throw Error(record->state == RunState::preempted ? ExitCode::stopped : ExitCode::communication,
                {.what = "the rehearsal was ended before its last step",
                 .where = files.log.string(),
                 .got = end,
                 .wanted = "\"completed\" in " + (files.run / RunFile::record).string(),
                 .todo = again});
  const bool refused = is_exit_code_of_train(code);
  throw Error(
      refused ? static_cast<ExitCode>(code) : ExitCode::usage,
      {.what = refused ? "the rehearsal failed before it trained" : "the rehearsal did not start",
       .where = files.log.string(),
       .got = end,
       .todo = refused ? again
                       : fmt::format("if the log does not say why, check whether {} can start ranks here (--mpiexec)",
                                     command.front())});
}

// `train` on so many ranks, to its end: what its run.json says of it.
nlohmann::json run_ranks(const std::string& mpiexec, int num_ranks, const RehearsalFiles& files) {
  std::vector<std::string> command = words_of(mpiexec);
  command.insert(command.end(),
                 {"-n", std::to_string(num_ranks), std::filesystem::read_symlink("/proc/self/exe").string(), "train",
                  files.config.string(), "--emulate", files.emulation.string()});
  const int code = exit_code_of(command, files.log);
  const std::optional<RunRecord> record = read_run_record(files.run);
  if (!record || record->state != RunState::completed)
    throw_failed(record, code, command, files);
  return record->details;
}

nlohmann::ordered_json to_json(const RehearsedLayout& layout) {
  return {{"layout", layout.price.layout.text()},
          {"ranks", layout.rehearsal.num_ranks()},
          {"time_scale", layout.rehearsal.time_scale},
          {"blocks", layout.rehearsal.num_blocks()},
          {"planned_blocks", layout.rehearsal.planned_blocks},
          {"microbatches", layout.rehearsal.price.layout.num_microbatches()},
          {"planned_microbatches", layout.rehearsal.planned_microbatches},
          {"steps", layout.step.num_steps},
          {"predicted_step_seconds", layout.price.step_seconds},
          {"rehearsed_step_seconds", layout.whole_step_seconds()},
          {"of_its_microbatches",
           {{"stage", layout.step.stage},
            {"predicted_seconds", layout.step.predicted_seconds},
            {"rehearsed_seconds", layout.step.rehearsed_seconds},
            {"predicted", json_by_name<Phase>(layout.step.predicted.seconds)},
            {"rehearsed", json_by_name<Phase>(layout.step.rehearsed.seconds)}}}};
}

// Sequences per second and device, against the first of several layouts.
struct Efficiency {
  double predicted = 0;
  double rehearsed = 0;
};

Efficiency efficiency_of(const RehearsedLayout& layout, const RehearsedLayout& first) {
  const auto speed = [](const RehearsedLayout& of, double seconds) {
    return static_cast<double>(of.price.layout.global_batch) / seconds / of.price.layout.num_devices();
  };
  return {speed(layout, layout.price.step_seconds) / speed(first, first.price.step_seconds),
          speed(layout, layout.whole_step_seconds()) / speed(first, first.whole_step_seconds())};
}

}  // namespace

std::string default_mpiexec() { return ESPALIER_MPIEXEC; }

void require_rehearsable(const Layout& layout) {
  std::string reason = why_not_runnable(layout);
  if (reason.empty() && layout.shard_over == ShardOver::node)
    reason = "a rehearsal has one replica per node, so none can share a copy (shard_over = node)";
  if (!reason.empty())
    throw Error(ExitCode::usage, {.what = "this layout cannot be rehearsed",
                                  .where = layout.text(),
                                  .got = reason,
                                  .wanted = "a layout that train can run",
                                  .todo = "choose another layout (--fix, --precision, --layout)"});
  if (layout.num_devices() > max_ranks)
    throw Error(ExitCode::usage, {.what = "this layout has too many ranks to rehearse",
                                  .where = layout.text(),
                                  .got = std::to_string(layout.num_devices()),
                                  .wanted = fmt::format("{} at most", max_ranks),
                                  .todo = "rehearse it on fewer devices: --devices"});
}

RehearsedLayout rehearse(const PlanProblem& problem, const LayoutPrice& price, const RehearseOptions& options) {
  const Layout& layout = price.layout;
  require_rehearsable(layout);
  const RehearsalFiles files(options.directory);
  prepare(files);
  RehearsedLayout result{.price = price,
                         .rehearsal = make_rehearsal(problem, layout, files.tokens.string(), files.run.string(),
                                                     options.seconds, num_cores()),
                         .step = {}};
  RunConfig config = result.rehearsal.config;
  const RunConfig::Emulate emulate = std::exchange(config.emulate, {});
  write_output(files.config, rehearsal_mark, fmt::format("{}{}", rehearsal_mark.begin, to_toml(config)));
  write_output(files.emulation, rehearsal_mark, fmt::format("{}{}", rehearsal_mark.begin, all_emulate_keys(emulate)));
  write_rehearsal_tokens(result.rehearsal, files.tokens);
  print_note("rehearsing on {} ranks: {}\n", layout.num_devices(), layout.text());
  const nlohmann::json details = run_ranks(options.mpiexec, layout.num_devices(), files);
  result.step = rehearsed_step(result.rehearsal, details);
  return result;
}

std::string rehearsal_text(const RehearsedLayout& layout, const RehearseOptions& options) {
  const RehearsedStep& step = layout.step;
  const Rehearsal& rehearsal = layout.rehearsal;
  const Index microbatches = rehearsal.price.layout.num_microbatches();
  std::string text = fmt::format(
      "rehearsed on {} ranks: {} steps, a second of the cluster takes {:.3g} s; {} of {} micro-batches, {} of {} "
      "blocks\n  {:<14} {:>12} {:>12}   seconds, of stage {}\n",
      rehearsal.num_ranks(), step.num_steps, rehearsal.time_scale, microbatches, rehearsal.planned_microbatches,
      rehearsal.num_blocks(), rehearsal.planned_blocks, "", "predicted", "rehearsed", step.stage);
  for (std::size_t i = 0; i < num_phases; ++i)
    if (step.predicted.seconds[i] + step.rehearsed.seconds[i] > 0.002 * step.predicted_seconds)
      text += fmt::format("  {:<14} {:>12.4g} {:>12.4g}\n", to_string(static_cast<Phase>(i)), step.predicted.seconds[i],
                          step.rehearsed.seconds[i]);
  if (microbatches < rehearsal.planned_microbatches)
    text += fmt::format("  {:<14} {:>12.4g} {:>12.4g}\n",
                        fmt::format("{} of {}", microbatches, rehearsal.planned_microbatches), step.predicted_seconds,
                        step.rehearsed_seconds);
  text += fmt::format("  {:<14} {:>12.4g} {:>12.4g}   {:+.1f} %\n", "step", layout.price.step_seconds,
                      layout.whole_step_seconds(), 100 * step.error_share());
  return text + fmt::format("  its run: {}/run (report.html; espalier diagnose says more)\n", options.directory);
}

std::string rehearsed_scaling_text(const std::vector<RehearsedLayout>& layouts) {
  std::string text = fmt::format("{:>8} {:>12} {:>12} {:>7} {:>22}   layout\n{:>8} {:>12} {:>12} {:>7} {:>11} {:>10}\n",
                                 "devices", "predicted", "rehearsed", "error", "efficiency", "", "step, s", "step, s",
                                 "", "predicted", "rehearsed");
  for (const RehearsedLayout& layout : layouts) {
    const Efficiency efficiency = efficiency_of(layout, layouts.front());
    text +=
        fmt::format("{:>8} {:>12.4g} {:>12.4g} {:>+5.1f} % {:>9.1f} % {:>8.1f} %   {}\n", layout.rehearsal.num_ranks(),
                    layout.price.step_seconds, layout.whole_step_seconds(), 100 * layout.step.error_share(),
                    100 * efficiency.predicted, 100 * efficiency.rehearsed, layout.price.layout.text());
  }
  return text;
}

std::string rehearsals_json(const std::vector<RehearsedLayout>& layouts) {
  nlohmann::ordered_json json = {{"rehearsals", nlohmann::ordered_json::array()}};
  for (const RehearsedLayout& layout : layouts) {
    const Efficiency efficiency = efficiency_of(layout, layouts.front());
    json["rehearsals"].push_back(to_json(layout));
    json["rehearsals"].back().update(
        {{"predicted_efficiency", efficiency.predicted}, {"rehearsed_efficiency", efficiency.rehearsed}});
  }
  return json_text(json, 1) + "\n";
}

}  // namespace espalier
