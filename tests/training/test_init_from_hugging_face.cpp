// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A run starts from a Hugging Face directory: in every layout it holds what it would hold after an import.
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "tests/training/hugging_face_models.hpp"
#include "tests/training/run_starts.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/pretrained/hugging_face_init.hpp"

namespace espalier::test {
namespace {

// A model in HF format and as an import, shared by the ranks.
class ForeignModel {
 public:
  explicit ForeignModel(const std::string& name) : folder_("init_from_" + name) {
    on_root([&] {
      write_model(directory(), transformers_references().at(name), ScalarType::fp32, {.shard_bytes = 20000});
      import_hugging_face(HuggingFaceWeights(directory()), directory(), folder_ / "import");
      write_bytes(folder_ / "empty.toml", "");
    });
  }

  Path directory() const { return folder_ / "model"; }
  Path import() const { return folder_ / "import"; }
  const SharedFolder& folder() const { return folder_; }

  std::vector<std::string> settings(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = settings_from_hugging_face(directory(), folder_ / "empty.toml", {});
    all.insert(all.end(), more.begin(), more.end());
    all.emplace_back("batch.sequence_length=12");
    return all;
  }

  RunConfig config(const std::string& run, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = settings(more);
    all.insert(all.end(), {"data.train=[\"" + write_tokens(folder_ / "tokens.bin", 5000, 59) + "\"]", "run.steps=4",
                           "batch.global_batch_size=8", "batch.micro_batch_size=2", "run.matmul=tiled",
                           "run.directory=\"" + (folder_ / run).string() + "\""});
    return parse_run_config("", "tiny", all, world().size());
  }

 private:
  SharedFolder folder_;
};

std::vector<std::vector<std::string>> layouts_here() {
  switch (world().size()) {
    case 1: return {{}};
    case 2: return {{"parallel.tensor=2"}, {"parallel.pipeline=2"}, {"parallel.data=2", "parallel.zero_stage=3"}};
    default:
      return {{"parallel.tensor=2", "parallel.pipeline=2"},
              {"parallel.tensor=2", "parallel.data=2", "parallel.zero_stage=1", "parallel.sequence_parallel=true"}};
  }
}

template <class P>
void expect_weights_of_the_import(const ForeignModel& model, const std::vector<std::string>& layout) {
  const RunConfig config = model.config("run", layout);
  const TrainerOn<P> ours(config, world()), imported(config, world());
  load_hugging_face_weights(model.directory(), config, world(), ours.trainer);
  const auto tensors = model_tensors(world(), imported.trainer.parameters());
  load_weights(CheckpointReader(model.import() / "checkpoints/step-00000000"), imported.trainer, tensors);
  Kokkos::fence();
  EXPECT_EQ(on_host(ours.trainer.store().flat_weights()), on_host(imported.trainer.store().flat_weights()));
  EXPECT_EQ(on_host(ours.trainer.optimizer().master_weights()), on_host(imported.trainer.optimizer().master_weights()));
}

class InitFromHuggingFaceModels : public testing::TestWithParam<std::string> {};

TEST_P(InitFromHuggingFaceModels, HoldWhatAnImportHolds) {
  const ForeignModel model(GetParam());
  for (const std::vector<std::string>& layout : layouts_here()) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    expect_weights_of_the_import<Fp32>(model, layout);
    expect_weights_of_the_import<Bf16>(model, layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, InitFromHuggingFaceModels,
                         testing::Values("gpt2", "llama", "mistral", "qwen2", "qwen3"),
                         [](const auto& model) { return model.param; });

TEST(InitFromHuggingFace, ARunTrainsAsAfterAnImport) {
  const ForeignModel model("gpt2");
  for (std::size_t i = 0; const std::vector<std::string>& layout : layouts_here()) {
    const RunConfig direct = model.config(fmt::format("direct{}", i), layout);
    const RunConfig imported = model.config(fmt::format("imported{}", i++), layout);
    EXPECT_TRUE(start_run(direct, init_from(model.directory())).says("weights from", "(Hugging Face)"));
    start_run(imported, init_from(model.import()));
    EXPECT_EQ(losses(direct), losses(imported));
    EXPECT_TRUE(start_run(direct, init_from(model.directory())).says("was for the first launch"));
  }
}

TEST(InitFromHuggingFace, AConfigWithoutAModelTakesThatOfTheDirectory) {
  const ForeignModel model("gpt2");
  const Path file = model.folder() / "run.toml";
  const auto settings = [&](const std::string& text, const std::vector<std::string>& overrides = {}) {
    on_root([&] { write_bytes(file, text); });
    return settings_from_hugging_face(model.directory(), file, overrides);
  };
  const RunConfig config = model.config("run");
  EXPECT_EQ(config.model.shape, read_hugging_face_config(model.directory()).config);
  EXPECT_EQ(settings("[run]\nsteps = 3\n"),
            settings_from_hugging_face(model.directory(), model.folder() / "empty.toml", {"run.steps=4"}));
  EXPECT_TRUE(settings("[model]\npreset = \"gpt2-124m\"\n").empty()) << "then [model] describes it";
  EXPECT_EQ(settings("[model]\nnum_layers = 2\n").size() + 1, settings("").size());
  EXPECT_EQ(settings("", {"rotary.theta=500"}).size() + 1, settings("").size());
  const std::vector<std::string> shorter = settings("[model]\nmax_sequence_length = 8\n");
  EXPECT_FALSE(shorter.empty());
  EXPECT_EQ(std::ranges::count_if(shorter, [](const auto& text) { return text.starts_with("model.max_seq"); }), 0);
  const auto length_in = [](const std::vector<std::string>& texts) {
    return std::ranges::count(texts, "batch.sequence_length=16");  // of the model: it is less than the usual 2048
  };
  EXPECT_EQ(length_in(settings("")), 1);
  EXPECT_EQ(length_in(shorter), 0);
  EXPECT_EQ(length_in(settings("", {"batch.sequence_length=12"})), 0);
  const std::vector<std::string> dropping = settings("", {"model.residual_dropout=0.1"});
  EXPECT_EQ(std::ranges::count_if(dropping, [](const auto& text) { return text.starts_with("model.residual_"); }), 0);
  EXPECT_EQ(dropping.size() + 1, settings("").size());
  EXPECT_TRUE(settings_from_hugging_face(model.import(), file, {}).empty()) << "an import is none of Hugging Face";
  EXPECT_TRUE(settings_from_hugging_face(model.folder() / "nowhere", file, {}).empty());
}

TEST(InitFromHuggingFace, AnotherModelIsRefused) {
  const ForeignModel model("gpt2");
  const RunConfig config = model.config("run", {"model.num_heads=2", "model.norm_eps=1e-3"});
  expect_refusal(ExitCode::usage, {"model.num_heads=2, and config.json says 4", "model.norm_eps=0.001"},
                 [&] { start_run(config, init_from(model.directory())); });
  const RunConfig shorter = model.config("run", {"model.max_sequence_length=12"});
  expect_refusal(ExitCode::usage, {"model.max_sequence_length=12, and config.json says 16"},
                 [&] { start_run(shorter, init_from(model.directory())); });
  // Words for what is so without them.
  const RunConfig same = model.config("same", {"model.num_kv_heads=4", "model.head_dim=8", "model.qkv_bias=true"});
  EXPECT_TRUE(start_run(same, init_from(model.directory())).says("weights from"));
  const RunConfig dropping = model.config("dropping", {"model.attention_dropout=0.3"});
  EXPECT_TRUE(start_run(dropping, init_from(model.directory())).says("weights from"));
  EXPECT_TRUE(start_run(model.config("from_import", {"model.attention_dropout=0.3"}), init_from(model.import()))
                  .says("weights from"));
}

TEST(InitFromHuggingFace, WeightsThatCannotBeUsedAreRefused) {
  const ForeignModel model("gpt2");
  on_root([&] {
    Path first;
    for (const auto& entry : std::filesystem::directory_iterator(model.directory()))
      if (entry.path().extension() == ".safetensors" && (first.empty() || entry.path() < first))
        first = entry.path();
    std::fstream file(first, std::ios::in | std::ios::out | std::ios::binary);
    const float number = std::numeric_limits<float>::infinity();
    file.seekp(-4, std::ios::end);
    file.write(reinterpret_cast<const char*>(&number), 4);
  });
  expect_refusal(ExitCode::data, {"not finite"}, [&] { start_run(model.config("run"), init_from(model.directory())); });
  on_root([&] { std::filesystem::remove(model.directory() / "model.safetensors.index.json"); });
  expect_refusal(ExitCode::data, {"model.safetensors"},
                 [&] { start_run(model.config("run"), init_from(model.directory())); });
}

}  // namespace
}  // namespace espalier::test
