#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Prints tests/io/megatron_files.hpp: small Megatron data sets, written from the description of the format with numpy and
nothing of Espalier.

    python3 tests/io/megatron_files.py >tests/io/megatron_files.hpp
"""
import struct

import numpy

CODES = {"uint8": 1, "int32": 4, "int64": 5, "uint16": 8}
DOCUMENTS = [[[5, 17], [42]], [[7]], [[]], [[255, 0], [3, 3]]]  # documents of sequences of tokens, at most two each


def data_set(dtype):
    sequences = [numpy.array(tokens, dtype="<" + numpy.dtype(dtype).str[1:]) for document in DOCUMENTS for tokens in document]
    lengths = numpy.array([len(tokens) for tokens in sequences], dtype="<i4")
    pointers = numpy.array([sum(tokens.nbytes for tokens in sequences[:i]) for i in range(len(sequences))], dtype="<i8")
    boundaries = numpy.cumsum([0] + [len(document) for document in DOCUMENTS]).astype("<i8")
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, CODES[dtype], len(lengths), len(boundaries))
    index += lengths.tobytes() + pointers.tobytes() + boundaries.tobytes()
    return b"".join(tokens.tobytes() for tokens in sequences), index


def constant(name, data):
    text = data.hex()
    lines = "\n".join(f'    "{text[i:i + 100]}"' for i in range(0, len(text), 100))
    return f"inline const char* const {name} =\n{lines};\n"


print("""// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Written by megatron_files.py: in hexadecimal digits, four documents, in sequences of two tokens at most: 5 17 42, 7, none, 255 0 3 3.
#pragma once

namespace espalier::test {
""")
for dtype in CODES:
    tokens, index = data_set(dtype)
    print(constant(f"megatron_{dtype}_bin", tokens))
    print(constant(f"megatron_{dtype}_idx", index))
print("}  // namespace espalier::test")
