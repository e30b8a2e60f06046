// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/formats/hugging_face.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.hpp"

namespace espalier {
namespace {

using Architecture = HuggingFaceArchitecture;

struct Name {
  std::string_view ours, gpt2, llama;
};

// Of the layers inside a block, and of those outside; weights and biases alike.
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
std::string_view translated(const std::array<Name, size>& names, std::string_view ours, Architecture architecture) {
  const auto found = std::ranges::find(names, ours, &Name::ours);
  const std::string_view name = found == names.end()                 ? std::string_view()
                                : architecture == Architecture::gpt2 ? found->gpt2
                                                                     : found->llama;
  ESPALIER_ASSERT(!name.empty(), std::string(to_string(architecture)) + " has no layer " + std::string(ours));
  return name;
}

// Rows and columns of the weight of a layer as we have it, (out, in); a norm has one dimension.
struct Extents {
  Index out = 0, in = 0;
};

Extents extents_of(const ModelConfig& model, std::string_view layer) {
  const Index c = model.hidden_size, heads = model.num_heads * model.head_size(), f = model.ffn_hidden_size;
  if (layer == "embedding.token" || layer == "head")
    return {model.vocab_size, c};
  if (layer == "embedding.position")
    return {model.max_sequence_length, c};
  if (layer == "attention.query")
    return {heads, c};
  if (layer == "attention.key" || layer == "attention.value")
    return {model.kv_size(), c};
  if (layer == "attention.proj")
    return {c, heads};
  if (layer == "mlp.gate" || layer == "mlp.up")
    return {f, c};
  if (layer == "mlp.down")
    return {c, f};
  return {layer == "attention.query_norm" || layer == "attention.key_norm" ? model.head_size() : c, 0};
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

HuggingFacePart hugging_face_part(Architecture architecture, const ModelConfig& model, const std::string& parameter) {
  const bool is_gpt2 = architecture == Architecture::gpt2;
  // "h.3.mlp.up.weight" -> block "3", layer "mlp.up", suffix ".weight". Tables have no suffix here.
  std::string_view layer = parameter, block, suffix = ".weight";
  const bool is_inside = layer.starts_with("h.");
  if (is_inside) {
    layer.remove_prefix(2);
    block = layer.substr(0, layer.find('.'));
    layer.remove_prefix(std::min(layer.size(), block.size() + 1));
  }
  for (const std::string_view end : {".weight", ".bias"})
    if (layer.ends_with(end)) {
      suffix = end;
      layer.remove_suffix(end.size());
    }
  const Extents extents = extents_of(model, layer);
  const bool is_bias = suffix == ".bias";
  const bool is_matrix = !is_bias && extents.in > 0;

  HuggingFacePart part;
  if (is_inside)
    part.tensor = (is_gpt2 ? "transformer.h." : "model.layers.") + std::string(block) + ".";
  part.tensor +=
      is_inside ? translated(block_names, layer, architecture) : translated(outer_names, layer, architecture);
  part.tensor += suffix;
  part.shape = is_matrix ? std::vector<Index>{extents.out, extents.in} : std::vector<Index>{extents.out};
  if (!is_gpt2 || !is_inside)
    return part;
  if (layer == "attention.key" || layer == "attention.value")
    part.first = (layer == "attention.key" ? 1 : 2) * extents.out;
  if (layer == "attention.query" || layer == "attention.key" || layer == "attention.value")
    part.shape.front() *= 3;
  if (is_matrix) {  // a Conv1D of transformers
    part.transposed = true;
    std::swap(part.shape.front(), part.shape.back());
  }
  return part;
}

}  // namespace espalier
