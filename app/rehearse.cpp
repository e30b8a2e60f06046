// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/rehearse.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <thread>

#include "io/file.hpp"
#include "io/json_by_name.hpp"
#include "io/run_directory.hpp"

namespace espalier {
namespace {

constexpr int most_ranks = 64;
constexpr const char* config_name = "rehearsal.toml";

int num_cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

// The directory, empty but for what stays of other programs.
void prepare_directory(const Path& directory) {
  std::error_code error;
  const bool is_ours = std::filesystem::exists(directory / config_name, error);
  if (!is_ours && std::filesystem::exists(directory, error) && !std::filesystem::is_empty(directory, error))
    throw Error(ExitCode::usage, {.what = "the directory of the rehearsal holds something else",
                                  .where = directory.string(),
                                  .todo = "name another: --rehearse DIRECTORY"});
  if (is_ours)
    std::filesystem::remove_all(directory, error);
  std::filesystem::create_directories(directory, error);
  if (error)
    throw_write_error("cannot make a directory", directory, error.value());
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
    throw Error(ExitCode::usage, {.what = "cannot start a process", .got = system_message(errno)});
  if (child == 0)
    become(command, log.c_str());
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

nlohmann::json run_details(const Path& run_directory) {
  const std::optional<RunRecord> record = read_run_record(run_directory);
  return record && record->state == "completed" ? record->details : nlohmann::json::object();
}

nlohmann::ordered_json to_json(const RehearsedLayout& layout) {
  return {{"layout", layout.price.layout.text()},
          {"ranks", layout.rehearsal.num_ranks},
          {"time_scale", layout.rehearsal.time_scale},
          {"blocks", layout.rehearsal.num_blocks},
          {"planned_blocks", layout.rehearsal.planned_blocks},
          {"steps", layout.step.num_steps},
          {"predicted_step_seconds", layout.step.predicted_seconds},
          {"rehearsed_step_seconds", layout.step.rehearsed_seconds},
          {"stage", layout.step.stage},
          {"predicted", json_by_name<Phase>(layout.step.predicted.seconds)},
          {"rehearsed", json_by_name<Phase>(layout.step.rehearsed.seconds)}};
}

}  // namespace

std::string default_mpiexec() { return ESPALIER_MPIEXEC; }

RehearsedLayout rehearse(const PlanProblem& problem, const LayoutPrice& price, const RehearseOptions& options) {
  const PlanLayout& layout = price.layout;
  if (const std::string reason = why_not_rehearsable(layout); !reason.empty())
    throw Error(ExitCode::usage, {.what = "this layout cannot be rehearsed",
                                  .got = layout.text(),
                                  .wanted = reason,
                                  .todo = "add --runnable, or fix other choices with --fix"});
  if (layout.num_devices() > most_ranks)
    throw Error(ExitCode::usage, {.what = "this layout has too many ranks to rehearse",
                                  .got = std::to_string(layout.num_devices()),
                                  .wanted = fmt::format("{} at most", most_ranks),
                                  .todo = "rehearse it on fewer devices: --devices"});
  const Path directory = options.directory;
  prepare_directory(directory);
  const Path tokens = directory / "tokens.bin";
  const Path run_directory = directory / "run";
  RehearsedLayout result{.price = price,
                         .rehearsal = make_rehearsal(problem, price, tokens.string(), run_directory.string(),
                                                     options.seconds, num_cores()),
                         .step = {}};
  write_rehearsal_tokens(result.rehearsal, tokens);
  const Path config = directory / config_name;
  write_file_atomically(config, to_toml(result.rehearsal.config));

  std::vector<std::string> command = words_of(options.mpiexec);
  command.insert(command.end(), {"-n", std::to_string(layout.num_devices()),
                                 std::filesystem::read_symlink("/proc/self/exe").string(), "train", config.string()});
  fmt::print(stderr, "rehearsing on {} ranks: {}\n", layout.num_devices(), layout.text());
  const Path log = directory / "log.txt";
  if (const int code = exit_code_of(command, log); code != 0)
    throw Error(ExitCode::usage,
                {.what = "the rehearsal failed",
                 .where = log.string(),
                 .got = fmt::format("exit code {}, after\n{}", code, last_lines(log)),
                 .todo = fmt::format("see whether {} starts ranks here (--mpiexec)", command.front())});
  result.step = rehearsed_step(result.rehearsal, price, run_details(run_directory));
  return result;
}

std::string rehearsal_text(const RehearsedLayout& layout, const RehearseOptions& options) {
  const RehearsedStep& step = layout.step;
  std::string text = fmt::format(
      "rehearsed on {} ranks: {} steps, each second of the cluster in {:.3g} s; {} of {} blocks\n"
      "  {:<14} {:>12} {:>12}   seconds, of stage {}\n",
      layout.rehearsal.num_ranks, step.num_steps, layout.rehearsal.time_scale, layout.rehearsal.num_blocks,
      layout.rehearsal.planned_blocks, "", "predicted", "rehearsed", step.stage);
  for (std::size_t i = 0; i < num_phases; ++i)
    if (step.predicted.seconds[i] + step.rehearsed.seconds[i] > 0.002 * step.predicted_seconds)
      text += fmt::format("  {:<14} {:>12.4g} {:>12.4g}\n", to_string(static_cast<Phase>(i)), step.predicted.seconds[i],
                          step.rehearsed.seconds[i]);
  text += fmt::format("  {:<14} {:>12.4g} {:>12.4g}   {:+.1f} %\n", "step", step.predicted_seconds,
                      step.rehearsed_seconds, 100 * step.error_share());
  return text + fmt::format("  its run: {}/run (report.html; espalier diagnose says more)\n", options.directory);
}

std::string rehearsed_scaling_text(const PlanProblem& problem, const std::vector<RehearsedLayout>& layouts) {
  std::string text = fmt::format("{:>8} {:>12} {:>12} {:>7} {:>22}   layout\n{:>8} {:>12} {:>12} {:>7} {:>11} {:>10}\n",
                                 "devices", "predicted", "rehearsed", "error", "efficiency", "", "step, s", "step, s",
                                 "", "predicted", "rehearsed");
  const auto speed = [&](const RehearsedLayout& layout, double seconds) {
    const auto tokens = static_cast<double>(layout.price.layout.global_batch * problem.sequence_length);
    return tokens / seconds / layout.price.layout.num_devices();
  };
  const RehearsedLayout& first = layouts.front();
  for (const RehearsedLayout& layout : layouts) {
    const RehearsedStep& step = layout.step;
    text +=
        fmt::format("{:>8} {:>12.4g} {:>12.4g} {:>+5.1f} % {:>9.1f} % {:>8.1f} %   {}\n", layout.rehearsal.num_ranks,
                    step.predicted_seconds, step.rehearsed_seconds, 100 * step.error_share(),
                    100 * speed(layout, step.predicted_seconds) / speed(first, first.step.predicted_seconds),
                    100 * speed(layout, step.rehearsed_seconds) / speed(first, first.step.rehearsed_seconds),
                    layout.price.layout.text());
  }
  return text;
}

std::string rehearsals_json(const std::vector<RehearsedLayout>& layouts) {
  nlohmann::ordered_json json = {{"rehearsals", nlohmann::ordered_json::array()}};
  for (const RehearsedLayout& layout : layouts)
    json["rehearsals"].push_back(to_json(layout));
  return json.dump(1) + "\n";
}

}  // namespace espalier
