# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Mean cross-entropy of what `espalier evaluate --logits` has written, read without NumPy.

read_logits.py LOGITS.npy TOKENS.bin SEQUENCE_LENGTH: prints the loss, the rows and the columns.
"""
import ast
import math
import struct
import sys

logits, tokens, length = sys.argv[1], sys.argv[2], int(sys.argv[3])

with open(logits, "rb") as file:
    magic, major, minor, header_bytes = struct.unpack("<6sBBH", file.read(10))
    assert (magic, major, minor) == (b"\x93NUMPY", 1, 0), (magic, major, minor)
    assert (10 + header_bytes) % 64 == 0, header_bytes
    text = file.read(header_bytes).decode("latin-1")
    assert text.endswith("\n"), text
    header = ast.literal_eval(text)
    assert sorted(header) == ["descr", "fortran_order", "shape"], header
    assert header["descr"] == "<f4" and header["fortran_order"] is False, header
    rows, columns = header["shape"]
    payload = file.read()
assert len(payload) == 4 * rows * columns, len(payload)
assert rows % length == 0, rows

with open(tokens, "rb") as file:
    head = file.read(256)
    assert head[:8] == b"ESPTOKEN" and struct.unpack_from("<I", head, 12) == (2,)
    ids = struct.unpack(f"<{rows + 1}H", file.read(2 * (rows + 1)))

loss = 0.0
for row in range(rows):
    values = struct.unpack_from(f"<{columns}f", payload, 4 * columns * row)
    largest = max(values)
    loss += largest + math.log(sum(math.exp(value - largest) for value in values)) - values[ids[row + 1]]
print(f"{loss / rows:.9g} {rows} {columns}")
