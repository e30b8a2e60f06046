#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models of transformers in fp64: logits, loss, all gradients and ten steps of training as C++ constants.

    python3 tests/training/transformers_reference.py

writes transformers_reference_*.hpp beside itself. For development alone: the tests read the constants and need neither PyTorch nor
transformers. Weights and tokens are closed forms that test_hugging_face.cpp writes the same way, exact in fp32. Of each array stands
its sum with the weights of `pattern`.
"""
import pathlib

import torch
import transformers
from transformers import modeling_rope_utils
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

BATCH, LENGTH, STEPS = 2, 9, 10
GPT2_RATES = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
FAMILIES = {
    "gpt2": {
        "gpt2": transformers.GPT2Config(vocab_size=61, n_positions=16, n_embd=32, n_layer=2, n_head=4, n_inner=80, **GPT2_RATES),
        "gpt2_with_erf": transformers.GPT2Config(vocab_size=67, n_positions=12, n_embd=24, n_layer=1, n_head=3, n_inner=40,
                                                 activation_function="gelu", **GPT2_RATES),
        "gpt2_untied": transformers.GPT2Config(vocab_size=59, n_positions=12, n_embd=24, n_layer=1, n_head=2, n_inner=56,
                                               layer_norm_epsilon=1e-3, tie_word_embeddings=False, **GPT2_RATES),
    },
    "llama": {
        # Of the four pairs of a head, llama3 leaves the first alone, divides the last, and blends the others.
        "llama": transformers.LlamaConfig(
            vocab_size=67, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
        "llama_with_biases": transformers.LlamaConfig(
            vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
            max_position_embeddings=128, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
            rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 32}),
        "mistral": transformers.MistralConfig(
            vocab_size=59, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, hidden_act="gelu_pytorch_tanh", max_position_embeddings=64, sliding_window=4),
    },
    "qwen": {
        "qwen2": transformers.Qwen2Config(
            vocab_size=71, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, tie_word_embeddings=True, use_sliding_window=True, sliding_window=3, max_window_layers=1,
            rope_parameters={"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.0}),
        "qwen3": transformers.Qwen3Config(
            vocab_size=73, hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=10, max_position_embeddings=64, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    },
}


class AllInFp64:
    """PyTorch for modules that compute norms, softmax and rotary positions in fp32, whatever the type of the model."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


for module in (modeling_rope_utils, modeling_llama, modeling_mistral, modeling_qwen2, modeling_qwen3):
    module.torch = AllInFp64()


def hash32(stream: int, count: int) -> torch.Tensor:
    mask = 0xFFFFFFFF
    x = (torch.arange(count) * 2654435761 + stream * 2246822519 + 374761393) & mask
    x = ((x ^ (x >> 15)) * 2246822519) & mask
    x = ((x ^ (x >> 13)) * 3266489917) & mask
    return x ^ (x >> 16)


def values(stream: int, count: int) -> torch.Tensor:
    """Multiples of 2^-17 in [-1/4, 1/4)."""
    return ((hash32(stream, count) >> 16) - 32768).double() / 131072


def pattern(array: torch.Tensor) -> float:
    return torch.dot(array.double().flatten(), values(999, array.numel())).item()


def reference(name: str, config) -> list[str]:
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float64)
    weights = dict(sorted(model.named_parameters()))
    with torch.no_grad():
        for stream, (tensor, weight) in enumerate(weights.items()):
            weight.copy_(values(stream, weight.numel()).reshape(weight.shape) + ("norm" in tensor or "ln_" in tensor) *
                         tensor.endswith("weight"))
    text = (hash32(1000, BATCH * (LENGTH + 1)) % config.vocab_size).reshape(BATCH, LENGTH + 1)
    optimizer = torch.optim.AdamW([{"params": [w for w in weights.values() if w.ndim > 1], "weight_decay": 0.1},
                                   {"params": [w for w in weights.values() if w.ndim == 1], "weight_decay": 0}],
                                  lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS):
        logits = model(text[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            first_logits = pattern(logits)
            gradients = {tensor: pattern(weight.grad) for tensor, weight in weights.items()}
        optimizer.step()
        losses.append(loss.item())
    config.architectures = [type(model).__name__]
    lines = [f'      {{"{name}", {{R"({config.to_json_string(use_diff=True).strip()})",', f"        {first_logits:.17g},", "        {"]
    lines += [f"          {loss:.17g}," for loss in losses] + ["        }, {"]
    lines += [f'          {{"{tensor}", {gradient:.17g}}},' for tensor, gradient in gradients.items()]
    return lines + ["        }}},"]


def main() -> None:
    folder = pathlib.Path(__file__).parent
    for file, models in FAMILIES.items():
        lines = [
            "// SPDX-FileCopyrightText: The Espalier authors", "// SPDX-License-Identifier: Apache-2.0", "#pragma once", "",
            '#include "tests/training/transformers_reference.hpp"', "",
            f"// Written by transformers_reference.py with transformers {transformers.__version__}, PyTorch {torch.__version__}.",
            "// clang-format off", "namespace espalier::test {", "",
            f"inline const TransformersReferences& transformers_{file}() {{", "  static const TransformersReferences references = {"
        ]
        for name, config in models.items():
            lines += reference(name, config)
        lines += ["  };", "  return references;", "}", "", "}  // namespace espalier::test"]
        (folder / f"transformers_reference_{file}.hpp").write_text("\n".join(lines) + "\n")


main()
