// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify/verify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/gpu_options.hpp"
#include "app/print.hpp"
#include "core/error.hpp"
#include "io/config/toml_config.hpp"
#include "io/units.hpp"
#include "parallel/launch/runtime.hpp"
#include "training/config/config_warnings.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/gemm_rate.hpp"
#include "training/verify/layouts_to_verify.hpp"
#include "training/verify/saved_reference.hpp"

namespace espalier {
namespace {

struct VerifyArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string precision;
  std::string reference;
  std::string save;
  std::string injected = "none";
  bool shrink = false;
  VerifyOptions verify;
};

// "data=2,tensor=2" as overrides of [parallel].
std::vector<std::string> reference_overrides(const std::string& text) {
  std::vector<std::string> overrides;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    overrides.push_back("parallel." + text.substr(begin, end - begin));
    begin = end + 1;
  }
  return overrides;
}

InjectedFault injected_fault(const std::string& name) {
  const auto found = std::find(injected_fault_names.begin(), injected_fault_names.end(), name);
  return static_cast<InjectedFault>(found - injected_fault_names.begin());
}

std::string cell(const LargestError& error, double tolerance) {
  return fmt::format("{:>9.1e}{}", error.value, error.value <= tolerance ? ' ' : '!');
}

void print_header(double tolerance, const VerifyOptions& options) {
  print_answer("{}{}, relative errors, tolerance {:g}; ! = above it\n\n", counted(options.steps, "step"),
               options.against.empty() ? "" : " of " + options.against, tolerance);
  print_answer("{:<74}{:>10}{:>10}{:>10}{:>10}{:>10}  worst tensor\n", "layout", "loss ", "norm ", "gradient ",
               "update ", "copies ");
}

void print_row(const VerifiedLayout& layout, double tolerance) {
  if (!layout.skipped.empty())
    return;  // listed below the table
  const LayoutErrors& e = layout.errors;
  const LargestError& worst = e.copies.value > tolerance   ? e.copies
                              : e.update.value > tolerance ? e.update
                                                           : e.gradient;
  print_answer("{:<74}{}{}{}{}{}  {}\n", layout.text, cell(e.loss, tolerance), cell(e.gradient_norm, tolerance),
               cell(e.gradient, tolerance), cell(e.update, tolerance), cell(e.copies, tolerance), worst.where);
  std::fflush(stdout);
}

// The largest error of each quantity over all layouts, and where it is.
void print_largest(const std::vector<VerifiedLayout>& results) {
  struct Quantity {
    const char* name;
    LargestError LayoutErrors::*error;
  };
  print_answer("\nlargest of all layouts\n");
  for (const auto& [name, error] :
       {Quantity{"loss", &LayoutErrors::loss}, Quantity{"norm", &LayoutErrors::gradient_norm},
        Quantity{"gradient", &LayoutErrors::gradient}, Quantity{"update", &LayoutErrors::update},
        Quantity{"copies", &LayoutErrors::copies}}) {
    LargestError largest;
    std::string layout;
    for (const VerifiedLayout& result : results)
      if (const LargestError& own = result.errors.*error; !(own.value <= largest.value)) {  // also NaN
        largest = own;
        layout = result.text;
      }
    print_answer("  {:<10}{:>7.1e}{}{}\n", name, largest.value, largest.where.empty() ? "" : "  " + largest.where,
                 layout.empty() ? "" : ", " + layout);
  }
}

void print_skipped(const std::vector<VerifiedLayout>& results) {
  std::map<std::string, std::vector<std::string>> by_cause;
  for (const VerifiedLayout& result : results)
    if (!result.skipped.empty())
      by_cause[result.skipped].push_back(result.text);
  for (const auto& [cause, layouts] : by_cause)
    print_answer("\nskipped, {}: {}\n  {}\n", counted(static_cast<Index>(layouts.size()), "layout"), cause,
                 fmt::join(layouts, "\n  "));
}

// The overrides stand for what the user wrote behind --reference: neither their keys nor a text in memory is a place.
void require_reference(const RunConfig& config, const std::string& reference, int num_ranks) {
  try {
    parse_run_config(to_toml(config), "config", reference_overrides(reference), num_ranks);
  } catch (const Error& error) {
    std::istringstream lines(error.report().what);
    std::string problems;
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);)
      problems += "\n  " + line.substr(line.find(": ") + 2);  // behind the place
    throw Error(ExitCode::usage,
                {.what = "the layout of --reference cannot be used" + (problems.empty() ? "" : ":" + problems),
                 .got = "--reference " + reference,
                 .wanted = fmt::format("keys of [parallel] for {}, like data=2,tensor=2", counted(num_ranks, "rank"))});
  }
}

// A fault that no layout has a place for would be "not found".
void require_breakable(InjectedFault fault, const RunConfig& config, int num_ranks) {
  for (const std::vector<std::string>& settings : settings_to_verify(config, num_ranks))
    try {
      if (can_break(fault, parse_run_config(to_toml(config), "layout", settings, num_ranks)))
        return;
    } catch (const Error&) {  // this layout will be skipped
    }
  throw Error(ExitCode::usage, {.what = fmt::format("this model has no {} to break on {}", broken_part(fault),
                                                    counted(num_ranks, "rank")),
                                .got = fmt::format("--inject {}", to_string(fault)),
                                .wanted = "a model and a number of ranks with such a part",
                                .todo = "inject another fault, or start another number of ranks"});
}

int verify_command(const VerifyArguments& options, Runtime& runtime) {
  if (runtime.size() == 1 && options.save.empty() && options.verify.against.empty())
    throw Error(ExitCode::usage, {.what = "one rank has only one layout, so there is nothing to compare",
                                  .got = "1 rank",
                                  .wanted = "2 or more",
                                  .todo = "mpiexec -n 4 espalier verify " + options.config +
                                          ", or name what another build has saved: --against"});
  std::vector<std::string> overrides = options.overrides;
  // The layouts are this command's to choose; the first is plain data parallelism or any other that fits the batch.
  const std::vector<std::string> one_rank = one_rank_settings();
  overrides.insert(overrides.end(), one_rank.begin(), one_rank.end());
  overrides.emplace_back("stability.on_spike=continue");  // a step is compared, whatever it looks like
  if (!options.precision.empty())
    overrides.push_back("precision.compute=" + options.precision);
  RunConfig config = read_run_config(options.config, overrides, 1);
  if (options.shrink)
    config = shrunk(config);
  VerifyOptions verify_options = options.verify;
  verify_options.injected = injected_fault(options.injected);
  verify_options.reference = reference_overrides(options.reference);
  if (!options.reference.empty())
    require_reference(config, options.reference, runtime.size());
  if (verify_options.tolerance <= 0)
    verify_options.tolerance = default_tolerance(config.layout.precision);
  if (const InjectedFault fault = injected_fault(options.injected); fault != InjectedFault::none)
    require_breakable(fault, config, runtime.size());
  const double tolerance = verify_options.tolerance;
  const Communicator& world = runtime.world();
  world.set_deadline(config.run.communication_timeout);
  agree_on_libraries(config, world);
  if (runtime.rank() == 0)
    for (const std::string& warning : compute_warnings(config))
      note_to_stderr("warning: " + warning);
  if (!options.save.empty()) {
    save_reference(config, verify_options, world, options.save,
                   [](const std::string& text) { print_answer("{}\n", text); });
    return static_cast<int>(ExitCode::ok);
  }
  if (!verify_options.against.empty())
    verify_options.steps = SavedReference(verify_options.against, config, world).num_steps();
  if (runtime.rank() == 0)
    print_header(tolerance, verify_options);
  const auto done = [&](const VerifiedLayout& layout) { print_row(layout, tolerance); };
  const std::vector<VerifiedLayout> results = verify(config, verify_options, world, done);
  int failed = 0;
  int ran = 0;
  for (const VerifiedLayout& layout : results) {
    ran += layout.skipped.empty() ? 1 : 0;
    failed += layout.skipped.empty() && !(layout.errors.worst() <= tolerance) ? 1 : 0;
  }
  if (runtime.rank() == 0) {
    print_largest(results);
    print_skipped(results);
    print_answer("\n{} of {} layouts train the model of the reference; {} skipped\n", ran - failed, ran,
                 static_cast<int>(results.size()) - ran);
  }
  if (ran == 0)
    throw Error(ExitCode::usage, {.what = "verify has compared no layout",
                                  .where = options.config,
                                  .got = fmt::format("{} ranks, and a batch of {} sequences", runtime.size(),
                                                     config.layout.global_batch),
                                  .wanted = "a number of ranks that divides heads, layers or the batch",
                                  .todo = "see above why each layout was skipped; use another number of ranks, or "
                                          "batch.global_batch_size=N"});
  return static_cast<int>(failed == 0 ? ExitCode::ok : ExitCode::numerical);
}

}  // namespace

void add_verify(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<VerifyArguments>();
  std::vector<std::string> tolerances;
  for (const Precision precision : compute_types)
    tolerances.push_back(fmt::format("{:g} in {}", default_tolerance(precision), to_string(precision)));
  CLI::App* const command =
      app.add_subcommand("verify", "Check that every layout possible on these ranks trains the same model as one rank");
  command->add_option("config", options->config, "TOML file, as for train")->required();
  command->add_option("overrides", options->overrides, "section.key=value; overrides the file");
  CLI::Option* const steps =
      command->add_option("--steps", options->verify.steps, "steps of each layout; default 2")->check(at_least(1));
  command->add_option("--precision", options->precision, "type to compute in; fp64 is the strictest")
      ->check(CLI::IsMember(compute_type_names()));
  command
      ->add_option("--tolerance", options->verify.tolerance,
                   fmt::format("largest relative error; default {}", fmt::join(tolerances, ", ")))
      ->check(float_between(0, 1));
  CLI::Option* const reference =
      command->add_option("--reference", options->reference,
                          "layout of all ranks to compare with, such as \"data=2,tensor=2\", if one rank is too small");
  CLI::Option* const save =
      command->add_option("--save", options->save, "run only the reference and write its steps into this folder");
  command
      ->add_option("--against", options->verify.against,
                   "compare with the steps in this folder, which another build saved; one rank is enough")
      ->excludes(steps, reference, save);
  command->add_flag("--shrink", options->shrink, "verify a smaller model of the same kind");
  command->add_option("--inject", options->injected, "inject a fault, to check that it is found")
      ->excludes(save)
      ->check(CLI::IsMember(std::vector<std::string>(injected_fault_names.begin(), injected_fault_names.end())));
  add_gpu_options(*command);
  command->footer(
      "  mpiexec -n 4 espalier verify run.toml --shrink --precision fp64\n"
      "  espalier verify run.toml --save on-a-cpu               # a build for CPUs\n"
      "  espalier verify run.toml --against on-a-cpu            # one for GPUs");
  command->callback([options, command, &chosen] {
    refuse_empty_values(*command);
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime* runtime) { return verify_command(*options, *runtime); };
  });
}

}  // namespace espalier
