#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""An exported model in transformers, in fp32, and saved again: transformers_model.py MODEL TOKENS LENGTH TEXT PROMPT_BYTES AGAIN

Prints its mean loss on a token file of bytes, in whole sequences of LENGTH. Fails where weights are missing or left over, or
where the most likely tokens after the first PROMPT_BYTES of TEXT, a file that `espalier generate` has written, are not those
that follow there. AGAIN is a directory for save_pretrained().
"""
import sys
from pathlib import Path

import torch
import transformers

HEADER_BYTES = 256  # of a token file; docs/token_file.md


def mean_loss(model, ids: torch.Tensor, length: int) -> float:
    """Of the tokens ids (N): nats per token."""
    count = (len(ids) - 1) // length
    total = 0.0
    for first in range(0, count * length, length):
        window = ids[first:first + length + 1]
        logits = model(window[None, :-1]).logits[0].double()  # (T, V)
        total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
    return total / (count * length)


def main() -> None:
    directory, tokens, length, text, prompt_bytes, again = sys.argv[1:]
    transformers.utils.logging.disable_progress_bar()
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    problems = {key: value for key, value in loading.items() if value}
    if problems:
        sys.exit(f"from_pretrained says {problems}")
    file = Path(tokens).read_bytes()
    if int.from_bytes(file[12:16], "little") != 2:
        sys.exit("a token takes not two bytes")
    ids = torch.frombuffer(bytearray(file[HEADER_BYTES:]), dtype=torch.int16).long()
    with torch.no_grad():
        print(f"{mean_loss(model, ids, int(length)):.9f}")
    ours = list(Path(text).read_bytes().removesuffix(b"\n"))
    prompt = torch.tensor([ours[:int(prompt_bytes)]])  # (1, T)
    theirs = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=len(ours) - prompt.shape[1],
                            do_sample=False)[0].tolist()
    if theirs != ours:
        sys.exit(f"greedy tokens {theirs}, those of espalier {ours}")
    if len(set(ours[prompt.shape[1]:])) < 3:
        sys.exit(f"tokens that show nothing: {ours}")
    model.save_pretrained(again)


if __name__ == "__main__":
    main()
