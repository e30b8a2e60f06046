# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""make_fixtures.py: writes the small tokenizers beside it, trained on languages.txt, and expected.txt: what the Python packages
`tokenizers`, `sentencepiece` and `tiktoken` make of that text with them. Run by hand when one of them is to change."""
import base64
import io
import json
from pathlib import Path

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def save(tokenizer, name):
    tokenizer.save(str(HERE / name), pretty=False)
    # half the size, and what older versions write: merges as texts
    data = json.loads((HERE / name).read_text(encoding="utf-8"))
    (HERE / name).write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    return Tokenizer.from_file(str(HERE / name))


def gpt2_like(lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainer)
    return save(tokenizer, "gpt2_like.json")


def llama3_like(lines):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    tokenizer.add_tokens([AddedToken("lonely", single_word=True), AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=False)])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing("<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|> $B:1",
                                             [("<|begin_of_text|>", bos)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return save(tokenizer, "llama3_like.json")


def lower_like(lines):
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(),
                                                 normalizers.Replace(Regex(r"\s+"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation(),
                                                       pre_tokenizers.Metaspace(prepend_scheme="first")])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["[UNK]"], show_progress=False, limit_alphabet=120)
    tokenizer.train_from_iterator(lines, trainer)
    return save(tokenizer, "lower_like.json")


def llama2_like(lines):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")  # of the training alone
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, limit_alphabet=120,
                                  special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))])
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.pre_tokenizer = None
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]  # as Llama 2 has it: bytes are no added tokens
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B:1", [("<s>", 1)])
    return save(tokenizer, "llama2_like.json")


def tiktoken_like(gpt2):
    """The tokens of gpt2_like as ranks, in the order in which they were merged."""
    alphabet = {}
    others = 0
    for b in range(256):
        printable = 0x21 <= b <= 0x7E or (0xA1 <= b and b != 0xAD)
        alphabet[chr(b if printable else 256 + others)] = b
        others += not printable
    vocab = {k: v for k, v in gpt2.get_vocab(with_added_tokens=False).items() if k != "<|endoftext|>"}
    ranks = {bytes(alphabet[c] for c in token): i for i, token in enumerate(sorted(vocab, key=vocab.get))}
    (HERE / "small.tiktoken").write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()))
    special = {"<|endoftext|>": len(ranks)}
    (HERE / "small.tiktoken.json").write_text(json.dumps({"pattern": LLAMA3, "special_tokens": special}) + "\n")
    return tiktoken.Encoding("small", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens=special)


def sentencepiece_like(lines, kind, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, model_type=kind, vocab_size=1000,
                                             character_coverage=0.98, byte_fallback=True, minloglevel=2, **options)
    (HERE / f"{kind}.model").write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


text = (HERE / "languages.txt").read_bytes().decode()
lines = [line for line in text.split("\n") if line]
gpt2 = gpt2_like(lines)
small = tiktoken_like(gpt2)
jsons = {"gpt2_like.json": gpt2, "llama3_like.json": llama3_like(lines), "lower_like.json": lower_like(lines),
         "llama2_like.json": llama2_like(lines)}
pieces = {"bpe.model": sentencepiece_like(lines, "bpe", normalization_rule_name="identity"),
          "unigram.model": sentencepiece_like(lines, "unigram", normalization_rule_name="identity")}
libraries = {name: (lambda t, tokenizer=tokenizer: tokenizer.encode(t, add_special_tokens=True).ids,
                    lambda ids, tokenizer=tokenizer: tokenizer.decode(ids, skip_special_tokens=False)) for name, tokenizer in jsons.items()}
libraries["small.tiktoken"] = (lambda t: small.encode(t, allowed_special="all"), small.decode)
libraries |= {name: (lambda t, p=p: p.encode(t, add_bos=True), p.decode) for name, p in pieces.items()}
with open(HERE / "expected.txt", "w", encoding="utf-8") as file:
    file.write("# Of make_fixtures.py: a tokenizer, how many tokens the lines of languages.txt and the whole of it have, and the FNV-1a\n"
               "# hashes of the ids (a text a line) and of the texts that are decoded from them.\n")
    for name, (encode, decode) in libraries.items():
        ids = [encode(t) for t in [*lines, text]]
        hashes = fnv("".join(" ".join(map(str, i)) + "\n" for i in ids)), fnv("".join(decode(i) + "\n" for i in ids))
        file.write(f"{name} {sum(map(len, ids))} {hashes[0]:016x} {hashes[1]:016x}\n")
