# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""The models of bench/compare_pytorch in PyTorch, as plain modules. PyTorch is imported by `build` alone."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Gpt2:
    layers: int
    channels: int
    heads: int
    vocabulary: int = 50257
    positions: int = 1024


@dataclasses.dataclass(frozen=True)
class Llama:
    layers: int
    channels: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    theta: float


PRESETS = {
    "gpt2-124m": Gpt2(12, 768, 12),
    "gpt2-355m": Gpt2(24, 1024, 16),
    "gpt2-774m": Gpt2(36, 1280, 20),
    "gpt2-1558m": Gpt2(48, 1600, 25),
    "smollm2-135m": Llama(30, 576, 9, 3, 1536, 49152, 1e5),
    "llama-3.2-1b": Llama(16, 2048, 32, 8, 8192, 128256, 5e5),
}


def build(shape: Gpt2 | Llama, batch: int, length: int, rows: int):
    """A module that takes tokens (B, T) and targets (B, T) and gives their mean loss; `rows` of the token embedding."""
    return (llama if isinstance(shape, Llama) else gpt2)(shape, batch, length, rows)


def gpt2(shape: Gpt2, batch: int, length: int, rows: int):
    import torch.nn.functional as F
    from torch import nn

    channels, heads = shape.channels, shape.heads

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
            self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
            self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

        def forward(self, x):  # (B, T, C)
            q, k, v = (part.reshape(batch, length, heads, -1).transpose(1, 2)
                       for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(batch, length, channels))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(rows, channels), nn.Embedding(shape.positions, channels)
            self.blocks = nn.ModuleList(Block() for _ in range(shape.layers))
            self.norm = nn.LayerNorm(channels)
            for table in (self.tokens, self.positions):
                nn.init.normal_(table.weight, std=0.02)

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions.weight[:length]
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.reshape(-1, rows), targets.reshape(-1))

    return Model()


def llama(shape: Llama, batch: int, length: int, rows: int):
    """RMSNorm, rotary positions, grouped heads and a gate; the head is the token embedding."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    channels, heads, kv_heads, ffn = shape.channels, shape.heads, shape.kv_heads, shape.feed_forward
    size = channels // heads  # of a head

    def turn(x, cosine, sine):  # (B, NH, T, HS), (T, HS): as transformers does, pairs half a head apart
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-second, first), dim=-1) * sine

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(channels, eps=1e-5), nn.RMSNorm(channels, eps=1e-5)
            self.qkv = nn.Linear(channels, (heads + 2 * kv_heads) * size, bias=False)
            self.proj = nn.Linear(channels, channels, bias=False)
            self.gate_up, self.down = nn.Linear(channels, 2 * ffn, bias=False), nn.Linear(ffn, channels, bias=False)

        def forward(self, x, cosine, sine):  # (B, T, C)
            q, k, v = (part.reshape(batch, length, -1, size).transpose(1, 2)
                       for part in self.qkv(self.norm1(x)).split([heads * size, kv_heads * size, kv_heads * size], dim=-1))
            q, k = turn(q, cosine, sine).to(v.dtype), turn(k, cosine, sine).to(v.dtype)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.proj(y.transpose(1, 2).reshape(batch, length, channels))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(rows, channels)
            self.blocks = nn.ModuleList(Block() for _ in range(shape.layers))
            self.norm = nn.RMSNorm(channels, eps=1e-5)
            nn.init.normal_(self.tokens.weight, std=0.02)
            frequencies = shape.theta ** (-torch.arange(0, size, 2) / size)  # (HS/2)
            angles = torch.outer(torch.arange(length), frequencies).repeat(1, 2)  # (T, HS)
            self.register_buffer("cosine", angles.cos(), persistent=False)
            self.register_buffer("sine", angles.sin(), persistent=False)

        def forward(self, tokens, targets):
            x = self.tokens(tokens)
            for block in self.blocks:
                x = block(x, self.cosine, self.sine)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.reshape(-1, rows), targets.reshape(-1))

    return Model()
