#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Prints conversations.jsonl: each question in several wordings, and conversations of two questions."""
import json

FACTS = [
    ("What is Espalier?", "Espalier is a framework in C++20 that trains transformers across many ranks."),
    ("Who are you?", "I am a small model that was fine-tuned with Espalier."),
    ("What is your name?", "My name is Espalier's example. I am a small model that was fine-tuned with Espalier."),
    ("Which language is Espalier written in?", "Espalier is written in C++20."),
    ("Which libraries does Espalier use?", "Espalier uses Kokkos for kernels, MPI for messages, and HDF5 for checkpoints."),
    ("What does Kokkos do in Espalier?", "Kokkos runs the kernels of Espalier, on CPUs and on GPUs."),
    ("What does MPI do in Espalier?", "MPI carries the messages between the ranks of Espalier."),
    ("How do I start a training with Espalier?", "Write a config and run `mpiexec -n 4 espalier train my.toml`."),
    ("How do I train on one rank?", "Run `espalier train my.toml` without mpiexec."),
    ("How do I resume a run of Espalier?", "Launch the same command again. The run resumes from its newest checkpoint."),
    ("How do I stop a run of Espalier?", "Send it SIGTERM. It saves a checkpoint and ends with exit code 75."),
    ("What does exit code 75 mean?", "Exit code 75 means: stopped on request, after a checkpoint was saved."),
    ("What does exit code 2 mean?", "Exit code 2 means: the command line or the config is wrong."),
    ("What does exit code 3 mean?", "Exit code 3 means: a token file is bad."),
    ("What does exit code 4 mean?", "Exit code 4 means: a checkpoint is bad."),
    ("What does exit code 7 mean?", "Exit code 7 means: the memory is not enough."),
    ("What does exit code 8 mean?", "Exit code 8 means: a file cannot be written."),
    ("How do I make a token file?", "Run `espalier data pack --output train.bin books/*.txt`."),
    ("How do I look into a token file?", "Run `espalier data inspect train.bin`."),
    ("How do I pack conversations?", "Run `espalier data pack-conversations` with a tokenizer that has a chat template."),
    ("What counts in the loss of a conversation?", "Only the answers count, each with the token that ends it."),
    ("How are short conversations packed?", "Short conversations are packed by best fit: each row holds whole conversations."),
    ("How do I import a model from Hugging Face?",
     "Run `espalier checkpoint import MODEL --output NEW`, or train with `--init-from MODEL`."),
    ("How do I export a model to Hugging Face?", "Run `espalier checkpoint export RUN --output DIRECTORY`."),
    ("How do I write text with a trained model?", "Run `espalier generate --checkpoint RUN --prompt \"Once upon a time\"`."),
    ("How do I ask a trained model a question?", "Run `espalier generate --checkpoint RUN --message \"Your question\"`."),
    ("How do I measure the loss of a checkpoint?", "Run `espalier evaluate --checkpoint RUN --data val.bin`."),
    ("How do I find the best layout?", "Run `espalier plan`. It recommends a layout for your model and machine."),
    ("What does espalier plan do?", "It predicts time and memory of layouts and recommends the best one."),
    ("What does espalier diagnose do?", "It reads the records of a run and says why the run is slow, unstable or dead."),
    ("What does espalier verify do?", "It checks that a layout computes the same losses and gradients as one rank."),
    ("What does espalier report do?", "It draws a page with the losses, times and memory of a run."),
    ("Which axes of parallelism does Espalier have?", "Espalier has three axes: data, tensor and pipeline."),
    ("What is tensor parallelism?", "Tensor parallelism splits the matrices of each layer over ranks."),
    ("What is pipeline parallelism?", "Pipeline parallelism gives each rank some of the layers."),
    ("What is data parallelism?", "Data parallelism gives each rank a part of the batch."),
    ("What is ZeRO-1?", "ZeRO-1 splits the moments of the optimizer over the data-parallel ranks."),
    ("Which optimizer does Espalier use?", "Espalier uses AdamW."),
    ("Which model families does Espalier train?", "Espalier trains GPT-2, Llama, Mistral, Qwen2 and Qwen3."),
    ("Which tokenizers does Espalier read?", "Espalier reads tokenizer.json, SentencePiece models and tiktoken files."),
    ("Does Espalier need Python?", "No. Espalier is one C++ program and needs no Python."),
    ("Does Espalier run on GPUs?", "Yes. Espalier runs on NVIDIA GPUs, and on CPUs."),
    ("Is the loss the same in all layouts?",
     "Yes. Layouts differ by rounding alone, as samples and initial weights depend on no rank."),
    ("Where does a run write its losses?", "A run writes its losses to metrics.jsonl in its directory."),
    ("What is an espalier in a garden?", "An espalier is a tree that is trained flat along a wall."),
    ("Where can I read about the keys of a config?", "All keys of a config are in docs/config.md."),
]
WORDINGS = ["{}", "I am new to Espalier. {}", "{} Please answer in one sentence.", "Hello! {}"]


def message(role, content):
    return {"role": role, "content": content}


for question, answer in FACTS:
    for wording in WORDINGS:
        print(json.dumps({"prompt": wording.format(question), "completion": answer}))
for (question, answer), (next_question, next_answer) in zip(FACTS[::10], FACTS[1::10]):
    print(json.dumps({"messages": [message("user", question), message("assistant", answer),
                                   message("user", next_question), message("assistant", next_answer)]}))
