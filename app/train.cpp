// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/console.hpp"
#include "app/dry_run.hpp"
#include "app/gpu_options.hpp"
#include "app/print.hpp"
#include "app/stop_requests.hpp"
#include "core/kokkos_compat.hpp"
#include "core/median.hpp"
#include "core/value_range.hpp"
#include "diagnosis/report.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/launch/launch_environment.hpp"
#include "parallel/launch/process_limits.hpp"
#include "parallel/launch/runtime.hpp"
#include "planning/cluster.hpp"
#include "training/checkpoint/require_file_size.hpp"
#include "training/config/config_warnings.hpp"
#include "training/config/emulation.hpp"
#include "training/config/shard_over.hpp"
#include "training/loop/resume.hpp"
#include "training/loop/same_launch.hpp"
#include "training/loop/train_loop.hpp"
#include "training/prediction/measure_layers.hpp"
#include "training/prediction/require_memory.hpp"
#include "training/pretrained/hugging_face_init.hpp"
#include "training/rehearsal/step_pace.hpp"
#include "training/verify/replay.hpp"
#include "training/verify/verify.hpp"

namespace espalier {
namespace {

constexpr std::size_t max_tensors = 8;
constexpr double outlier = 2;  // times the median of the samples

void print_comparison(const char* name, double recorded, double replayed, double tolerance) {
  print_answer("{:<14} recorded {:<14.8g} replayed {:<14.8g} {}\n", name, recorded, replayed,
               is_reproduced(recorded, replayed, tolerance) ? "reproduced" : "NOT reproduced");
}

template <double ReplayedSample::*Value>
double median_over(const std::vector<ReplayedSample>& samples) {
  std::vector<double> values;
  for (const ReplayedSample& sample : samples)
    values.push_back(sample.*Value);
  return median_of(std::move(values));
}

void print_samples(const std::vector<ReplayedSample>& samples) {
  const double usual_loss = median_over<&ReplayedSample::loss>(samples);
  const double usual_norm = median_over<&ReplayedSample::gradient_norm>(samples);
  // Written so that what is not a number stands out.
  const auto stands_out = [&](const ReplayedSample& sample) {
    return !(sample.loss <= outlier * usual_loss) || !(sample.gradient_norm <= outlier * usual_norm);
  };
  print_answer("\n{:>10} {:>10} {:>14}   {:<32} source\n", "sample", "loss", "gradient norm", "largest gradient");
  for (const ReplayedSample& sample : samples)
    print_answer("{:>10} {:>10.4f} {:>14.4g}{}  {:<32} {}, token {}\n", sample.sample, sample.loss,
                 sample.gradient_norm, stands_out(sample) ? '!' : ' ', sample.largest.name, sample.file,
                 sample.first_token);
  print_answer("! = loss or gradient norm above {} times the median of the samples, or not finite\n", outlier);
}

void print_tensors(const std::vector<TensorNorm>& tensors) {
  print_answer("\nlargest gradients of the step, by tensor\n");
  for (std::size_t i = 0; i < std::min(max_tensors, tensors.size()); ++i)
    print_answer("{:>14.4g}  {}\n", tensors[i].norm, tensors[i].name);
}

// `espalier train --replay INCIDENT`: computes a step again on one rank and prints which sample and which tensor did
// it. @returns 0 where loss and gradient norm are those that were recorded, else 5.
int replay_command(const std::string& incident_path, const std::vector<std::string>& overrides, Runtime& runtime) {
  if (runtime.size() > 1)
    throw Error(ExitCode::usage, {.what = "a step is replayed on one rank",
                                  .got = fmt::format("{} ranks", runtime.size()),
                                  .todo = "start it without mpiexec"});
  const Incident incident = read_incident(incident_path);
  const RunConfig config = replay_config(incident_path, overrides);
  require_memory(config, make_run_layout(config, 1), memory_of_a_rank(runtime.world()));
  const double tolerance = default_tolerance(config.layout.precision);
  print_answer("{}\nlayout {}; here one rank, tolerance {:g}\n\n", to_text(incident), incident.layout, tolerance);
  const ProcessMesh mesh(runtime.world(), make_run_layout(config, 1).mesh());
  const Replay result =
      replay(incident_path, incident, config, mesh, [](const std::string& text) { print_answer("{}\n", text); });
  print_comparison("loss", incident.loss, result.loss, tolerance);
  print_comparison("gradient norm", incident.gradient_norm, result.gradient_norm, tolerance);
  print_samples(result.samples);
  print_tensors(result.tensors);
  const bool reproduced = is_reproduced(incident.loss, result.loss, tolerance) &&
                          is_reproduced(incident.gradient_norm, result.gradient_norm, tolerance);
  print_answer("\n{}\n", reproduced ? "the data and the weights give what was recorded"
                                    : "the data and the weights do not give what was recorded: suspect the layout "
                                      "(espalier verify) or the machine that ran it");
  return static_cast<int>(reproduced ? ExitCode::ok : ExitCode::numerical);
}

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::vector<std::string> emulate;
  TrainOptions train;
  bool dry_run = false;
  bool events = false;
  bool keys = false;
  std::string replay;
  int ranks = launched_rank().size;  ///< of a dry run
  int ranks_per_node = 0;            ///< of a dry run; 0: not given
};

void print_start(Console& console, const Runtime& runtime, const RunConfig& config, const Layout& layout) {
  console.note(runtime.describe());
  console.note(fmt::format("{}: {} parameters, {} tokens per step, {}, {} on {}", config.model_name(),
                           count_text(static_cast<double>(num_parameters(config.model.shape))),
                           count_text(static_cast<double>(config.tokens_per_step())),
                           counted(config.total_steps(), "step"), to_string(config.layout.precision),
                           layout.short_text()));
  if (layout.pipeline > 1)
    console.note(fmt::format("layers of each stage: {}", fmt::join(config.layout.layers, ", ")));
  if (config.emulates())
    console.note("--emulate is on: operations and messages take at least the times given");
  for (const std::string& warning : config_warnings(config, runtime.size()))
    console.note("warning: " + warning);
}

std::string end_text(TrainOutcome outcome, const std::string& directory) {
  switch (outcome) {
    case TrainOutcome::completed: return "completed; all files are in " + directory;
    case TrainOutcome::stopped:
      return fmt::format("stopped after a saved checkpoint; the same command resumes ({})", directory);
    case TrainOutcome::not_begun: break;
  }
  return "stopped before the first step; run the same command again";
}

int train_command(TrainArguments& options, Runtime& runtime, std::unique_ptr<EndAtStopRequest>& launching) {
  options.train.program = program_text();
  RunConfig config = read_run_config(options.config, options.overrides, runtime.size(), Libraries::present,
                                     read_emulation(options.emulate));
  const Communicator& world = runtime.world();
  world.set_deadline(config.run.communication_timeout);
  require_same_launch(world, to_toml(config));  // before anything that ranks with unlike layouts would hang in
  attempt_together(world, ExitCode::checkpoint, [&] {
    if (runtime.rank() == 0)
      require_init_from(config, options.train);
  });
  attempt_together(world, ExitCode::write,
                   [&] { require_file_size(config, world.size(), read_process_limits().file_size); });
  MemoryLedger::instance().set_budget(static_cast<std::size_t>(config.run.device_memory));
  resolve_ranks_per_node(config, world);
  resolve_layers_per_stage(config, world);
  const Layout layout = make_run_layout(config, runtime.size());
  const ProcessMesh mesh(world, layout.mesh(), layout.virtual_stages > 1);
  emulate_network(config.emulate, world);
  const StepPace pace(config, layout, mesh);

  Console console(config.run.log_interval);
  TrainEvents events;
  events.note = [&](const std::string& text) { console.note(text); };
  events.step = [&](const StepReport& report, const TrainProgress& progress) { console.step(report, progress); };
  events.validation = [&](Index step, double loss) { console.validation(step, config.total_steps(), loss); };
  bool begun = false;
  events.begins = [&] {
    launching.reset();
    begun = true;
  };
  // A reader that has gone before the run begins is missed by the first step: what it takes is not lost.
  const auto request = [&] {
    const std::string name = stop_request();
    return begun || name != "SIGPIPE" ? name : std::string();
  };
  if (runtime.rank() == 0)
    print_start(console, runtime, config, layout);
  const TrainOutcome outcome = train(config, options.train, layout, mesh, events, request);
  launching.reset();  // a launch that did not begin says so once
  if (runtime.rank() == 0) {
    if (outcome != TrainOutcome::not_begun)
      if (const std::string problem = write_report_at_end(config.run.directory); !problem.empty())
        console.note(problem);
    console.note(end_text(outcome, config.run.directory));
  }
  return static_cast<int>(outcome == TrainOutcome::completed ? ExitCode::ok : ExitCode::stopped);
}

// Of a dry run that is not told them, where the layout depends on them; 0: the config names no cluster.
Index ranks_per_node_of_cluster(const RunConfig& config) {
  return config.layout.shard_over == ShardOver::all || config.run.cluster.empty()
             ? 0
             : cluster_from(config.run.cluster).devices_per_node;
}

}  // namespace

void add_train(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<TrainArguments>();
  CLI::App* const command = app.add_subcommand("train", "Train a model, or resume it from its newest checkpoint");
  command->add_option("config", options->config, "TOML file; every key is in docs/config.md")->required(false);
  command->add_option("overrides", options->overrides, "section.key=value; overrides the file");
  command->add_option("--resume", options->train.resume,
                      "auto (default): the newest complete checkpoint; never; or the directory of a checkpoint or a "
                      "run with the same config");
  command->add_option("--init-from", options->train.init_from,
                      "start a new run with the weights of this checkpoint, run or Hugging Face directory; later the "
                      "same command resumes from the run's own checkpoints");
  command
      ->add_option("--stop-after", options->train.stop_after,
                   "save and stop after this many steps of this launch (exit 75); 0 (default): no limit")
      ->check(at_least(0));
  command->add_flag("--retry", options->train.retry, "launch even if earlier launches made no progress (exit 93)");
  command->add_flag("--new-data", options->train.new_data,
                    "resume even if the token files are not those of the checkpoint");
  one_value_each(*command->add_option("--emulate", options->emulate,
                                      "for tests: emulate the times of another machine; TOML file with a section "
                                      "[emulate], or key=value; may be repeated"));
  command->add_option("--replay", options->replay,
                      "compute the step of RUN/incidents/... again, on one rank, sample by sample; its config is used");
  command->add_flag("--keys", options->keys,
                    "print every key of a config with its default and meaning; with --emulate: the keys of [emulate]");
  command->add_flag("--dry-run", options->dry_run, "print layout, memory and schedule, but do not train");
  command->add_flag("--events", options->events, "with --dry-run: print the order of all operations of a step");
  const CLI::Option* const ranks =
      command->add_option("--ranks", options->ranks, "with --dry-run: number of ranks; default: those of mpiexec, or 1")
          ->check(between(1, most_ranks));
  const CLI::Option* const ranks_per_node =
      command
          ->add_option(
              "--ranks-per-node", options->ranks_per_node,
              "with --dry-run: ranks per node, for parallel.shard_over = \"node\"; default: those of run.cluster")
          ->check(between(1, most_ranks));
  add_gpu_options(*command);
  command->footer(
      "  espalier train examples/quickstart.toml\n"
      "  mpiexec -n 2 espalier train run.toml parallel.tensor=2 run.steps=500\n"
      "  espalier train --replay run/incidents/step-00000123-sample-00000984");
  command->callback([options, ranks, ranks_per_node, command, &chosen] {
    refuse_empty_values(*command);
    if (options->events && !options->dry_run)
      throw CLI::ValidationError("--events", "belongs to --dry-run, which trains nothing");
    if (!options->emulate.empty() && !options->replay.empty())
      throw CLI::ValidationError("--emulate", "does nothing in a --replay");
    if (ranks->count() > 0 && !options->dry_run)
      throw CLI::ValidationError("--ranks", "belongs to --dry-run; mpiexec -n gives a run its ranks");
    if (ranks_per_node->count() > 0 && !options->dry_run)
      throw CLI::ValidationError("--ranks-per-node", "belongs to --dry-run; a run sees its nodes");
    chosen.prints_only = options->dry_run || options->keys;
    chosen.needs_runtime = !chosen.prints_only;
    chosen.resumes = chosen.needs_runtime && options->replay.empty();
    chosen.action = [options, &chosen](Runtime* runtime) {
      if (options->keys) {
        print_answer(
            "{}", options->emulate.empty() ? to_toml(RunConfig{}) : all_emulate_keys(read_emulation(options->emulate)));
        return 0;
      }
      if (!options->replay.empty()) {
        std::vector<std::string> overrides = options->overrides;
        if (!options->config.empty())  // the first argument; no file is wanted
          overrides.insert(overrides.begin(), options->config);
        return replay_command(options->replay, overrides, *runtime);
      }
      std::error_code missing;
      const bool is_setting =
          options->config.find('=') != std::string::npos && !std::filesystem::exists(options->config, missing);
      if (options->config.empty() || is_setting)
        throw Error(ExitCode::usage, {.what = "no config is given",
                                      .got = options->config,
                                      .wanted = "a TOML file, before the settings that override it",
                                      .todo = "espalier train --help"});
      if (!options->train.init_from.empty())
        std::ranges::copy(settings_from_hugging_face(options->train.init_from, options->config, options->overrides),
                          std::back_inserter(options->overrides));
      if (!options->dry_run)
        return train_command(*options, *runtime, chosen.launching);
      RunConfig config = read_run_config(options->config, options->overrides, options->ranks, Libraries::known,
                                         read_emulation(options->emulate));
      config.ranks_per_node = options->ranks_per_node > 0 ? options->ranks_per_node : ranks_per_node_of_cluster(config);
      if constexpr (!exec_is_host)  // NCCL sums over all ranks at once
        config.max_summed_at_once = options->ranks;
      require_init_from(config, options->train);
      return dry_run(config, options->ranks, options->events);
    };
  });
}

}  // namespace espalier
