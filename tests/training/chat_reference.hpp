// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Written by chat_reference.py with transformers 5.24.0, PyTorch 2.15.0+cu132.

namespace espalier::test {

inline constexpr const char* chat_config = R"({
  "architectures": [
    "LlamaForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "dtype": "float64",
  "eos_token_id": 2,
  "head_dim": 8,
  "hidden_act": "silu",
  "hidden_size": 32,
  "initializer_range": 0.02,
  "intermediate_size": 56,
  "max_position_embeddings": 256,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "pad_token_id": null,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_parameters": {
    "rope_theta": 10000.0,
    "rope_type": "default"
  },
  "tie_word_embeddings": false,
  "transformers_version": "5.24.0",
  "use_cache": true,
  "vocab_size": 608
})";
inline constexpr int chat_conversations[] = {0, 1, 2, 4};
inline constexpr int chat_counted = 59;  ///< tokens
inline constexpr double chat_loss = 6.7558048873540706;

}  // namespace espalier::test
