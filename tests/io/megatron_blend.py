#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Prints tests/io/megatron_blend.hpp: which sets Megatron draws the samples of a blend from, and which documents of two sets it reads,
by the description of its algorithms, with nothing of Espalier.

    python3 tests/io/megatron_blend.py >tests/io/megatron_blend.hpp
"""
import functools
import math
import operator
import random

WEIGHTS = [[0.7, 0.3], [0.55, 0.45], [0.1, 0.2, 0.7], [0.333, 0.333, 0.333], [0.123, 0.456, 0.421], [0.05] * 20,
           [0, 0.25, 0, 0.75], [0.0123, 0.9877], [1.0]]
SAMPLES = 600
SEQUENCE_LENGTH = 5
# Tokens of the documents of two sets: together a multiple of the sequence length, and one.
SIZES = [[7, 1, 12, 5, 3, 9, 4], [2, 6, 16, 1, 11]]


def blend(weights, samples):
    """The set of each sample: the one whose samples so far are furthest behind its weight; the first of equals. A set of weight 0 has
    no samples: it is left out beforehand."""
    total = functools.reduce(operator.add, weights)  # from the first on: sum() of newer Pythons rounds less
    weights = [weight / total for weight in weights]
    drawn = [0] * len(weights)
    order = []
    for sample in range(samples):
        lags = [weight * max(float(sample), 1.0) - count if weight else -math.inf for weight, count in zip(weights, drawn)]
        order.append(lags.index(max(lags)))
        drawn[order[-1]] += 1
    return order


def documents_of_samples(sizes, samples, seed):
    """The documents that each sample of a set has tokens of: documents in shuffled order, an epoch after the other, cut into samples
    that share one token with the next; the samples shuffled, too."""
    shuffle = random.Random(seed).shuffle
    tokens = []
    while len(tokens) < samples * SEQUENCE_LENGTH + 1:
        documents = list(range(len(sizes)))
        shuffle(documents)
        tokens += [document for document in documents for _ in range(sizes[document])]
    cut = [set(tokens[i * SEQUENCE_LENGTH : (i + 1) * SEQUENCE_LENGTH + 1]) for i in range(samples)]
    shuffle(cut)
    return cut


def documents_read(weights, samples):
    """Of each set, what the samples of the blend have tokens of."""
    order = blend(weights, samples)
    read = []
    for number, sizes in enumerate(SIZES):
        cut = documents_of_samples(sizes, order.count(number), number)
        read.append(sorted(set().union(*cut)))
    return read


def text(name, values):
    digits = "".join(chr(ord("a") + value) for value in values)
    lines = "\n".join(f'    "{digits[i:i + 100]}"' for i in range(0, len(digits), 100))
    return f"inline const char* const {name} =\n{lines};\n"


def numbers(values):
    return "{" + ", ".join(str(value) for value in values) + "}"


print("""// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Written by megatron_blend.py: the set of each sample of a blend, a for the first.
#pragma once

#include <vector>

namespace espalier::test {
""")
for number, weights in enumerate(WEIGHTS):
    print(text(f"megatron_blend_{number}", blend(weights, SAMPLES)))
print("// Of two sets: tokens of each document, and the documents that 30 samples of 0.5, 0.5 read.")
for number, (sizes, read) in enumerate(zip(SIZES, documents_read([0.5, 0.5], 30))):
    print(f"inline const std::vector<int> megatron_sizes_{number} = {numbers(sizes)};")
    print(f"inline const std::vector<int> megatron_read_{number} = {numbers(read)};")
print("\n}  // namespace espalier::test")
