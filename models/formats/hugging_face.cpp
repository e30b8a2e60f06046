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

// Of layers inside a block, and of those outside; weights and biases alike. Empty: the family has no such layer. All
// families but GPT-2 name their layers as Llama does.
struct Name {
  std::string_view ours, gpt2, llama;
};
constexpr std::array block_names = {
    Name{"norm1", "ln_1", "input_layernorm"},
    Name{"attention.query", "attn.c_attn", "self_attn.q_proj"},
    Name{"attention.key", "attn.c_attn", "self_attn.k_proj"},
    Name{"attention.value", "attn.c_attn", "self_attn.v_proj"},
    Name{"attention.query_norm", "", "self_attn.q_norm"},
    Name{"attention.key_norm", "", "self_attn.k_norm"},
    Name{"attention.proj", "attn.c_proj", "self_attn.o_proj"},
    Name{"norm2", "ln_2", "post_attention_layernorm"},
    Name{"mlp.gate", "", "mlp.gate_proj"},
    Name{"mlp.up", "mlp.c_fc", "mlp.up_proj"},
    Name{"mlp.down", "mlp.c_proj", "mlp.down_proj"},
};
constexpr std::array outer_names = {
    Name{"embedding.token", "transformer.wte", "model.embed_tokens"},
    Name{"embedding.position", "transformer.wpe", ""},
    Name{"final_norm", "transformer.ln_f", "model.norm"},
    Name{"head", "lm_head", "lm_head"},
};

template <std::size_t size>
std::string_view translated(Architecture architecture, const std::array<Name, size>& names, std::string_view ours) {
  const auto found = std::ranges::find(names, ours, &Name::ours);
  const std::string_view name = found == names.end()                 ? ""
                                : architecture == Architecture::gpt2 ? found->gpt2
                                                                     : found->llama;
  ESPALIER_ASSERT(!name.empty(), std::string(to_string(architecture)) + " has no layer " + std::string(ours));
  return name;
}

}  // namespace

const std::vector<Architecture>& all_hugging_face_architectures() {
  static const std::vector<Architecture> all = {Architecture::gpt2, Architecture::llama, Architecture::mistral,
                                                Architecture::qwen2, Architecture::qwen3};
  return all;
}

const char* to_string(Architecture architecture) {
  switch (architecture) {
    case Architecture::gpt2: return "GPT2LMHeadModel";
    case Architecture::llama: return "LlamaForCausalLM";
    case Architecture::mistral: return "MistralForCausalLM";
    case Architecture::qwen2: return "Qwen2ForCausalLM";
    case Architecture::qwen3: return "Qwen3ForCausalLM";
  }
  return "unknown";
}

std::string hugging_face_trunk(Architecture architecture) {
  return architecture == Architecture::gpt2 ? "transformer." : "model.";
}

HuggingFacePart hugging_face_part(Architecture architecture, const std::string& parameter,
                                  const std::vector<Index>& shape) {
  const bool is_gpt2 = architecture == Architecture::gpt2;
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
  HuggingFacePart part{.tensor = {}, .shape = shape};
  if (is_inside)
    part.tensor = hugging_face_trunk(architecture) + (is_gpt2 ? "h." : "layers.") + std::string(block) + ".";
  part.tensor +=
      is_inside ? translated(architecture, block_names, layer) : translated(architecture, outer_names, layer);
  part.tensor += suffix;
  if (!is_inside || !is_gpt2)
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
