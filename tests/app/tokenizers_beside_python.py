# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""tokenizers_beside_python.py ESPALIER FIXTURE NUM_RANDOM [NAME...]: ids and texts of real tokenizers, equal to those of the
libraries of Python, on a fixture and on random strings. NAME: only tokenizers whose names have it."""
import random
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

import sentencepiece

sys.path.insert(0, str(Path(__file__).parent))
from real_tokenizers import all_references  # noqa: E402

espalier, fixture, num_random = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
# PCRE2 10.42 knows the characters of Unicode 14, as does Python 3.11, and the others do newer ones: a character that came since is
# a letter there, and nothing here. Such strings are left out.
def came_later(c):
    return unicodedata.category(c) == "Cn" and not (0xFDD0 <= ord(c) <= 0xFDEF or ord(c) & 0xFFFE == 0xFFFE)


ASSIGNED = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF and not came_later(chr(c))]
BY_KIND = {}
for c in ASSIGNED:
    BY_KIND.setdefault(unicodedata.category(c), []).append(c)
KINDS = [k for k in BY_KIND if k not in ("Co", "Cn")]
SPACES = list(" \t\n\r\v\f\u0085\u00a0\u1680\u180e\u2000\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff")
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|begin_of_text|>", "<|im_start|>", "<EOT>", "<｜begin▁of▁sentence｜>", "<unk>", "<0x0A>"]
WORDS = ["the", "The", "don't", "I'LL", "'s", "'ſ", "x=1;", "def f(a):", "http://a.b/c?d=e", "1234567", "3.14", "ß", "İ", "ǆ", "ﬁ", "①",
         "한국어", "日本語", "हिन्दी", "العربية", "ไทย", "👩‍👩‍👧", "🇩🇪", "e\u0301", "a\u0308\u0323", "\u1100\u1161\u11a8", "▁", "Ġ", "\ufffd"]


def random_string(rng):
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.randrange(9)
        if kind == 0:
            parts.append("".join(rng.choice(ASSIGNED) for _ in range(rng.randrange(1, 6))))
        elif kind == 1:
            parts.append("".join(rng.choice(BY_KIND[rng.choice(KINDS)]) for _ in range(rng.randrange(1, 6))))
        elif kind == 2:
            parts.append("".join(rng.choice(SPACES) for _ in range(rng.randrange(1, 6))))
        elif kind == 3:
            parts.append("".join(chr(rng.randrange(1, 128)) for _ in range(rng.randrange(1, 10))))
        elif kind == 4:
            parts.append(" " * rng.randrange(1, 20))
        elif kind == 5:
            parts.append(rng.choice("aeinost") + "".join(rng.choice(BY_KIND["Mn"]) for _ in range(rng.randrange(1, 4))))
        elif kind == 6 and rng.randrange(4) == 0:
            parts.append(rng.choice(SPECIAL))
        elif kind == 7:
            parts.append(rng.choice(" \n") + rng.choice(WORDS))
        else:
            parts.append(rng.choice(WORDS))
    return "".join(parts)


def run(*arguments):
    done = subprocess.run([espalier, "data", "tokenize", *arguments], capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}: {done.stderr.decode()}")
    return done.stdout


def differences(reference, texts, work, special):
    """Prints the first texts whose ids, or whose texts of ids, are others; returns how many there are."""
    documents, ids_file = work / "documents", work / "ids"
    documents.write_bytes(b"".join(t.encode() + b"\0" for t in texts))
    options = ["--add-special-tokens"] if special else []
    begin = time.time()
    out = run("--tokenizer", reference.path, "--null", *options, documents)
    ours = [list(map(int, line.split())) for line in out.decode().split("\n")[:-1]]
    middle = time.time()
    theirs = reference.encode(texts, special)
    end = time.time()
    wrong = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    for i in wrong[:5]:
        print(f"  {texts[i]!a}\n    ours   {ours[i]}\n    theirs {theirs[i]}")
    ids_file.write_text("".join(" ".join(map(str, ids)) + "\n" for ids in theirs))
    decoded = run("--tokenizer", reference.path, "--null", "--decode", ids_file).split(b"\0")[:-1]
    bad = [i for i, (a, ids) in enumerate(zip(decoded, theirs, strict=True)) if a.decode(errors="replace") != reference.decode(ids)]
    for i in bad[:5]:
        print(f"  decoded {decoded[i]!a}\n    theirs  {reference.decode(theirs[i])!a}")
    print(f"{reference.name}: {len(texts)} texts, {sum(map(len, theirs))} tokens: {len(wrong)} other ids, {len(bad)} other texts"
          f" ({middle - begin:.1f} s, in Python {end - middle:.1f} s)", flush=True)
    return len(wrong) + len(bad)


def other_sentencepiece():
    """In words, where Python's SentencePiece is of another version than the library of Espalier: they split some texts otherwise."""
    asked = subprocess.run(["pkg-config", "--modversion", "sentencepiece"], capture_output=True, text=True)
    ours = asked.stdout.strip()
    if asked.returncode or ours.split(".")[:2] == sentencepiece.__version__.split(".")[:2]:
        return ""
    return f"Python has sentencepiece {sentencepiece.__version__}, and Espalier the library {ours}"


rng = random.Random(1)
lines = fixture.read_bytes().decode().split("\n")
texts = [t for t in [fixture.read_bytes().decode(), *lines, *("\n".join(lines[i:i + 3]) for i in range(len(lines)))] if t]
strings = [random_string(rng) for _ in range(num_random)]
failures = 0
with tempfile.TemporaryDirectory() as name:
    references, missing = all_references(Path(name))
    chosen = [(n, make) for n, make in references if not sys.argv[4:] or any(part in n for part in sys.argv[4:])]
    if other := other_sentencepiece():
        left_out = [n for n, _ in chosen if "(sentencepiece)" in n]
        print(f"SKIPPED: {', '.join(left_out)}: {other}" if left_out else other)
        chosen = [(n, make) for n, make in chosen if n not in left_out]
    for tokenizer, make in chosen:
        reference = make()
        failures += differences(reference, texts, Path(name), hasattr(reference, "tokenizer"))
        failures += differences(reference, strings, Path(name), False)
if not chosen:
    print("SKIPPED: no tokenizer to compare; see test_tokenizers.sh for the packages that have some")
    sys.exit(77)
if len(chosen) < 8 and not sys.argv[4:]:
    print("fewer than 8 tokenizers were compared: install more of the packages that test_tokenizers.sh names")
    failures += 1
print(f"{len(chosen)} tokenizers" + (f"; not installed: {', '.join(missing)}" if missing else ""))
sys.exit(1 if failures else 0)
