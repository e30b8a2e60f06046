// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/pretrained/hugging_face_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/tensor.hpp"
#include "io/checkpoint/block_copy.hpp"
#include "models/decoder.hpp"

namespace espalier {
namespace {

constexpr const char* tied_head = "lm_head.weight";
constexpr const char* is_config_theirs = "is config.json that of these weights?";

// out (columns, rows) = in (rows, columns), in elements of a size.
template <class Element>
void transpose_as(void* out, const void* in, Index rows, Index columns) {
  constexpr Index tile = 32;  // of both: stays in the first cache
  auto* const to = static_cast<Element*>(out);
  const auto* const from = static_cast<const Element*>(in);
  for (Index r0 = 0; r0 < rows; r0 += tile)
    for (Index c0 = 0; c0 < columns; c0 += tile)
      for (Index r = r0; r < std::min(rows, r0 + tile); ++r)
        for (Index c = c0; c < std::min(columns, c0 + tile); ++c)
          to[c * rows + r] = from[r * columns + c];
}

// What transformers saves beside the parameters, and computes anew.
bool is_buffer(const std::string& tensor) {
  return tensor.ends_with(".rotary_emb.inv_freq") || tensor.ends_with(".attn.bias") ||
         tensor.ends_with(".attn.masked_bias");
}

}  // namespace

std::size_t tensor_bytes(const std::vector<Index>& shape, ScalarType type) {
  return static_cast<std::size_t>(num_elements(shape)) * size_of(type);
}

void transpose_weights(void* out, const void* in, Index rows, Index columns, ScalarType type) {
  switch (size_of(type)) {
    case 2: return transpose_as<std::uint16_t>(out, in, rows, columns);
    case 4: return transpose_as<std::uint32_t>(out, in, rows, columns);
    default: return transpose_as<std::uint64_t>(out, in, rows, columns);
  }
}

void require_finite_weights(ScalarType type, std::span<const unsigned char> data, ExitCode code, const Path& where,
                            const std::string& tensor) {
  if (!is_finite(type, data.data(), static_cast<Index>(data.size() / size_of(type))))
    throw Error(code, {.what = "weights are not finite",
                       .where = where.string(),
                       .got = fmt::format("nan or inf in {} as {}", tensor, to_string(type)),
                       .wanted = "finite numbers",
                       .todo = "use another checkpoint, or a type with a larger range"});
}

std::vector<HuggingFaceParameter> hugging_face_parameters(const HuggingFaceModel& model) {
  ParameterStore<float> store;
  const Decoder<Fp32> decoder(store, model.config);
  store.lay_out();
  std::vector<HuggingFaceParameter> list;
  for (const Parameter& parameter : store.parameters())
    list.push_back({parameter.spec.name, parameter.spec.shape,
                    hugging_face_part(model.architecture, parameter.spec.name, parameter.spec.shape)});
  return list;
}

HuggingFaceWeights::HuggingFaceWeights(Path directory)
    : directory_(std::move(directory)), model_(read_hugging_face_config(directory_)), reader_(directory_) {
  require_layers();
  parameters_ = hugging_face_parameters(model_);
  name_tensors();
  require_shapes();
  require_no_others();
}

// Of what a config.json promises, no more is built than the files may have.
void HuggingFaceWeights::require_layers() const {
  const auto tensors = static_cast<Index>(reader_.tensors().size());
  if (model_.config.num_layers > tensors)
    throw Error(ExitCode::data, {.what = "the weights do not have all layers that config.json describes",
                                 .where = directory_.string(),
                                 .got = fmt::format("{} tensors in all", tensors),
                                 .wanted = fmt::format("those of {} layers", model_.config.num_layers),
                                 .todo = is_config_theirs});
}

// A file of the trunk alone is without its name, as GPT-2 first was. A tied table may lie under the name of the head.
void HuggingFaceWeights::name_tensors() {
  const std::string trunk = hugging_face_trunk(model_.architecture);
  for (HuggingFaceParameter& parameter : parameters_) {
    std::string& tensor = parameter.part.tensor;
    if (reader_.contains(tensor) || !tensor.starts_with(trunk))
      continue;
    if (reader_.contains(tensor.substr(trunk.size())))
      tensor = tensor.substr(trunk.size());
    else if (parameter.name == "embedding.token" && model_.config.tied_embeddings && reader_.contains(tied_head))
      tensor = tied_head;
  }
}

void HuggingFaceWeights::require_shapes() const {
  for (const HuggingFaceParameter& parameter : parameters_) {
    const HuggingFacePart& part = parameter.part;
    const SafetensorsTensor& stored = reader_.tensor(part.tensor);
    if (stored.shape != part.shape || !stored.type)
      throw Error(ExitCode::data, {.what = "a tensor of the weights is not the one that config.json describes",
                                   .where = (directory_ / stored.file).string(),
                                   .got = fmt::format("{} {}, {}", part.tensor, shape_text(stored.shape), stored.dtype),
                                   .wanted = shape_text(part.shape) + " of F32, F64, BF16 or F16",
                                   .todo = is_config_theirs});
  }
}

// A tensor that no layer takes would be a part of the model that is silently missing.
void HuggingFaceWeights::require_no_others() const {
  std::set<std::string> known;
  for (const HuggingFaceParameter& parameter : parameters_)
    known.insert(parameter.part.tensor);
  if (model_.config.tied_embeddings)
    known.insert(tied_head);
  for (const auto& [name, stored] : reader_.tensors())
    if (!known.contains(name) && !is_buffer(name))
      throw Error(ExitCode::data,
                  {.what = "the weights have a tensor that config.json does not describe",
                   .where = (directory_ / stored.file).string(),
                   .got = fmt::format("{} {}", name, shape_text(stored.shape)),
                   .wanted = fmt::format("only tensors of a {} with these settings", to_string(model_.architecture)),
                   .todo = is_config_theirs});
}

const HuggingFaceParameter& HuggingFaceWeights::parameter(const std::string& name) const {
  const auto found = std::ranges::find(parameters_, name, &HuggingFaceParameter::name);
  if (found == parameters_.end())
    throw Error(ExitCode::data, {.what = "the weights are of another model",
                                 .where = directory_.string(),
                                 .got = "no parameter " + name,
                                 .wanted = "all parameters of the model",
                                 .todo = is_config_theirs});
  return *found;
}

void HuggingFaceWeights::require_tied_head() const {
  if (!model_.config.tied_embeddings || !reader_.contains(tied_head))
    return;
  const HuggingFaceParameter& table = parameter("embedding.token");
  const SafetensorsTensor& head = reader_.tensor(tied_head);
  const auto refuse = [&](const std::string& got) {
    throw Error(ExitCode::data,
                {.what = "config.json says that the head is the token embedding, but the weights differ",
                 .where = (directory_ / head.file).string(),
                 .got = got,
                 .wanted = fmt::format("the values of {}, or no {}", table.part.tensor, tied_head),
                 .todo = "set tie_word_embeddings to false in config.json if both are wanted"});
  };
  if (head.shape != table.shape || !head.type)
    refuse(fmt::format("{} {}, {}", tied_head, shape_text(head.shape), head.dtype));
  const Index columns = table.shape.back();
  const Index step = std::max<Index>(1, (Index{1} << 20) / columns);  // rows
  std::vector<double> ours(static_cast<std::size_t>(step * columns)), theirs(ours);
  for (Index row = 0; row < table.shape.front(); row += step) {
    const Index rows = std::min(step, table.shape.front() - row);
    read(table, {row, 0}, {rows, columns}, ScalarType::fp64, ours.data());
    reader_.read(tied_head, {row, 0}, {rows, columns}, ScalarType::fp64, theirs.data());
    const auto end = ours.begin() + rows * columns;
    if (const auto differs = std::mismatch(ours.begin(), end, theirs.begin()).first; differs != end)
      refuse(fmt::format("other values in row {}", row + (differs - ours.begin()) / columns));
  }
}

ScalarType HuggingFaceWeights::type(const HuggingFaceParameter& parameter) const {
  return reader_.tensor(parameter.part.tensor).type.value();
}

void HuggingFaceWeights::read(const HuggingFaceParameter& parameter, const std::vector<Index>& start,
                              const std::vector<Index>& count, ScalarType type, void* destination) const {
  const HuggingFacePart& part = parameter.part;
  std::vector<Index> from = start, size = count;
  from.front() += part.first;
  if (!part.transposed)
    return reader_.read(part.tensor, from, size, type, destination);
  std::swap(from.front(), from.back());
  std::swap(size.front(), size.back());
  std::vector<unsigned char> there(tensor_bytes(size, type));  // (in, out)
  reader_.read(part.tensor, from, size, type, there.data());
  transpose_weights(destination, there.data(), size.front(), size.back(), type);
}

}  // namespace espalier
