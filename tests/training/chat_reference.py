#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""The loss of conversations by transformers in fp64, one conversation at a time, where only the answers count.

    python3 tests/training/chat_reference.py

writes chat_reference.hpp beside itself, for test_conversations.cpp: the conversations of tests/io/text/chat_templates.json, a tiny
Llama whose weights are the closed forms of transformers_reference.py. Labels are those of a plain loop: the ids of a conversation
up to an answer are left out, as a prefix of those with the answer.
"""
import json
import pathlib
import sys

import torch
import transformers
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import transformers_reference as reference  # noqa: E402

CONFIG = transformers.LlamaConfig(vocab_size=608, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
                                  num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5)
CHOSEN = (0, 1, 2, 4)


def main() -> None:
    fixture = json.loads((HERE / "../io/text/chat_templates.json").read_text(encoding="utf-8"))
    core = Tokenizer.from_file(str(HERE / "../io/text/gpt2_like.json"))
    core.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, chat_template=fixture["templates"]["chatml"]["template"])
    model = transformers.AutoModelForCausalLM.from_config(CONFIG, attn_implementation="eager", dtype=torch.float64)
    with torch.no_grad():
        for stream, (tensor, weight) in enumerate(sorted(model.named_parameters())):
            weight.copy_(reference.values(stream, weight.numel()).reshape(weight.shape) + ("norm" in tensor))
    total, count = 0.0, 0
    for conversation in (fixture["conversations"][i] for i in CHOSEN):
        ids = tokenizer.apply_chat_template(conversation, return_dict=False)
        labels = [-100] * len(ids)
        for i, message in enumerate(conversation):
            if message["role"] == "assistant":
                begin = len(tokenizer.apply_chat_template(conversation[:i], return_dict=False, add_generation_prompt=True))
                end = len(tokenizer.apply_chat_template(conversation[:i + 1], return_dict=False)) - 1  # without the line's end
                labels[begin:end] = ids[begin:end]
        logits = model(torch.tensor([ids])).logits[0]
        total += torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(labels[1:]), ignore_index=-100, reduction="sum").item()
        count += sum(label >= 0 for label in labels)
    CONFIG.architectures = [type(model).__name__]
    (HERE / "chat_reference.hpp").write_text("\n".join([
        "// SPDX-FileCopyrightText: The Espalier authors", "// SPDX-License-Identifier: Apache-2.0", "#pragma once", "",
        f"// Written by chat_reference.py with transformers {transformers.__version__}, PyTorch {torch.__version__}.", "",
        "namespace espalier::test {", "",
        f'inline constexpr const char* chat_config = R"({CONFIG.to_json_string(use_diff=True).strip()})";',
        f"inline constexpr int chat_conversations[] = {{{', '.join(map(str, CHOSEN))}}};",
        f"inline constexpr int chat_counted = {count};  ///< tokens", f"inline constexpr double chat_loss = {total / count:.17g};", "",
        "}  // namespace espalier::test", ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
