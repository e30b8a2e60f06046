// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/console.hpp"
#include "app/evaluation_text.hpp"
#include "app/gpu_options.hpp"
#include "app/print.hpp"
#include "app/progress.hpp"
#include "app/stop_requests.hpp"
#include "app/stop_together.hpp"
#include "core/stopwatch.hpp"
#include "io/checkpoint/npy_file.hpp"
#include "io/json_fields.hpp"
#include "io/pack/json_text.hpp"
#include "io/tokens/text_loader.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/launch/runtime.hpp"
#include "training/checkpoint/checkpoint_tokenizer.hpp"
#include "training/checkpoint/stored_state.hpp"
#include "training/config/stored_config.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/loop/check_token_files.hpp"
#include "training/loop/evaluation.hpp"
#include "training/prediction/gemm_rate.hpp"
#include "training/prediction/require_memory.hpp"

namespace espalier {
namespace {

struct EvaluateArguments {
  std::string checkpoint;
  std::vector<std::string> data;
  std::string text;           ///< instead of data
  std::string tokenizer;      ///< of the text; empty: the checkpoint's
  Index sequence_length = 0;  ///< 0: the run's
  Index max_sequences = 0;    ///< 0: all
  Index micro_batch = 0;      ///< 0: the run's
  std::string precision;      ///< empty: the run's
  std::string logits;
  Index logits_sequences = 1;
  bool json = false;
};

// The checkpoint that is evaluated, and how.
struct Evaluated {
  std::string path;
  StoredState state;
  RunConfig config;  // one to run its model forward, with the options of the command
  std::optional<EvaluationText> text;
};

std::vector<TokenFile> open_files(const EvaluateArguments& options) {
  std::vector<TokenFile> files;
  for (const std::string& path : options.data)
    files.emplace_back(Path(path));
  return files;
}

void require_positions(const EvaluateArguments& options, const Evaluated& evaluated) {
  const Index most = evaluated.config.model.shape.max_sequence_length;
  if (options.sequence_length > most)
    throw Error(ExitCode::usage, {.what = "a sequence is longer than the positions of the model",
                                  .where = evaluated.path,
                                  .got = fmt::format("--sequence-length {}", options.sequence_length),
                                  .wanted = fmt::format("at most {}, its max_sequence_length", most),
                                  .todo = "shorten --sequence-length"});
}

void require_sequences(const std::vector<TokenFile>& files, Index length) {
  for (const TokenFile& file : files)
    if (file.num_tokens() <= length)
      throw Error(
          ExitCode::data,
          {.what = "a token file is shorter than one sequence",
           .where = file.info().path.string(),
           .got = fmt::format("{} tokens", file.num_tokens()),
           .wanted = fmt::format("at least {}: a sequence of {} and the target of its last token", length + 1, length),
           .todo = "lower --sequence-length, or name a longer file"});
}

// No larger than the share of a rank.
Index useful_micro_batch(const std::vector<TokenFile>& files, const Evaluated& evaluated,
                         const EvaluateArguments& options, int num_ranks) {
  const RunConfig& config = evaluated.config;
  Index sequences = evaluated.text ? std::ssize(evaluated.text->tokens) / config.sequence_length + 1 : 0;
  for (const TokenFile& file : files)
    sequences += (file.num_tokens() - 1) / config.sequence_length;
  if (options.max_sequences > 0)
    sequences = std::min(sequences, options.max_sequences);
  return std::min(config.layout.micro_batch, (sequences + num_ranks - 1) / num_ranks);
}

// Where both tokenizers are known.
void require_tokenizer(const std::vector<TokenFile>& files, const Evaluated& evaluated) {
  const std::string& learned = evaluated.state.tokenizer;
  for (const TokenFile& file : files)
    if (const std::string& own = file.info().tokenizer; !own.empty() && !learned.empty() && own != learned)
      throw Error(ExitCode::checkpoint, {.what = "the checkpoint's data were made with another tokenizer",
                                         .where = file.info().path.string(),
                                         .got = own,
                                         .wanted = fmt::format("{}, as in {}", learned, evaluated.path),
                                         .todo = "pack the text with the tokenizer of the checkpoint"});
}

bool has_rows(const TokenFile& file) { return file.info().row_length > 0; }

// Matmuls as in the run, if this program can, so that the loss is the run's to the last bits.
void use_libraries_of_run(const Evaluated& evaluated, const Communicator& world) {
  agree_on_libraries(evaluated.config, world);
  const std::string& stored = evaluated.state.matmul;
  if (stored.empty() || stored == to_string(matmul_library()))
    return;
  try {
    set_matmul_library(parse_matmul_library(stored));
  } catch (const Error&) {
    if (world.rank() == 0)
      note_to_stderr(fmt::format(
          "the run used the GEMM library {}, which this build does not have: the loss may differ by rounding", stored));
  }
}

void print_result(const EvaluateArguments& options, const Evaluated& evaluated, const EvaluationData& data,
                  const MeanLoss& mean, Index logits_rows) {
  const RunConfig& config = evaluated.config;
  const double loss = mean.loss;
  const double perplexity = std::exp(loss);
  const double bits_per_byte = evaluated.text ? loss * static_cast<double>(mean.valid_tokens) / std::numbers::ln2 /
                                                    static_cast<double>(evaluated.text->bytes)
                                              : 0;
  if (options.json) {
    nlohmann::ordered_json json = {{"checkpoint", evaluated.path},
                                   {"step", evaluated.state.step},
                                   {"data", options.data},
                                   {"loss", loss},
                                   {"perplexity", perplexity},
                                   {"tokens", mean.valid_tokens},
                                   {"sequences", data.num_samples},
                                   {"sequence_length", config.sequence_length},
                                   {"precision", to_string(config.layout.precision)}};
    if (evaluated.text) {
      json.erase("data");
      json.update({{"text", options.text},
                   {"tokenizer", evaluated.text->tokenizer},
                   {"bytes", evaluated.text->bytes},
                   {"bits_per_byte", bits_per_byte}});
    }
    if (!options.logits.empty())
      json["logits"] = {{"file", options.logits}, {"shape", {logits_rows, config.model.shape.vocab_size}}};
    name_non_finite(json["perplexity"]);
    print_answer("{}\n", json_text(json, 2));
    return;
  }
  print_answer("{} (step {}, {})\n", evaluated.path, evaluated.state.step, to_string(config.layout.precision));
  print_answer("  loss        {:.6f} nats per token\n  perplexity  {:.6g}\n", loss, perplexity);
  print_answer("  tokens      {} in {} of {}\n", mean.valid_tokens, counted(data.num_samples, "sequence"),
               config.sequence_length);
  if (evaluated.text)
    print_answer("  bits        {:.6f} per byte, of {} bytes\n", bits_per_byte, evaluated.text->bytes);
  if (!options.logits.empty())
    print_answer("  logits      {}: ({}, {}) fp32\n", options.logits, logits_rows, config.model.shape.vocab_size);
}

// The sequences of the files for rank `rank` of `size`.
SequentialLoader open_loader(std::vector<TokenFile> files, const RunConfig& config, Index micro_batch, int rank,
                             int size, Index max_sequences) {
  LoaderOptions loader{.micro_batch_size = micro_batch,
                       .sequence_length = config.sequence_length,
                       .rank = rank,
                       .size = size,
                       .vocab_size = config.model.shape.vocab_size,
                       .separate_documents = config.data.separates_documents()};
  if (config.data.document_end >= 0)
    loader.document_end = static_cast<TokenId>(config.data.document_end);
  if (loader.separate_documents)
    for (const TokenFile& file : files)
      require_documents(file, loader.document_end, "data.documents = \"separate\"");
  return {std::move(files), loader, max_sequences};
}

// Rank 0 writes the logits of the first sequences; the others wait with it for the end of each. @returns of how many,
// fewer than were wanted after a request to stop.
template <class P>
Index write_logits(LoadedModel<P>& model, const SequentialLoader& data, const RunConfig& config, NpyWriter* writer,
                   Index sequences, const Progress& progress, StopTogether& stop) {
  const Index length = config.sequence_length;
  if (writer != nullptr)
    model.allocate_activations(1, length, config.data.separates_documents());
  for (Index i = 0; i < sequences; ++i) {
    if (stop.asked())
      return i;
    progress.now(fmt::format("logits of sequence {} of {} ", i + 1, sequences));
    if (writer == nullptr)
      continue;
    const Batch batch = data.batch(i);
    model.visit_logits(
        batch.inputs, length, [&](std::span<const float> rows) { writer->append(rows); }, batch.positions);
  }
  return sequences;
}

template <class P>
int evaluate_as(const EvaluateArguments& options, const Communicator& world, LoadedModel<P>& model,
                const Evaluated& evaluated) {
  const RunConfig& config = evaluated.config;
  const Index length = config.sequence_length;
  std::optional<SequentialLoader> file_loader;
  std::optional<TextLoader> text_loader;
  EvaluationData data;
  Index micro_batch = 0;
  attempt_together(world, ExitCode::data, [&] {
    std::vector<TokenFile> files = open_files(options);
    require_tokenizer(files, evaluated);
    require_sequences(files, length);
    micro_batch = useful_micro_batch(files, evaluated, options, world.size());
    if (evaluated.text)
      data = EvaluationData::of(text_loader.emplace(
          evaluated.text->tokens,
          LoaderOptions{
              .micro_batch_size = micro_batch, .sequence_length = length, .rank = world.rank(), .size = world.size()}));
    else
      data = EvaluationData::of(file_loader.emplace(
          open_loader(std::move(files), config, micro_batch, world.rank(), world.size(), options.max_sequences)));
  });
  const Index logits_sequences = options.logits.empty() ? 0 : std::min(options.logits_sequences, data.num_samples);
  const Index logits_rows = logits_sequences * length;
  use_libraries_of_run(evaluated, world);
  hold_stop_requests();
  std::optional<NpyWriter> writer;
  if (logits_sequences > 0 && world.rank() == 0)
    writer.emplace(options.logits, logits_rows, config.model.shape.vocab_size);
  std::optional<MeanLoss> mean;
  StopTogether stop(world);
  {
    const Progress progress(fmt::format("evaluates {} on {}, {} of {} tokens", evaluated.path,
                                        counted(world.size(), "rank"), counted(data.num_samples, "sequence"), length),
                            world.rank() == 0);
    const Index written = logits_sequences == 0
                              ? 0
                              : write_logits(model, open_loader(open_files(options), config, 1, 0, 1, logits_sequences),
                                             config, writer ? &*writer : nullptr, logits_sequences, progress, stop);
    if (written < logits_sequences)
      return stop.end(fmt::format("the logits of {} of {}", written, counted(logits_sequences, "sequence")));
    attempt_together(world, ExitCode::memory,
                     [&] { model.allocate_activations(micro_batch, length, config.data.separates_documents()); });
    const Stopwatch stopwatch;
    Index done = 0;
    mean = evaluate_loss(model, data, world, [&](Index batches_done, Index batches) {
      done = batches_done;
      const double left =
          done == 0 ? 0 : stopwatch.seconds() / static_cast<double>(done) * static_cast<double>(batches - done);
      progress.now(fmt::format("batch {} of {}, left {} ", done, batches, duration_text(left)));
      return stop.asked();
    });
    if (!mean)
      return stop.end(fmt::format("{} of {}", done, counted(data.num_batches, "batch")));
  }
  if (!std::isfinite(mean->loss))
    throw Error(ExitCode::numerical, {.what = "the weights of a checkpoint give a loss that is not finite",
                                      .where = evaluated.path,
                                      .got = fmt::format("loss {}", std::abs(mean->loss)),
                                      .wanted = "finite weights, of a model that has not diverged",
                                      .todo = "evaluate it with --precision fp32, or name an older checkpoint"});
  attempt_together(world, ExitCode::write, [&] {
    if (writer)
      writer->finish();
  });
  release_stop_requests();
  if (world.rank() == 0)
    print_result(options, evaluated, data, *mean, logits_rows);
  return 0;
}

// The checkpoint's config says how it is computed in, so the type of its model is known only when it is open.
int evaluate(const EvaluateArguments& options, const Communicator& world) {
  attempt_together(world, ExitCode::write, [&] {
    if (world.rank() == 0 && !options.logits.empty())
      require_own_output(options.logits, npy_file_mark);
  });
  bool is_in_rows = false;
  attempt_together(world, ExitCode::data, [&] { is_in_rows = std::ranges::any_of(open_files(options), has_rows); });
  const std::size_t available_bytes = memory_of_a_rank(world);
  Evaluated evaluated;
  std::function<int()> run;
  load_newest(options.checkpoint, world, note_to_stderr, [&](const CheckpointReader& checkpoint) {
    run = {};  // frees what another checkpoint has filled
    evaluated = {checkpoint.path().string(), read_state(checkpoint), stored_forward(checkpoint, options.precision), {}};
    require_positions(options, evaluated);
    if (options.sequence_length > 0)
      evaluated.config.sequence_length = options.sequence_length;
    if (options.micro_batch > 0)
      evaluated.config.layout.micro_batch = options.micro_batch;
    evaluated.config.data.train.clear();
    evaluated.config.data.validation = options.data;
    if (is_in_rows || !options.text.empty())
      evaluated.config.data.documents =
          is_in_rows ? DocumentMode::separate : DocumentMode::joined;  // a text is one document
    if (!options.text.empty()) {
      evaluated.text = read_evaluation_text(options.text, *tokenizer_of(checkpoint, options.tokenizer),
                                            evaluated.config.model.shape.vocab_size);
      if (options.sequence_length == 0)  // no longer than the text
        evaluated.config.sequence_length =
            std::min(evaluated.config.sequence_length, std::ssize(evaluated.text->tokens) - 1);
    }
    with_precision(evaluated.config, [&]<class P>() {
      const auto model = std::make_shared<LoadedModel<P>>(checkpoint, available_bytes);
      run = [&options, &world, &evaluated, model] { return evaluate_as<P>(options, world, *model, evaluated); };
    });
  });
  if (options.text.empty())
    check_token_files(evaluated.config, world, note_to_stderr);
  return run();
}

}  // namespace

void add_evaluate(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<EvaluateArguments>();
  CLI::App* const command =
      app.add_subcommand("evaluate", "Compute loss and perplexity of a trained model on token files or a text");
  command->add_option("--checkpoint", options->checkpoint, "directory of a run, or of one checkpoint")->required();
  CLI::Option* const data = command->add_option(
      "--data", options->data, "token files; tokens after the last whole sequence of a file are left out");
  CLI::Option* const text = command->add_option("--text", options->text, "plain text file, instead of --data");
  text->excludes(data);
  CLI::Option* const tokenizer =
      command->add_option("--tokenizer", options->tokenizer,
                          "tokenizer for --text: a file, or a directory with one; default: that of the checkpoint");
  command
      ->add_option("--sequence-length", options->sequence_length,
                   "tokens of a sequence, at most the model's positions; default: batch.sequence_length of the run")
      ->check(at_least(1));
  CLI::Option* const most = command
                                ->add_option("--max-sequences", options->max_sequences,
                                             "only the first sequences, this many; 0 (default): all")
                                ->check(at_least(0));
  command
      ->add_option("--micro-batch", options->micro_batch,
                   "sequences per forward pass of a rank; default: batch.micro_batch_size of the run")
      ->check(between(1, LargestModel::batch));
  command->add_option("--precision", options->precision, "type to compute in, if not precision.compute of the run")
      ->check(CLI::IsMember(compute_type_names()));
  CLI::Option* const logits = command->add_option(
      "--logits", options->logits,
      "write the logits of the first sequences to this file, for numpy.load(): (tokens, vocabulary) in fp32");
  CLI::Option* const sequences =
      command
          ->add_option("--logits-sequences", options->logits_sequences, "with --logits: number of sequences; default 1")
          ->check(at_least(1));
  command->add_flag("--json", options->json, "print the result as JSON");
  add_gpu_options(*command);
  command->footer(
      "  espalier evaluate --checkpoint runs/quickstart --data val.bin\n"
      "  mpiexec -n 2 espalier evaluate --checkpoint RUN --data val.bin   # half each\n"
      "  espalier evaluate --checkpoint RUN --text book.txt --json");
  command->callback([=, &chosen] {
    refuse_empty_values(*command);
    if (data->count() + text->count() == 0)
      throw CLI::RequiredError("--data or --text");
    if (tokenizer->count() > 0 && text->count() == 0)
      throw CLI::ValidationError("--tokenizer", "belongs to --text");
    if (text->count() > 0 && logits->count() + most->count() > 0)
      throw CLI::ValidationError("--text", "is evaluated as a whole, without --logits and --max-sequences");
    if (sequences->count() > 0 && logits->count() == 0)
      throw CLI::ValidationError("--logits-sequences", "belongs to --logits");
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime* runtime) { return evaluate(*options, runtime->world()); };
  });
}

}  // namespace espalier
