"""Beatriz Stollnitz, "The Transformer architecture of GPT models" (2023): the decoder alone.

She took it from the Annotated Transformer (Harvard NLP). The text lost what stood in square
brackets; mended from its prose and figures:
- `self.sublayer0)` and `self.sublayer1`: the first sublayer runs the attention, the second one
  the feed-forward.
- `self.linears-1`: the last of the four linears is the output's.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Embeddings(nn.Module):
    def __init__(self, d_model: int, vocab_size: int):
        super().__init__()
        self.lut = nn.Embedding(vocab_size, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.lut(x) * math.sqrt(self.lut.embedding_dim)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, max_len: int = 5000):
        super().__init__()
        position = torch.arange(0, max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div_term), torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:, : x.shape[1]]


class LayerNorm(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6):
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class MultiHeadedAttention(nn.Module):
    def __init__(self, h: int, d_model: int):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        nbatches = query.shape[0]
        query, key, value = (
            linear(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for linear, x in zip(self.linears, (query, key, value))
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
        scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        x = torch.matmul(F.softmax(scores, dim=-1), value)
        return self.linears[-1](x.transpose(1, 2).reshape(nbatches, -1, self.h * self.d_k))


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(F.relu(self.w_1(x)))


class DecoderLayer(nn.Module):
    """SublayerConnection, twice: x + sublayer(norm(x))."""

    def __init__(self, d_model: int, h: int, d_ff: int):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff)
        self.sublayer_norm = nn.ModuleList(LayerNorm(d_model) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        normed = self.sublayer_norm[0](x)
        x = x + self.self_attn(normed, normed, normed, mask)
        return x + self.feed_forward(self.sublayer_norm[1](x))


class DecoderModel(nn.Module):
    """ids (B, T) -> log probabilities (B, T, V): `generator(decode(x, mask))`."""

    def __init__(
        self, vocab_size: int, N: int = 6, d_model: int = 512, d_ff: int = 2048, h: int = 8
    ):
        super().__init__()
        self.embed, self.position = Embeddings(d_model, vocab_size), PositionalEncoding(d_model)
        self.layers = nn.ModuleList(DecoderLayer(d_model, h, d_ff) for _ in range(N))
        self.norm = LayerNorm(d_model)
        self.proj = nn.Linear(d_model, vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        mask = subsequent_mask(x.shape[1])
        x = self.position(self.embed(x))
        for layer in self.layers:
            x = layer(x, mask)
        return F.log_softmax(self.proj(self.norm(x)), dim=-1)


def subsequent_mask(size: int) -> Tensor:
    return torch.triu(torch.ones(1, size, size), diagonal=1) == 0
