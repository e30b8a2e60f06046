#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models of transformers in fp64: logits, loss and all gradients as C++ constants.

    python3 tests/training/transformers_reference.py > tests/training/transformers_reference.hpp

For development alone: the tests read the constants and need neither PyTorch nor transformers. Weights and tokens are closed forms
that test_hugging_face.cpp writes the same way, exact in fp32. Of each array stands its sum with the weights of `pattern`.
"""
import torch
import transformers

BATCH, LENGTH = 2, 9
FAMILIES = {
    "gpt2": transformers.GPT2Config(vocab_size=61, n_positions=16, n_embd=32, n_layer=2, n_head=4, n_inner=80, resid_pdrop=0,
                                    embd_pdrop=0, attn_pdrop=0),
    "gpt2 with erf": transformers.GPT2Config(vocab_size=67, n_positions=12, n_embd=24, n_layer=1, n_head=3, n_inner=40, resid_pdrop=0,
                                             embd_pdrop=0, attn_pdrop=0, activation_function="gelu"),
}


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


def main() -> None:
    print("// SPDX-FileCopyrightText: The Espalier authors")
    print("// SPDX-License-Identifier: Apache-2.0")
    print("#pragma once\n")
    print("#include <map>\n#include <string>\n")
    print(f"// Written by transformers_reference.py with transformers {transformers.__version__}, PyTorch {torch.__version__}.")
    print("// clang-format off")
    print("namespace espalier::test {\n")
    print("/// A model in fp64: its loss (mean), and sums of its logits and of the gradients of its tensors, weighted by a pattern.")
    print("struct TransformersReference {\n  std::string config;\n  double loss;\n  double logits;\n"
          "  std::map<std::string, double> gradients;\n};\n")
    print("inline const std::map<std::string, TransformersReference>& transformers_references() {")
    print("  static const std::map<std::string, TransformersReference> references = {")
    for family, config in FAMILIES.items():
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float64)
        weights = dict(sorted(model.named_parameters()))
        with torch.no_grad():
            for stream, (name, weight) in enumerate(weights.items()):
                weight.copy_(values(stream, weight.numel()).reshape(weight.shape) + ("norm" in name or "ln_" in name) *
                             name.endswith("weight"))
        text = (hash32(1000, BATCH * (LENGTH + 1)) % config.vocab_size).reshape(BATCH, LENGTH + 1)
        logits = model(text[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        config.architectures = [type(model).__name__]
        print(f'    {{"{family}", {{R"({config.to_json_string(use_diff=True).strip()})",')
        print(f"      {loss.item():.17g}, {pattern(logits):.17g}, {{")
        for name, weight in weights.items():
            print(f'        {{"{name}", {pattern(weight.grad):.17g}}},')
        print("      }}},")
    print("  };\n  return references;\n}\n")
    print("}  // namespace espalier::test")


main()
