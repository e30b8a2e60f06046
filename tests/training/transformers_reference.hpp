// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

// Written by transformers_reference.py with transformers 5.24.0, PyTorch 2.15.0+cu132.
// clang-format off
namespace espalier::test {

/// A model in fp64: its loss (mean), and sums of its logits and of the gradients of its tensors, weighted by a pattern.
struct TransformersReference {
  std::string config;
  double loss;
  double logits;
  std::map<std::string, double> gradients;
};

inline const std::map<std::string, TransformersReference>& transformers_references() {
  static const std::map<std::string, TransformersReference> references = {
    {"gpt2", {R"({
  "activation_function": "gelu_new",
  "add_cross_attention": false,
  "architectures": [
    "GPT2LMHeadModel"
  ],
  "attn_pdrop": 0,
  "bos_token_id": 50256,
  "dtype": "float64",
  "embd_pdrop": 0,
  "eos_token_id": 50256,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_embd": 32,
  "n_head": 4,
  "n_inner": 80,
  "n_layer": 2,
  "n_positions": 16,
  "pad_token_id": null,
  "reorder_and_upcast_attn": false,
  "resid_pdrop": 0,
  "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true,
  "summary_activation": null,
  "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true,
  "summary_type": "cls_index",
  "summary_use_proj": true,
  "tie_word_embeddings": true,
  "transformers_version": "5.24.0",
  "use_cache": true,
  "vocab_size": 61
})",
      4.1881155436836073, 2.2797476962348169, {
        {"transformer.h.0.attn.c_attn.bias", -0.012774017778713599},
        {"transformer.h.0.attn.c_attn.weight", -0.084145879446586219},
        {"transformer.h.0.attn.c_proj.bias", 0.015061621030808135},
        {"transformer.h.0.attn.c_proj.weight", 0.17887284042394677},
        {"transformer.h.0.ln_1.bias", 0.052444201885159171},
        {"transformer.h.0.ln_1.weight", -0.010482339313432941},
        {"transformer.h.0.ln_2.bias", 0.0037734488007988287},
        {"transformer.h.0.ln_2.weight", 0.0027606719801456809},
        {"transformer.h.0.mlp.c_fc.bias", 0.0083108266303651007},
        {"transformer.h.0.mlp.c_fc.weight", -0.12930085576454176},
        {"transformer.h.0.mlp.c_proj.bias", 0.016054478841528452},
        {"transformer.h.0.mlp.c_proj.weight", 0.036286575979946806},
        {"transformer.h.1.attn.c_attn.bias", 0.014663863188966368},
        {"transformer.h.1.attn.c_attn.weight", 0.047246506249265005},
        {"transformer.h.1.attn.c_proj.bias", -0.0033244405762800407},
        {"transformer.h.1.attn.c_proj.weight", -0.1136640600239921},
        {"transformer.h.1.ln_1.bias", 0.016614963605344139},
        {"transformer.h.1.ln_1.weight", 0.0022024914140636341},
        {"transformer.h.1.ln_2.bias", 0.01430362580405074},
        {"transformer.h.1.ln_2.weight", -0.00062850027305249049},
        {"transformer.h.1.mlp.c_fc.bias", 0.0073954466251821213},
        {"transformer.h.1.mlp.c_fc.weight", 0.14922555315486724},
        {"transformer.h.1.mlp.c_proj.bias", -0.01624468656929743},
        {"transformer.h.1.mlp.c_proj.weight", 0.013745586142363833},
        {"transformer.ln_f.bias", -0.015589467929505687},
        {"transformer.ln_f.weight", 0.012823054113412294},
        {"transformer.wpe.weight", 0.17344966770881423},
        {"transformer.wte.weight", 0.26817718990592904},
      }}},
    {"gpt2 with erf", {R"({
  "activation_function": "gelu",
  "add_cross_attention": false,
  "architectures": [
    "GPT2LMHeadModel"
  ],
  "attn_pdrop": 0,
  "bos_token_id": 50256,
  "dtype": "float64",
  "embd_pdrop": 0,
  "eos_token_id": 50256,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_embd": 24,
  "n_head": 3,
  "n_inner": 40,
  "n_layer": 1,
  "n_positions": 12,
  "pad_token_id": null,
  "reorder_and_upcast_attn": false,
  "resid_pdrop": 0,
  "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true,
  "summary_activation": null,
  "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true,
  "summary_type": "cls_index",
  "summary_use_proj": true,
  "tie_word_embeddings": true,
  "transformers_version": "5.24.0",
  "use_cache": true,
  "vocab_size": 67
})",
      3.9810835871851418, 0.68778088806250692, {
        {"transformer.h.0.attn.c_attn.bias", 0.066455430381686692},
        {"transformer.h.0.attn.c_attn.weight", -0.11926391858188742},
        {"transformer.h.0.attn.c_proj.bias", 0.032664610410668371},
        {"transformer.h.0.attn.c_proj.weight", 0.10859060605362703},
        {"transformer.h.0.ln_1.bias", -0.0071784685761730636},
        {"transformer.h.0.ln_1.weight", 0.016233349706771854},
        {"transformer.h.0.ln_2.bias", 0.03452932433464663},
        {"transformer.h.0.ln_2.weight", 0.030070855768263634},
        {"transformer.h.0.mlp.c_fc.bias", -0.0044325043837275084},
        {"transformer.h.0.mlp.c_fc.weight", -0.11827321040139953},
        {"transformer.h.0.mlp.c_proj.bias", -0.036190845847152465},
        {"transformer.h.0.mlp.c_proj.weight", 0.13840305744035181},
        {"transformer.ln_f.bias", -0.029416354089360358},
        {"transformer.ln_f.weight", 0.012290007701825683},
        {"transformer.wpe.weight", -0.049806199875421238},
        {"transformer.wte.weight", 0.090027379078261027},
      }}},
  };
  return references;
}

}  // namespace espalier::test
