#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters of the models of models/presets.cpp, counted by transformers on the meta device, where no weight is allocated.

    python3 tests/models/transformers_sizes.py > tests/models/transformers_sizes.hpp

For development alone: the test reads the constants.
"""
import torch
import transformers


def config(kind, layers, hidden, heads, kv_heads, ffn, vocab, tied=False, **others):
    return kind(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=ffn,
                vocab_size=vocab, tie_word_embeddings=tied, **others)


LLAMA, MISTRAL, QWEN2, QWEN3 = (transformers.LlamaConfig, transformers.MistralConfig, transformers.Qwen2Config, transformers.Qwen3Config)
MODELS = {
    "llama-tiny": config(LLAMA, 4, 128, 4, 2, 352, 256),
    "mistral-tiny": config(MISTRAL, 3, 96, 4, 2, 256, 256),
    "qwen2-tiny": config(QWEN2, 3, 96, 4, 2, 256, 256, tied=True),
    "qwen3-tiny": config(QWEN3, 2, 64, 4, 2, 192, 256, tied=True, head_dim=32),
    "smollm2-135m": config(LLAMA, 30, 576, 9, 3, 1536, 49152, tied=True),
    "smollm2-360m": config(LLAMA, 32, 960, 15, 5, 2560, 49152, tied=True),
    "llama2-7b": config(LLAMA, 32, 4096, 32, 32, 11008, 32000),
    "llama2-13b": config(LLAMA, 40, 5120, 40, 40, 13824, 32000),
    "llama2-70b": config(LLAMA, 80, 8192, 64, 8, 28672, 32000),
    "llama3-8b": config(LLAMA, 32, 4096, 32, 8, 14336, 128256),
    "llama3-70b": config(LLAMA, 80, 8192, 64, 8, 28672, 128256),
    "llama-3.1-405b": config(LLAMA, 126, 16384, 128, 8, 53248, 128256),
    "llama-3.2-1b": config(LLAMA, 16, 2048, 32, 8, 8192, 128256, tied=True),
    "llama-3.2-3b": config(LLAMA, 28, 3072, 24, 8, 8192, 128256, tied=True),
    "mistral-7b": config(MISTRAL, 32, 4096, 32, 8, 14336, 32000),
    "qwen2.5-0.5b": config(QWEN2, 24, 896, 14, 2, 4864, 151936, tied=True),
    "qwen2.5-1.5b": config(QWEN2, 28, 1536, 12, 2, 8960, 151936, tied=True),
    "qwen2.5-3b": config(QWEN2, 36, 2048, 16, 2, 11008, 151936, tied=True),
    "qwen2.5-7b": config(QWEN2, 28, 3584, 28, 4, 18944, 152064),
    "qwen3-0.6b": config(QWEN3, 28, 1024, 16, 8, 3072, 151936, tied=True, head_dim=128),
    "qwen3-1.7b": config(QWEN3, 28, 2048, 16, 8, 6144, 151936, tied=True, head_dim=128),
    "qwen3-4b": config(QWEN3, 36, 2560, 32, 8, 9728, 151936, tied=True, head_dim=128),
    "qwen3-8b": config(QWEN3, 36, 4096, 32, 8, 12288, 151936, head_dim=128),
}
for alias, name in {"llama-3.1-8b": "llama3-8b", "llama-3.1-70b": "llama3-70b"}.items():
    MODELS[alias] = MODELS[name]

print("""// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>
""")
print(f"// Written by transformers_sizes.py with transformers {transformers.__version__}.")
print("""// clang-format off
namespace espalier::test {

struct TransformersSize {
  std::string preset;
  long long parameters;
};

inline const std::vector<TransformersSize> transformers_sizes = {""")
with torch.device("meta"):
    for name, model in MODELS.items():
        count = sum(weight.numel() for weight in transformers.AutoModelForCausalLM.from_config(model).parameters())
        print(f'    {{"{name}", {count}}},')
print("};\n\n}  // namespace espalier::test")
