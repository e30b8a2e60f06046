// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/formats/hugging_face.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace espalier {
namespace {

using Architecture = HuggingFaceArchitecture;

struct Name {
  std::string_view ours, gpt2;
};

// Of the layers inside a block, and of those outside; weights and biases alike.
constexpr std::array block_names = {
    Name{"norm1", "ln_1"},
    Name{"attention.query", "attn.c_attn"},
    Name{"attention.key", "attn.c_attn"},
    Name{"attention.value", "attn.c_attn"},
    Name{"attention.proj", "attn.c_proj"},
    Name{"norm2", "ln_2"},
    Name{"mlp.up", "mlp.c_fc"},
    Name{"mlp.down", "mlp.c_proj"},
};
constexpr std::array outer_names = {
    Name{"embedding.token", "wte"},
    Name{"embedding.position", "wpe"},
    Name{"final_norm", "ln_f"},
};

template <std::size_t size>
std::string_view translated(const std::array<Name, size>& names, std::string_view ours) {
  const auto found = std::ranges::find(names, ours, &Name::ours);
  ESPALIER_ASSERT(found != names.end(), "transformers' GPT-2 has no layer " + std::string(ours));
  return found->gpt2;
}

}  // namespace

const std::vector<Architecture>& all_hugging_face_architectures() {
  static const std::vector<Architecture> all = {Architecture::gpt2};
  return all;
}

const char* to_string(Architecture architecture) {
  switch (architecture) {
    case Architecture::gpt2: return "GPT2LMHeadModel";
  }
  return "unknown";
}

HuggingFacePart hugging_face_part(Architecture, const std::string& parameter, const std::vector<Index>& shape) {
  // "h.3.mlp.up.weight" -> block "3", layer "mlp.up", suffix ".weight". Our tables have no suffix.
  std::string_view layer = parameter, block, suffix = ".weight";
  const bool is_inside = layer.starts_with("h.");
  if (is_inside) {
    layer.remove_prefix(2);
    block = layer.substr(0, layer.find('.'));
    layer.remove_prefix(std::min(layer.size(), block.size() + 1));
  }
  for (const std::string_view end : {std::string_view(".weight"), std::string_view(".bias")})
    if (layer.ends_with(end)) {
      suffix = end;
      layer.remove_suffix(end.size());
    }
  HuggingFacePart part{.tensor = "transformer.", .shape = shape};
  if (is_inside)
    part.tensor += "h." + std::string(block) + ".";
  part.tensor += is_inside ? translated(block_names, layer) : translated(outer_names, layer);
  part.tensor += suffix;
  if (!is_inside)
    return part;
  if (layer == "attention.key" || layer == "attention.value")
    part.first = (layer == "attention.key" ? 1 : 2) * shape.front();
  if (layer == "attention.query" || layer == "attention.key" || layer == "attention.value")
    part.shape.front() *= 3;
  if (shape.size() == 2) {  // a Conv1D of transformers
    part.transposed = true;
    std::swap(part.shape.front(), part.shape.back());
  }
  return part;
}

}  // namespace espalier
