// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Models of Hugging Face against transformers, by the constants of transformers_reference.py, which says what is
// computed: the weights and tokens here are its closed forms.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/optim/adamw.hpp"
#include "models/decoder.hpp"
#include "tests/support/allclose.hpp"
#include "tests/training/hugging_face_models.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/config/stored_config.hpp"
#include "training/pretrained/hugging_face_config.hpp"

namespace espalier::test {
namespace {

constexpr Index batch = 2, length = 9;

struct Batch {
  std::vector<TokenId> inputs, targets;
};

Batch tokens(Index vocab_size) {
  Batch tokens;
  for (Index b = 0; b < batch; ++b)
    for (Index t = 0; t < length; ++t) {
      const auto token = [&](Index at) {
        return static_cast<TokenId>(reference_hash(1000, static_cast<std::uint32_t>(b * (length + 1) + at)) %
                                    vocab_size);
      };
      tokens.inputs.push_back(token(t));
      tokens.targets.push_back(token(t + 1));
    }
  return tokens;
}

// Loss, logits and gradients of an imported model.
template <class P>
class Imported {
 public:
  explicit Imported(const Path& checkpoint)
      : config_(stored_model(CheckpointReader(checkpoint))), model_(store_, config_) {
    store_.allocate();
    load_weights(CheckpointReader(checkpoint), store_);
    model_.plan_activations(batch, length, 1);
  }

  double loss() {
    const Batch given = tokens(config_.vocab_size);
    Kokkos::deep_copy(model_.loss(), 0.0);
    model_.begin_gradients(exec_);
    const double each = 1.0 / static_cast<double>(batch * length);
    model_.forward(exec_, {}, {given.inputs.data(), given.targets.data()}, {each, each});
    model_.backward(exec_, {});
    Kokkos::fence();
    return on_host(model_.loss())[0];
  }

  // The losses of steps on the same tokens.
  Values train(Index steps) {
    const AdamW<Compute<P>> optimizer(store_, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
    const Tensor<double, 0> clip("espalier::workspace::clip");
    Kokkos::deep_copy(clip, 1.0);
    Values losses;
    for (Index step = 1; step <= steps; ++step) {
      losses.push_back(loss());
      optimizer.step(exec_, 1e-2, clip, step);
    }
    Kokkos::fence();
    return losses;
  }

  Values logits() {
    Values all;
    model_.plan_activations(1, length, 1);
    const Batch given = tokens(config_.vocab_size);
    for (Index b = 0; b < batch; ++b) {
      const auto first = given.inputs.begin() + b * length;
      model_.evaluate(exec_, {first, first + length});
      const Matrix<Compute<P>> rows = model_.evaluated_logits(exec_, 0, length);
      Kokkos::fence();
      const Tensor<Compute<P>, 1> flat(rows.data, rows.rows * rows.stride);
      const Values values = on_host(flat);
      for (Index r = 0; r < rows.rows; ++r)
        all.insert(all.end(), values.begin() + r * rows.stride, values.begin() + r * rows.stride + rows.cols);
    }
    return all;
  }

  // Of a tensor there: those of our parameters put back where they came from.
  std::map<std::string, Values> gradients() const {
    const Values flat = on_host(store_.flat_gradients());
    std::map<std::string, Values> gradients;
    for (const Parameter& parameter : store_.parameters()) {
      const HuggingFacePart part =
          hugging_face_part(architecture_of(config_), parameter.spec.name, parameter.spec.shape);
      Values& there = gradients[part.tensor];
      there.resize(static_cast<std::size_t>(num_elements(part.shape)));
      const Index columns = parameter.spec.shape.size() > 1 ? parameter.spec.shape[1] : 1;
      for (Index i = 0; i < parameter.size; ++i) {
        const Index out = i / columns + part.first, in = i % columns;
        const Index place = part.transposed ? in * part.shape[1] + out : out * columns + in;
        there[static_cast<std::size_t>(place)] = flat[static_cast<std::size_t>(parameter.offset + i)];
      }
    }
    return gradients;
  }

 private:
  ExecSpace exec_;
  ParameterStore<Compute<P>> store_;
  ModelConfig config_;
  Decoder<P> model_;
};

template <class P>
void expect_reference(const Path& checkpoint, const TransformersReference& reference, double tolerance) {
  Imported<P> model(checkpoint);
  EXPECT_NEAR(model.loss(), reference.losses.front(), tolerance);
  const std::map<std::string, Values> gradients = model.gradients();
  EXPECT_EQ(gradients.size(), reference.gradients.size());
  for (const auto& [name, wanted] : reference.gradients) {
    ASSERT_TRUE(gradients.contains(name)) << name;
    EXPECT_NEAR(pattern(gradients.at(name)), wanted, tolerance) << name;
  }
  EXPECT_NEAR(pattern(model.logits()), reference.logits, 10 * tolerance);
}

double norm(const Values& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

// Whole arrays: a sum of few digits would not show one that is missing. Gradients that are 0 but for rounding, as those
// of biases of K, are compared with the largest one's.
template <class P>
void expect_like_fp64(const Path& checkpoint, double tolerance) {
  Imported<Fp64> exact(checkpoint);
  Imported<P> model(checkpoint);
  exact.loss();
  model.loss();
  auto wanted = exact.gradients(), gradients = model.gradients();
  double largest = 0;
  for (const auto& [name, values] : wanted)
    largest = std::max(largest, norm(values));
  wanted["logits"] = exact.logits();
  gradients["logits"] = model.logits();
  for (const auto& [name, values] : wanted) {
    Values difference = gradients.at(name);
    ASSERT_EQ(difference.size(), values.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i)
      difference[i] -= values[i];
    EXPECT_LE(norm(difference), tolerance * std::max(norm(values), 1e-2 * largest))
        << name << " of norm " << norm(values);
  }
}

// By the name of the model.
class HuggingFaceModels : public testing::TestWithParam<std::string> {
 protected:
  const TransformersReference reference_ = transformers_references().at(GetParam());
  const TemporaryDirectory directory_;
  const Path model_ = directory_ / "model";
};

TEST_P(HuggingFaceModels, ComputeWhatTransformersComputes) {
  write_model(model_, reference_, ScalarType::fp64);
  const Path checkpoint = import_hugging_face(HuggingFaceWeights(model_), model_, directory_ / "import");
  expect_reference<Fp64>(checkpoint, reference_, 1e-10);
  expect_reference<Fp32>(checkpoint, reference_, 1e-4);
  expect_reference<Bf16>(checkpoint, reference_, 2e-2);
  expect_like_fp64<Fp32>(checkpoint, 1e-4);
  expect_like_fp64<Bf16>(checkpoint, 0.1);
}

TEST_P(HuggingFaceModels, TrainAsTheyDoThere) {
  write_model(model_, reference_, ScalarType::fp64);
  const Path checkpoint = import_hugging_face(HuggingFaceWeights(model_), model_, directory_ / "import");
  const auto steps = static_cast<Index>(reference_.losses.size());
  EXPECT_TRUE(allclose(Imported<Fp64>(checkpoint).train(steps), reference_.losses, 1e-8));
  EXPECT_TRUE(allclose(Imported<Fp32>(checkpoint).train(steps), reference_.losses, 1e-3));
}

TEST_P(HuggingFaceModels, AreExportedAsTheyWereImported) {
  for (const ScalarType type : {ScalarType::fp32, ScalarType::bf16}) {
    const Path model = directory_ / to_string(type);
    write_model(model, reference_, type);
    write_bytes(model / "tokenizer.json", "{}");
    const Path import = directory_ / (std::string("import_") + to_string(type));
    const Path checkpoint = import_hugging_face(HuggingFaceWeights(model), model, import);
    EXPECT_TRUE(std::filesystem::exists(import / "tokenizer/tokenizer.json"));
    const CheckpointReader reader(checkpoint);
    reader.verify();
    const ExportPlan plan = plan_export(reader, type);
    for (const Index shard_bytes : {Index{1} << 30, Index{5000}}) {
      const Path exported = directory_ / ("export" + std::to_string(shard_bytes) + to_string(type));
      std::filesystem::create_directories(exported);
      export_hugging_face(reader, plan, exported, shard_bytes);
      const Path again = import_hugging_face(HuggingFaceWeights(exported), exported, exported / "again");
      const CheckpointReader other(again);
      ASSERT_EQ(other.tensors().size(), reader.tensors().size());
      for (const TensorInfo& tensor : reader.tensors()) {
        std::vector<double> ours(static_cast<std::size_t>(num_elements(tensor.global_shape))), theirs(ours);
        reader.read(tensor.name, tensor.global_shape, ScalarType::fp64, ours.data());
        other.read(tensor.name, tensor.global_shape, ScalarType::fp64, theirs.data());
        EXPECT_EQ(ours, theirs) << tensor.name;
      }
      EXPECT_EQ(read_hugging_face_config(exported).config, read_hugging_face_config(model).config);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, HuggingFaceModels,
                         testing::Values("gpt2", "gpt2_with_erf", "gpt2_untied", "llama", "llama_with_biases",
                                         "mistral", "qwen2", "qwen3"),
                         [](const auto& model) { return model.param; });

TEST(HuggingFace, NamesWithoutTheTrunkAreThoseOfTheFirstGpt2) {
  const TransformersReference reference = transformers_references().at("gpt2");
  const TemporaryDirectory directory;
  write_model(directory / "model", reference, ScalarType::fp32, {.has_trunk = false});
  expect_reference<Fp32>(
      import_hugging_face(HuggingFaceWeights(directory / "model"), directory / "model", directory / "import"),
      reference, 1e-4);
}

}  // namespace
}  // namespace espalier::test
