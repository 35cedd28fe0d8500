"""The handbook "手撕Transformer": an encoder-decoder with one embedding for both sides.

Mended, for its code does not run as printed:
- `forword`, `arrange`, `block._size`, `nn.Linear(dim.hidden_dim)`, `ModluleDict`, `self.is_causal`
  that is never set, missing `return`s and `self.`s; `args.dim` and `args.n_embd` are one number.
- `div_term` says 1000.0 where the formula above it and `PositionEncoding(n=10000)` say 10000.
- `h = ffn_norm(h)` in the decoder layer overwrites the residual; the encoder layer and section 3.2
  add the norm's output to what came before.
- Keys and values are viewed with the queries' length; source and target may differ in theirs.
- `forward(idx)` feeds the same ids to both sides; here a source and a target.
- It knows no padding; here each attention takes a mask, 1 where it may look.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PositionalEncoding(nn.Module):
    """Section 2's first form, by loops."""

    def __init__(self, block_size: int, n_embd: int, n: float = 10000.0):
        super().__init__()
        P = torch.zeros(block_size, n_embd)
        for k in range(block_size):
            for i in range(n_embd // 2):
                denominator = n ** (2 * i / n_embd)
                P[k, 2 * i] = math.sin(k / denominator)
                P[k, 2 * i + 1] = math.cos(k / denominator)
        self.register_buffer("pe", P, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[: x.shape[1]]


class LayerNorm(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6):
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class MultiHeadAttention(nn.Module):
    def __init__(self, dim: int, n_heads: int):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, dim // n_heads
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wv, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        xq, xk, xv = (
            x.view(x.shape[0], x.shape[1], self.n_heads, self.head_dim).transpose(1, 2)
            for x in (self.wq(q), self.wk(k), self.wv(v))
        )
        scores = torch.matmul(xq, xk.transpose(2, 3)) / math.sqrt(self.head_dim)
        scores = scores + torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
        output = torch.matmul(F.softmax(scores, dim=-1), xv)
        return self.wo(output.transpose(1, 2).reshape(q.shape))


class MLP(nn.Module):
    def __init__(self, dim: int, hidden_dim: int):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden_dim, bias=False)
        self.w2 = nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.relu(self.w1(x)))


class EncoderLayer(nn.Module):
    def __init__(self, dim: int, n_heads: int):
        super().__init__()
        self.attention_norm, self.fnn_norm = LayerNorm(dim), LayerNorm(dim)
        self.attention, self.feed_forward = MultiHeadAttention(dim, n_heads), MLP(dim, dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        norm_x = self.attention_norm(x)
        h = x + self.attention(norm_x, norm_x, norm_x, mask)
        return h + self.feed_forward(self.fnn_norm(h))


class DecoderLayer(nn.Module):
    def __init__(self, dim: int, n_heads: int):
        super().__init__()
        self.attention_norm_1, self.attention_norm_2 = LayerNorm(dim), LayerNorm(dim)
        self.mask_attention = MultiHeadAttention(dim, n_heads)
        self.attention = MultiHeadAttention(dim, n_heads)
        self.ffn_norm, self.feed_forward = LayerNorm(dim), MLP(dim, dim)

    def forward(self, x: Tensor, enc_out: Tensor, mask: Tensor, enc_mask: Tensor) -> Tensor:
        norm_x = self.attention_norm_1(x)
        x = x + self.mask_attention(norm_x, norm_x, norm_x, mask)
        h = x + self.attention(self.attention_norm_2(x), enc_out, enc_out, enc_mask)
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    """ids (B, S) and (B, T), masks that broadcast to (B, h, S, S) and (B, h, T, T) -> (B, T, V)."""

    def __init__(self, vocab_size: int, block_size: int, n_embd: int, n_heads: int, n_layer: int):
        super().__init__()
        self.wte, self.wpe = (
            nn.Embedding(vocab_size, n_embd),
            PositionalEncoding(block_size, n_embd),
        )
        self.encoder = nn.ModuleList(EncoderLayer(n_embd, n_heads) for _ in range(n_layer))
        self.encoder_norm = LayerNorm(n_embd)
        self.decoder = nn.ModuleList(DecoderLayer(n_embd, n_heads) for _ in range(n_layer))
        self.decoder_norm = LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, src: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        enc_out = self.wpe(self.wte(src))
        for layer in self.encoder:
            enc_out = layer(enc_out, src_mask)
        enc_out, x = self.encoder_norm(enc_out), self.wpe(self.wte(tgt))
        for layer in self.decoder:
            x = layer(x, enc_out, tgt_mask, src_mask)
        return self.lm_head(self.decoder_norm(x))
