// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Models of Hugging Face against transformers, by the constants of transformers_reference.py, which says what is
// computed: the weights and tokens here are its closed forms.
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "core/error.hpp"
#include "models/decoder.hpp"
#include "tests/io/support.hpp"
#include "tests/support/tensors.hpp"
#include "tests/training/transformers_reference.hpp"
#include "training/hugging_face.hpp"
#include "training/stored_config.hpp"
#include "training/training_state.hpp"

namespace espalier::test {
namespace {

constexpr Index batch = 2, length = 9;

std::uint32_t hash32(std::uint32_t stream, std::uint32_t index) {
  std::uint32_t x = index * 2654435761u + stream * 2246822519u + 374761393u;
  x = (x ^ (x >> 15)) * 2246822519u;
  x = (x ^ (x >> 13)) * 3266489917u;
  return x ^ (x >> 16);
}

double value(std::uint32_t stream, std::size_t index) {
  return (static_cast<double>(hash32(stream, static_cast<std::uint32_t>(index)) >> 16) - 32768) / 131072;
}

double pattern(const Values& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    sum += values[i] * value(999, i);
  return sum;
}

// config.json and the weights, as transformers would save them.
void write_model(const Path& directory, const TransformersReference& reference, ScalarType type, Index shard_bytes,
                 const std::string& trunk = "transformer.") {
  std::filesystem::create_directories(directory);
  write_bytes(directory / "config.json", reference.config);
  const HuggingFaceModel model = read_hugging_face_config(directory);
  std::map<std::string, std::vector<Index>> shapes;
  for (const ForeignParameter& parameter : foreign_parameters(model))
    shapes[parameter.part.tensor] = parameter.part.shape;
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const auto& [name, shape] : shapes)
    tensors.push_back({name.starts_with("transformer.") ? trunk + name.substr(12) : name, type, shape});
  SafetensorsWriter writer(directory, tensors, shard_bytes);
  std::uint32_t stream = 0;
  for (const auto& [name, shape] : shapes) {
    const bool is_norm_weight =
        (name.find("norm") != name.npos || name.find("ln_") != name.npos) && name.ends_with("weight");
    std::vector<double> wide;
    std::vector<float> narrow;
    std::vector<bfloat16> half;
    for (Index i = 0; i < num_elements(shape); ++i) {
      wide.push_back(value(stream, static_cast<std::size_t>(i)) + (is_norm_weight ? 1 : 0));
      narrow.push_back(static_cast<float>(wide.back()));
      half.emplace_back(narrow.back());
    }
    writer.write(type == ScalarType::fp64   ? static_cast<const void*>(wide.data())
                 : type == ScalarType::fp32 ? static_cast<const void*>(narrow.data())
                                            : static_cast<const void*>(half.data()));
    ++stream;
  }
  writer.finish();
}

struct Batch {
  std::vector<TokenId> inputs, targets;
};

Batch tokens(Index vocab_size) {
  Batch tokens;
  for (Index b = 0; b < batch; ++b)
    for (Index t = 0; t < length; ++t) {
      const auto token = [&](Index at) {
        return static_cast<TokenId>(hash32(1000, static_cast<std::uint32_t>(b * (length + 1) + at)) % vocab_size);
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

  Values logits() {
    Values all;
    model_.plan_activations(1, length, 1);
    const Batch given = tokens(config_.vocab_size);
    for (Index b = 0; b < batch; ++b) {
      const auto first = given.inputs.begin() + b * length;
      const Matrix<Compute<P>> rows = model_.logits(exec_, {first, first + length}, length);
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
  EXPECT_NEAR(model.loss(), reference.loss, tolerance);
  const std::map<std::string, Values> gradients = model.gradients();
  EXPECT_EQ(gradients.size(), reference.gradients.size());
  for (const auto& [name, wanted] : reference.gradients) {
    ASSERT_TRUE(gradients.contains(name)) << name;
    EXPECT_NEAR(pattern(gradients.at(name)), wanted, tolerance) << name;
  }
  EXPECT_NEAR(pattern(model.logits()), reference.logits, 10 * tolerance);
}

TEST(HuggingFace, ComputesWhatTransformersComputes) {
  for (const auto& [family, reference] : transformers_references()) {
    SCOPED_TRACE(family);
    const TemporaryDirectory directory;
    const Path model = directory / "model";
    write_model(model, reference, ScalarType::fp64, Index{1} << 30);
    const Path checkpoint = import_hugging_face(ForeignWeights(model), model, directory / "import");
    expect_reference<Fp64>(checkpoint, reference, 1e-10);
    expect_reference<Fp32>(checkpoint, reference, 1e-4);
  }
}

TEST(HuggingFace, WhatIsExportedIsWhatWasImported) {
  for (const auto& [family, reference] : transformers_references())
    for (const ScalarType type : {ScalarType::fp32, ScalarType::bf16}) {
      SCOPED_TRACE(family);
      const TemporaryDirectory directory;
      const Path model = directory / "model";
      write_model(model, reference, type, Index{1} << 30);
      write_bytes(model / "tokenizer.json", "{}");
      const Path checkpoint = import_hugging_face(ForeignWeights(model), model, directory / "import");
      EXPECT_TRUE(std::filesystem::exists(directory / "import/tokenizer/tokenizer.json"));
      const CheckpointReader reader(checkpoint);
      reader.verify();
      const ExportPlan plan = plan_export(reader, type);
      for (const Index shard_bytes : {Index{1} << 30, Index{5000}}) {
        const Path exported = directory / ("export" + std::to_string(shard_bytes));
        std::filesystem::create_directories(exported);
        export_hugging_face(reader, plan, exported, shard_bytes);
        const Path again = import_hugging_face(ForeignWeights(exported), exported,
                                               directory / ("again" + std::to_string(shard_bytes)));
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

TEST(HuggingFace, NamesWithoutTheTrunkAreThoseOfTheFirstGpt2) {
  const TransformersReference& reference = transformers_references().at("gpt2");
  const TemporaryDirectory directory;
  write_model(directory / "model", reference, ScalarType::fp32, Index{1} << 30, "");
  expect_reference<Fp32>(
      import_hugging_face(ForeignWeights(directory / "model"), directory / "model", directory / "import"), reference,
      1e-4);
}

TEST(HuggingFace, ModelsThatEspalierDoesNotComputeAreRefused) {
  const std::string& good = transformers_references().at("gpt2").config;
  const std::vector<std::array<std::string, 3>> bad = {
      {"\"gelu_new\"", "\"tanh\"", "activation_function"},
      {"\"layer_norm_epsilon\": 1e-05", "\"layer_norm_epsilon\": 1e-06", "layer_norm_epsilon"},
      {"\"scale_attn_weights\": true", "\"scale_attn_weights\": false", "scale_attn_weights"},
      {"\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true", "inverse_layer_idx"},
      {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", "tie_word_embeddings"},
      {"GPT2LMHeadModel", "BloomForCausalLM", "GPT2LMHeadModel"},
      {"\"n_layer\": 2", "\"n_layer\": -2", "n_layer"},
      {"\"n_layer\": 2", "\"n_layer\": 2.5", "n_layer"},
      {"\"n_layer\": 2", "\"n_layer\": 2000000000", "n_layer"},
      {"\"n_embd\": 32", "\"n_embd\": 2147483648", "n_embd"},
      {"\"n_head\": 4", "\"n_head\": 5", "not divisible"},
      {"\"n_head\": 4", "\"n_heads\": 4", "n_head"},
      {"{", "[", "config.json"}};
  for (const auto& [from, to, words] : bad) {
    const TemporaryDirectory directory;
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write_bytes(directory / "config.json", text);
    expect_error(ExitCode::data, {"config.json", words}, [&] { read_hugging_face_config(directory.path()); });
  }
  const TemporaryDirectory empty;
  expect_error(ExitCode::data, {"config.json"}, [&] { read_hugging_face_config(empty.path()); });
}

TEST(HuggingFace, WeightsThatAreNotFiniteAreRefusedBothWays) {
  const TransformersReference& reference = transformers_references().at("gpt2");
  const TemporaryDirectory directory;
  const Path model = directory / "model";
  write_model(model, reference, ScalarType::fp32, Index{1} << 30);
  const Path checkpoint = import_hugging_face(ForeignWeights(model), model, directory / "import");
  std::fstream file(model / safetensors_name, std::ios::in | std::ios::out | std::ios::binary);
  const auto set_last = [&](float number) {  // of the last tensor
    file.seekp(-4, std::ios::end);
    file.write(reinterpret_cast<const char*>(&number), 4);
    file.flush();
  };
  set_last(std::numeric_limits<float>::infinity());
  expect_error(ExitCode::data, {"not finite", "transformer.wte.weight"},
               [&] { import_hugging_face(ForeignWeights(model), model, directory / "infinite"); });
  set_last(1e6F);  // more than fp16 has
  const Path large = import_hugging_face(ForeignWeights(model), model, directory / "large");
  const CheckpointReader reader(large);
  std::filesystem::create_directories(directory / "export");
  expect_error(ExitCode::checkpoint, {"not finite", "as fp16"}, [&] {
    export_hugging_face(reader, plan_export(reader, ScalarType::fp16), directory / "export", Index{1} << 30);
  });
}

TEST(HuggingFace, WeightsOfAnotherShapeAreRefused) {
  const TransformersReference& reference = transformers_references().at("gpt2");
  const TemporaryDirectory directory;
  const Path model = directory / "model";
  write_model(model, reference, ScalarType::fp32, Index{1} << 30);
  std::string text = reference.config;
  text.replace(text.find("\"n_inner\": 80"), 13, "\"n_inner\": 96");
  write_bytes(model / "config.json", text);
  expect_error(ExitCode::data, {"mlp.c_fc", "(32, 80)", "(32, 96)"}, [&] { ForeignWeights{model}; });
}

}  // namespace
}  // namespace espalier::test
