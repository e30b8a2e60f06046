// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/training/transformers_reference.hpp"

// Written by transformers_reference.py with transformers 5.24.0, PyTorch 2.15.0+cu132.
// clang-format off
namespace espalier::test {

inline const TransformersReferences& transformers_qwen() {
  static const TransformersReferences references = {
      {"qwen2", {R"({
  "architectures": [
    "Qwen2ForCausalLM"
  ],
  "attention_dropout": 0.0,
  "bos_token_id": null,
  "dtype": "float64",
  "eos_token_id": null,
  "hidden_act": "silu",
  "hidden_size": 32,
  "initializer_range": 0.02,
  "intermediate_size": 40,
  "layer_types": [
    "full_attention",
    "sliding_attention",
    "sliding_attention"
  ],
  "max_position_embeddings": 64,
  "max_window_layers": 1,
  "model_type": "qwen2",
  "num_attention_heads": 4,
  "num_hidden_layers": 3,
  "num_key_value_heads": 2,
  "pad_token_id": null,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {
    "factor": 2.0,
    "rope_theta": 1000.0,
    "rope_type": "linear"
  },
  "sliding_window": 3,
  "tie_word_embeddings": true,
  "transformers_version": "5.24.0",
  "use_cache": true,
  "use_sliding_window": true,
  "vocab_size": 71
})",
        -8.1462101615556968,
        {
          4.4873875289650709,
          3.4303413499902073,
          2.7091052051526057,
          2.0594067495423025,
          1.5739903137484479,
          1.1575502346138702,
          0.87482994497537714,
          0.67288951789908635,
          0.51011143801983672,
          0.42381719685299474,
        }, {
          {"model.embed_tokens.weight", 0.24273747718371158},
          {"model.layers.0.input_layernorm.weight", 0.0030000713859797655},
          {"model.layers.0.mlp.down_proj.weight", 0.0081662841757420279},
          {"model.layers.0.mlp.gate_proj.weight", -0.14071328348504919},
          {"model.layers.0.mlp.up_proj.weight", -0.01048696096865178},
          {"model.layers.0.post_attention_layernorm.weight", -0.003093486300954509},
          {"model.layers.0.self_attn.k_proj.bias", -0.0038860583672507935},
          {"model.layers.0.self_attn.k_proj.weight", 0.086070978251908237},
          {"model.layers.0.self_attn.o_proj.weight", 0.15807348056899231},
          {"model.layers.0.self_attn.q_proj.bias", -0.0027725394512825548},
          {"model.layers.0.self_attn.q_proj.weight", -0.034649349341978303},
          {"model.layers.0.self_attn.v_proj.bias", 0.0019218346867001385},
          {"model.layers.0.self_attn.v_proj.weight", 0.27757703277486567},
          {"model.layers.1.input_layernorm.weight", 0.021424764893578169},
          {"model.layers.1.mlp.down_proj.weight", 0.035776582012928},
          {"model.layers.1.mlp.gate_proj.weight", -0.032187518261835538},
          {"model.layers.1.mlp.up_proj.weight", -0.0036500474253991014},
          {"model.layers.1.post_attention_layernorm.weight", -0.013147809036102796},
          {"model.layers.1.self_attn.k_proj.bias", 0.00027372740467856185},
          {"model.layers.1.self_attn.k_proj.weight", -0.0066323480920821853},
          {"model.layers.1.self_attn.o_proj.weight", 0.17215596355166224},
          {"model.layers.1.self_attn.q_proj.bias", 0.0035935008666200651},
          {"model.layers.1.self_attn.q_proj.weight", -0.026912948914929052},
          {"model.layers.1.self_attn.v_proj.bias", -0.021709296962368584},
          {"model.layers.1.self_attn.v_proj.weight", 0.19188348481591139},
          {"model.layers.2.input_layernorm.weight", -0.027045522530803653},
          {"model.layers.2.mlp.down_proj.weight", 0.038314048409285734},
          {"model.layers.2.mlp.gate_proj.weight", 0.025097288497766646},
          {"model.layers.2.mlp.up_proj.weight", 0.066003913116639223},
          {"model.layers.2.post_attention_layernorm.weight", -0.0017677685548919712},
          {"model.layers.2.self_attn.k_proj.bias", 0.00011449059564004534},
          {"model.layers.2.self_attn.k_proj.weight", -0.0089340389173924381},
          {"model.layers.2.self_attn.o_proj.weight", 0.10559912175460462},
          {"model.layers.2.self_attn.q_proj.bias", -0.0015224960634205777},
          {"model.layers.2.self_attn.q_proj.weight", 0.010441458316555565},
          {"model.layers.2.self_attn.v_proj.bias", 0.024264285156166202},
          {"model.layers.2.self_attn.v_proj.weight", 0.032107983264414511},
          {"model.norm.weight", -0.022822467179158024},
        }}},
      {"qwen3", {R"({
  "architectures": [
    "Qwen3ForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": null,
  "dtype": "float64",
  "eos_token_id": null,
  "head_dim": 10,
  "hidden_act": "silu",
  "hidden_size": 24,
  "initializer_range": 0.02,
  "intermediate_size": 48,
  "layer_types": [
    "full_attention",
    "full_attention"
  ],
  "max_position_embeddings": 64,
  "max_window_layers": 28,
  "model_type": "qwen3",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "pad_token_id": null,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {
    "rope_theta": 1000000.0,
    "rope_type": "default"
  },
  "sliding_window": null,
  "tie_word_embeddings": false,
  "transformers_version": "5.24.0",
  "use_cache": true,
  "use_sliding_window": false,
  "vocab_size": 73
})",
        1.3873691345882671,
        {
          4.7089866728919914,
          3.5866003275066527,
          2.8912304652191789,
          2.4030740187906638,
          2.0214457813362348,
          1.7053450754987203,
          1.4415312572136314,
          1.2330809419810653,
          1.0331275871224261,
          0.87458872799364429,
        }, {
          {"lm_head.weight", 0.073002441683420474},
          {"model.embed_tokens.weight", -0.36769881492213752},
          {"model.layers.0.input_layernorm.weight", 0.046743468479008031},
          {"model.layers.0.mlp.down_proj.weight", 0.040757634232211445},
          {"model.layers.0.mlp.gate_proj.weight", -0.085092397995915003},
          {"model.layers.0.mlp.up_proj.weight", -0.038642463772595836},
          {"model.layers.0.post_attention_layernorm.weight", 0.0099601986359926491},
          {"model.layers.0.self_attn.k_norm.weight", 0.0021869815289952783},
          {"model.layers.0.self_attn.k_proj.weight", 0.0095859674893485347},
          {"model.layers.0.self_attn.o_proj.weight", 0.13957603111745001},
          {"model.layers.0.self_attn.q_norm.weight", 0.0011222497256401093},
          {"model.layers.0.self_attn.q_proj.weight", -0.10498397560819298},
          {"model.layers.0.self_attn.v_proj.weight", -0.068570768549630678},
          {"model.layers.1.input_layernorm.weight", 0.012522806493932153},
          {"model.layers.1.mlp.down_proj.weight", -0.0016836474131765667},
          {"model.layers.1.mlp.gate_proj.weight", -0.070342519451157604},
          {"model.layers.1.mlp.up_proj.weight", 0.0042972695449884513},
          {"model.layers.1.post_attention_layernorm.weight", -0.0025126463024386482},
          {"model.layers.1.self_attn.k_norm.weight", -0.003902539637116936},
          {"model.layers.1.self_attn.k_proj.weight", -0.0014811371091997677},
          {"model.layers.1.self_attn.o_proj.weight", -0.10918835817825084},
          {"model.layers.1.self_attn.q_norm.weight", -0.0047029452708121835},
          {"model.layers.1.self_attn.q_proj.weight", 0.054587362188491445},
          {"model.layers.1.self_attn.v_proj.weight", 0.081690005701431631},
          {"model.norm.weight", -0.013320549471228939},
        }}},
  };
  return references;
}

}  // namespace espalier::test
