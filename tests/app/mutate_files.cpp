// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Damages and forges the files of test_mutations.sh in many ways, and runs the commands that read them.
//
//   mutate_files ESPALIER BASE SCRATCH FIRST LAST      cases FIRST to LAST, each the same each time
//
// A case passes when the command ends within 10 s, with a code of docs/errors.md other than 1, and takes nothing that
// was changed for whole.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/app/mutations.hpp"

namespace espalier::test {
namespace {

using Words = std::vector<std::string>;

constexpr auto time_limit = std::chrono::seconds(10);
const Words resume = {"train", "tiny.toml"};
const Words verify = {"checkpoint", "verify", "run"};
const Words inspect = {"checkpoint", "inspect", "run"};
const Words generate = {"generate", "--max-tokens", "2", "--checkpoint", "run"};
const Words diagnose = {"diagnose", "run"};
const Words report = {"report", "run"};
const Words diagnose_killed = {"diagnose", "killed"};
const Words report_killed = {"report", "killed"};
const Words resume_killed = {"train", "tiny.toml", "run.directory=killed"};
const Words plan_cluster = {"plan", "--model", "gpt2-124m", "--cluster", "cluster.toml", "--batch", "16", "--top", "1"};
const Words plan_model = {"plan", "--model", "model.toml", "--cluster", "a100-80:1x2", "--batch", "16", "--top", "1"};
const Words inspect_tokens = {"data", "inspect", "train.bin"};
const Words dry_run = {"train", "--dry-run", "tiny.toml"};
const Words replay = {"train", "--replay", "incident"};

struct Target {
  const char* file;
  FileKind kind;
  std::vector<Words> readers;
  int weight;
};

// Commands that start the runtime take longer: they come less often.
const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"run/checkpoints/step-00000006/manifest.json",
       FileKind::manifest,
       {verify, verify, verify, inspect, inspect, resume, generate, diagnose},
       40},
      {"run/checkpoints/step-00000006/rank-00000.h5", FileKind::binary, {verify, verify, verify, resume, generate}, 16},
      {"run/checkpoints/step-00000006/index.h5", FileKind::binary, {verify}, 2},
      {"run/config.toml", FileKind::toml, {diagnose, diagnose, report, report, resume}, 8},
      {"run/run.json", FileKind::json, {diagnose, diagnose, report, report, resume}, 10},
      {"run/metrics.jsonl", FileKind::json_lines, {diagnose, diagnose, report, report, resume}, 8},
      {"run/prediction.json", FileKind::json, {diagnose, report}, 6},
      {"run/trace/rank-00000.json", FileKind::json_lines, {report, diagnose}, 6},
      {"killed/state/rank-00000.position", FileKind::binary, {diagnose_killed, report_killed, resume_killed}, 6},
      {"killed/ranks/rank-00001.jsonl", FileKind::json_lines, {diagnose_killed, report_killed}, 6},
      {"killed/run.json", FileKind::json, {diagnose_killed, report_killed}, 4},
      {"tiny.toml", FileKind::toml, {dry_run}, 8},
      {"cluster.toml", FileKind::toml, {plan_cluster}, 8},
      {"model.toml", FileKind::toml, {plan_model}, 8},
      {"train.bin", FileKind::binary, {inspect_tokens, inspect_tokens, inspect_tokens, resume}, 12},
      {"incident/incident.json", FileKind::json, {replay}, 3},
  };
  return all;
}

const Target& any_target(Random& random) {
  int total = 0;
  for (const Target& target : targets())
    total += target.weight;
  int left = static_cast<int>(random() % static_cast<std::size_t>(total));
  for (const Target& target : targets())
    if ((left -= target.weight) < 0)
      return target;
  return targets().front();
}

struct Outcome {
  int status = 0;  // of wait
  bool in_time = true;
  std::string output;
};

Outcome run_in(const Path& directory, const std::string& program, const Words& words) {
  const Path log = directory / "output.log";
  const pid_t child = ::fork();
  if (child == 0) {
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(out, 1);
    ::dup2(out, 2);
    std::vector<char*> arguments{const_cast<char*>(program.c_str())};
    for (const std::string& word : words)
      arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    if (::chdir(directory.c_str()) == 0)
      ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  Outcome outcome;
  const auto end = std::chrono::steady_clock::now() + time_limit;
  while (::waitpid(child, &outcome.status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      outcome.in_time = false;
      ::kill(child, SIGKILL);
      ::waitpid(child, &outcome.status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::ostringstream text;
  text << std::ifstream(log).rdbuf();
  outcome.output = text.str();
  return outcome;
}

// What is wrong with it; empty: nothing.
std::string fault_of(const Outcome& outcome, const Words& words, const Mutation& mutation) {
  constexpr std::array documented = {0, 2, 3, 4, 5, 6, 7, 8, 75, 93};
  if (!outcome.in_time)
    return "still running after 10 s";
  if (WIFSIGNALED(outcome.status))
    return fmt::format("ended by signal {}", WTERMSIG(outcome.status));
  const int code = WEXITSTATUS(outcome.status);
  if (std::ranges::find(documented, code) == documented.end())
    return fmt::format("exit code {}", code);
  const auto says = [&](const char* text) { return outcome.output.find(text) != std::string::npos; };
  if (says("defect of Espalier"))
    return "a defect of Espalier";
  if (words != generate && std::ranges::any_of(outcome.output, [](unsigned char c) { return c < ' ' && c != '\n'; }))
    return "a control character in the output";
  const bool reads_all = words == verify || words == resume;  // else a manifest, and weights, but no moments
  const bool reads_checkpoint =
      reads_all || (mutation.text.ends_with("sealed") && (words == inspect || words == generate));
  if (mutation.must_be_found && reads_checkpoint && code != 4 && !says("passing over run/checkpoints/step-00000006"))
    return fmt::format("what was changed is taken for whole (exit code {})", code);
  return "";
}

// False where the case fails.
bool run_case(long number, const std::string& program, const Path& base, const Path& scratch) {
  Random random(static_cast<std::uint64_t>(number));
  const Target& target = any_target(random);
  const Path directory = scratch / fmt::format("case-{}", number);
  std::filesystem::remove_all(directory);
  std::filesystem::copy(base, directory, std::filesystem::copy_options::recursive);
  const Mutation mutation = mutate(directory / target.file, target.kind, base, random);
  const Words& words = target.readers[random() % target.readers.size()];
  const Outcome outcome = run_in(directory, program, words);
  const std::string fault = fault_of(outcome, words, mutation);
  if (!fault.empty())
    fmt::print("case {}: {}: espalier {}\n  {}: {}\n  {:.600}\n", number, fault, fmt::join(words, " "), target.file,
               mutation.text, outcome.output);
  std::fflush(stdout);
  if (fault.empty())
    std::filesystem::remove_all(directory);
  return fault.empty();
}

int run_cases(const std::string& program, const Path& base, const Path& scratch, long first, long last) {
  const long workers = std::max(1U, std::thread::hardware_concurrency());
  for (long worker = 0; worker < workers; ++worker)
    if (::fork() == 0) {
      int failures = 0;
      for (long number = first + worker; number <= last; number += workers)
        failures += run_case(number, program, base, scratch) ? 0 : 1;
      ::_exit(std::min(failures, 100));
    }
  int failures = 0;
  for (int status = 0; ::wait(&status) > 0;)
    failures += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  fmt::print("{} cases, {} failed{}\n", last - first + 1, failures,
             failures > 0 ? "; a case again: test_mutations.sh ESPALIER MUTATE_FILES MPIEXEC NUMBER NUMBER" : "");
  return failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace espalier::test

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "wanted: mutate_files ESPALIER BASE SCRATCH FIRST LAST\n");
    return 2;
  }
  ::setenv("OMP_NUM_THREADS", "1", 1);
  return espalier::test::run_cases(argv[1], argv[2], argv[3], std::atol(argv[4]), std::atol(argv[5]));
}
