// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Samples of text in training: right on any layout, and noticed by nothing.
#include <gtest/gtest.h>

#include "io/records/metrics_csv.hpp"
#include "io/text/byte_tokenizer.hpp"
#include "tests/support/allclose.hpp"
#include "tests/training/run_starts.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/loop/text_samples.hpp"
#include "training/pretrained/loaded_model.hpp"

namespace espalier::test {
namespace {

// Every axis, chunks that share a rank, split norms, a shared optimizer state, an uneven vocabulary (61).
std::vector<std::vector<std::string>> sampled_layouts() {
  if (world().size() == 4)
    return {{"parallel.tensor=2", "parallel.pipeline=2", "parallel.sequence_parallel=true"},
            {"parallel.pipeline=2", "parallel.zero_stage=1", "parallel.schedule=\"interleaved\"",
             "parallel.virtual_stages=2", "model.num_layers=4"},
            {"parallel.pipeline=2", "parallel.schedule=\"zero_bubble\"", "parallel.order=\"tp,pp,dp\""}};
  if (world().size() == 2)
    return {{"parallel.zero_stage=3"}, {"parallel.tensor=2"}, {"parallel.pipeline=2", "model.tied_embeddings=true"}};
  return {{}};
}

const std::vector<std::string> sampling_keys = {
    "run.sample_interval=3", "run.sample_prompts=[\"12 3\", \"\", \"012345678901234567890123456789\"]",
    "run.sample_tokens=5"};

RunConfig with_samples(const RunConfig& config, const std::vector<std::string>& layout) {
  std::vector<std::string> keys = layout;
  keys.insert(keys.end(), sampling_keys.begin(), sampling_keys.end());
  return laid_out(config, keys);
}

bool never_stop() { return false; }

TEST(TextSamples, LogitsAreThoseOfTheWholeModel) {
  const SharedFolder folder("logits");
  const RunConfig base = tiny_config(folder, world().size(), {"precision.compute=fp64"});
  for (const std::vector<std::string>& layout : sampled_layouts()) {
    const RunConfig config = laid_out(base, layout);
    TrainerOn<Fp64> on(config, world());
    on.trainer.step();
    const Index length = config.sequence_length;
    Batch batch;
    batch.batch_size = 2;
    batch.sequence_length = length;
    batch.targets.assign(static_cast<std::size_t>(2 * length), -1);
    for (Index i = 0; i < 2 * length; ++i)
      batch.inputs.push_back(static_cast<TokenId>((7 * i + i * i) % 61));
    const std::vector<Index> rows = {4, length + 23};
    const std::vector<float> logits = on.trainer.next_logits(batch, rows);
    ASSERT_EQ(logits.size(), 2U * 61);
    const CheckpointReader checkpoint(
        save_training_state(folder / "checkpoints", on.trainer, config, on.mesh, "run", ownership_of(on.trainer)));
    LoadedModel<Fp64> whole(checkpoint, 0);
    whole.allocate_cache(2, length);
    const auto wanted = whole.next_logits({{0, std::span(batch.inputs).first(5)},
                                           {1, std::span(batch.inputs).subspan(static_cast<std::size_t>(length), 24)}});
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(allclose(
          Values(logits.begin() + static_cast<Index>(i) * 61, logits.begin() + (static_cast<Index>(i) + 1) * 61),
          Values(wanted[i].begin(), wanted[i].end()), 1e-6));
  }
}

// The same losses and norms, to the last bit.
template <class P>
void expect_unnoticed(const RunConfig& config) {
  const ByteTokenizer tokenizer;
  const Curve wanted = train_curve<P>(config, world(), 4);
  TrainerOn<P> on(config, world());
  Curve curve;
  std::vector<std::vector<TextSample>> samples;
  for (int step = 0; step < 4; ++step) {
    const StepReport report = on.trainer.step();
    curve.losses.push_back(report.loss);
    curve.norms.push_back(report.gradient_norm);
    samples.push_back(
        sample_texts(on.trainer, config, world().rank() == 0 ? &tokenizer : nullptr, world(), never_stop).value());
  }
  EXPECT_EQ(curve, wanted);
  for (const std::vector<TextSample>& texts : samples) {
    ASSERT_EQ(texts.size(), world().rank() == 0 ? 3U : 0U);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(texts[i].prompt, config.run.sample_prompts[i]);
      EXPECT_EQ(texts[i].text.size(), 5U);
    }
  }
}

TEST(TextSamples, TrainingNoticesNothing) {
  const SharedFolder folder("unnoticed");
  const RunConfig base = tiny_config(folder, world().size(), {"model.residual_dropout=0.1", "run.seed=4"});
  for (const std::vector<std::string>& layout : sampled_layouts()) {
    const RunConfig config = with_samples(base, layout);
    expect_unnoticed<Fp32>(config);
    expect_unnoticed<Bf16WithFp32Residual>(laid_out(config, {"precision.compute=bf16", "precision.residual=state"}));
    expect_unnoticed<Fp16>(laid_out(config, {"precision.compute=fp16"}));
    expect_unnoticed<Fp32>(laid_out(config, {"data.documents=separate", "data.document_end=17"}));
  }
}

TEST(TextSamples, AreTheSameOnAnyLayout) {
  const SharedFolder folder("layouts");
  const RunConfig base = tiny_config(folder, world().size(), {"precision.compute=fp64", "run.sample_temperature=0"});
  const ByteTokenizer tokenizer;
  const auto texts_on = [&](const RunConfig& config, const Communicator& communicator) {
    TrainerOn<Fp64> on(config, communicator);
    for (int step = 0; step < 3; ++step)
      on.trainer.step();
    std::vector<std::string> texts;
    const auto samples = sample_texts(on.trainer, config, &tokenizer, communicator, never_stop);
    for (const TextSample& sample : samples.value())
      texts.push_back(sample.text);
    return texts;
  };
  const Communicator alone = world().split(world().rank(), 0, "alone");
  for (const std::vector<std::string>& layout : sampled_layouts()) {
    const RunConfig config = with_samples(base, layout);
    std::vector<std::string> one_rank = {"model.num_layers=" + std::to_string(config.model.shape.num_layers)};
    one_rank.insert(one_rank.end(), sampling_keys.begin(), sampling_keys.end());
    const std::vector<std::string> texts = texts_on(config, world());
    if (world().rank() == 0) {
      RunConfig single = parse_run_config(to_toml(base), "one rank", one_rank, 1);
      single.model.shape.tied_embeddings = config.model.shape.tied_embeddings;
      EXPECT_EQ(texts, texts_on(single, alone));
    }
  }
}

TEST(TextSamples, ARequestToStopEndsThem) {
  const SharedFolder folder("stop");
  const RunConfig config = with_samples(tiny_config(folder, world().size()), sampled_layouts().back());
  TrainerOn<Fp32> on(config, world());
  const ByteTokenizer tokenizer;
  int asked = 0;
  EXPECT_FALSE(sample_texts(on.trainer, config, &tokenizer, world(), [&] { return ++asked == 3; }).has_value());
  EXPECT_EQ(asked, 3);
}

std::vector<std::string> samples_of(const RunConfig& config) {
  std::vector<std::string> lines;
  for (const nlohmann::json& line : read_metrics(Path(config.run.directory) / "samples.jsonl"))
    lines.push_back(line.dump());
  return lines;
}

std::size_t lines_in(const Path& table) {
  const std::string text = read_file(table, ExitCode::data);
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

TEST(TextSamples, AResumedRunWritesThoseOfAWholeOne) {
  const SharedFolder folder("resumed");
  std::vector<std::string> keys = sampling_keys;
  keys.insert(keys.end(),
              {"run.metrics_csv=true", "run.tensorboard=true", "checkpoint.interval=2", "checkpoint.keep_last=9",
               "run.eval_interval=2", "data.validation=[\"" + write_tokens(folder / "val.bin", 200, 61) + "\"]"});
  const RunConfig whole = config_in(folder, "whole", keys);
  EXPECT_TRUE(start_run(whole, {}).says("step 3: 12 3"));
  const RunConfig parts = config_in(folder, "parts", keys);
  start_run(parts, stop_after(7));
  forget_good_end(parts.run.directory);
  on_root([&] {  // steps 5 to 7 are taken again
    for (const int step : {6, 7})
      std::filesystem::remove_all(Path(parts.run.directory) / fmt::format("checkpoints/step-{:08}", step));
  });
  start_run(parts, {});
  on_root([&] {
    ASSERT_EQ(samples_of(whole).size(), 6U);  // three after steps 3 and 6
    EXPECT_EQ(samples_of(parts), samples_of(whole));
    EXPECT_EQ(lines_in(folder / "parts/metrics.csv"), 9U);
    EXPECT_EQ(losses(parts), losses(whole));
    const std::filesystem::directory_iterator files(folder / "parts/tensorboard");
    EXPECT_EQ(std::distance(begin(files), end(files)), 2) << "a file a launch";
  });
}

TEST(TextSamples, ATokenizerThatDoesNotFitIsRefused) {
  const SharedFolder folder("refused");
  const std::string fixture = ESPALIER_SOURCE_DIR "/tests/io/text/gpt2_like.json";
  const auto start = [&](std::vector<std::string> keys, const std::vector<std::string>& more) {
    keys.insert(keys.end(), more.begin(), more.end());
    start_run(config_in(folder, "run", keys), {});
  };
  expect_refusal(ExitCode::data, {"another tokenizer", "byte", "gpt2_like.json"},
                 [&] { start({}, {"data.tokenizer=\"" + fixture + "\""}); });
  expect_refusal(ExitCode::usage, {"unknown tokenizer", "nowhere", "data.tokenizer"},
                 [&] { start({}, {"data.tokenizer=\"nowhere\""}); });
  expect_refusal(ExitCode::usage, {"run.sample_prompts[1]", "id 122"},
                 [&] { start(sampling_keys, {"run.sample_prompts=[\"1\", \"1z\"]"}); });
  const std::string others = write_tokens(folder / "others.bin", 500, 61, {}, "bpe-61-0123456789abcdef");
  expect_refusal(ExitCode::usage, {"need a tokenizer", "bpe-61-0123456789abcdef"},
                 [&] { start(sampling_keys, {"data.train=[\"" + others + "\"]"}); });
  EXPECT_FALSE(std::filesystem::exists(folder / "run/run.json")) << "nothing has begun";
}

TEST(TextSamples, ARunKeepsItsTokenizer) {
  const SharedFolder folder("kept");
  for (const char* const file : {"gpt2_like.json", "small.tiktoken"}) {
    const std::string fixture = std::string(ESPALIER_SOURCE_DIR "/tests/io/text/") + file;
    const std::string name = load_tokenizer(fixture)->name();
    const std::string tokens = write_tokens(folder / (std::string(file) + ".bin"), 500, 61, {}, name);
    const RunConfig config =
        config_in(folder, file, {"data.train=[\"" + tokens + "\"]", "data.tokenizer=\"" + fixture + "\""});
    start_run(config, stop_after(2));
    EXPECT_EQ(load_tokenizer((folder / file / "tokenizer").string())->name(), name);
    start_run(config_in(folder, file, {"data.train=[\"" + tokens + "\"]"}), {});  // it is there
    const std::string copy = std::string("from ") + file;
    start_run(config_in(folder, copy, {"data.train=[\"" + tokens + "\"]"}), init_from(folder / file));
    EXPECT_EQ(load_tokenizer((folder / copy / "tokenizer").string())->name(), name) << "from another run";
  }
}

}  // namespace
}  // namespace espalier::test
