"""Wayland Zhang, "Let's code an LLM" (2024-02-22): its article, and its published code.

The code is model.py of github.com/waylandzhang/Transformer-from-scratch: it puts the norm before
each sublayer, adds a last one, and makes each head a module of its own. Mended:
- `nn.Embedding(max_token_value)` has no row for the largest token; here `vocab_size` rows, and as
  many logits (the code has one row more than logits).
- The article's second `output + X` adds the input of the whole block, past the attention; here
  the feed-forward's own input, as in the code and in the prose of step 5.
- The article's `torch.dropout(..., train=True)` would drop in use, too.
"""

import math

import torch
from torch import Tensor, nn


def position_encoding_lookup_table(context_length: int, d_model: int) -> Tensor:
    table = torch.zeros(context_length, d_model)
    position = torch.arange(0, context_length, dtype=torch.float).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    table[:, 0::2] = torch.sin(position * div_term)
    table[:, 1::2] = torch.cos(position * div_term)
    return table


class ArticleBlock(nn.Module):
    """Steps 4 to 6: heads by `view`, the norm after each sum."""

    def __init__(self, d_model: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.Wq, self.Wk = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.Wv, self.Wo = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.linear_1 = nn.Linear(d_model, d_model * 4)
        self.linear_2 = nn.Linear(d_model * 4, d_model)
        self.layer_norm_1, self.layer_norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, X: Tensor) -> Tensor:
        batch_size, T, d_model = X.shape
        head_size = d_model // self.num_heads
        shape = (batch_size, -1, self.num_heads, head_size)
        Q = self.Wq(X).view(shape).transpose(1, 2)
        K = self.Wk(X).view(shape).transpose(1, 2)
        V = self.Wv(X).view(shape).transpose(1, 2)
        score = torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(head_size)
        later = torch.triu(torch.ones(T, T), diagonal=1).bool()
        score = torch.softmax(score.masked_fill(later, float("-inf")), dim=-1)
        A = torch.matmul(score, V).transpose(1, 2).reshape(batch_size, -1, d_model)
        attended = self.layer_norm_1(self.Wo(A) + X)
        output = self.linear_2(torch.relu(self.linear_1(attended)))
        return self.layer_norm_2(output + attended)


class Article(nn.Module):
    """Steps 3 to 8: ids (B, T) -> logits (B, T, V)."""

    def __init__(self, vocab_size: int, d_model: int = 64, num_layers: int = 8, num_heads: int = 4):
        super().__init__()
        self.token_embedding_lookup_table = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(ArticleBlock(d_model, num_heads) for _ in range(num_layers))
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        X = self.token_embedding_lookup_table(ids)
        X = X + position_encoding_lookup_table(X.shape[1], X.shape[2])
        for block in self.blocks:
            X = block(X)
        return self.logits(X)


class Head(nn.Module):
    """One head of the published code: (B, T, C) -> (B, T, head_size)."""

    def __init__(self, d_model: int, head_size: int):
        super().__init__()
        self.key_layer = nn.Linear(d_model, head_size, bias=False)
        self.query_layer = nn.Linear(d_model, head_size, bias=False)
        self.value_layer = nn.Linear(d_model, head_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        T = x.shape[1]
        q, k, v = self.query_layer(x), self.key_layer(x), self.value_layer(x)
        weights = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
        weights = weights.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf"))
        return torch.softmax(weights, dim=-1) @ v


class PublishedBlock(nn.Module):
    def __init__(self, d_model: int, num_heads: int):
        super().__init__()
        self.heads = nn.ModuleList(Head(d_model, d_model // num_heads) for _ in range(num_heads))
        self.projection_layer = nn.Linear(d_model, d_model)
        self.ffn = nn.Sequential(
            nn.Linear(d_model, d_model * 4), nn.ReLU(), nn.Linear(d_model * 4, d_model)
        )
        self.layer_norm_1, self.layer_norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.layer_norm_1(x)
        x = x + self.projection_layer(torch.cat([head(normed) for head in self.heads], dim=-1))
        return x + self.ffn(self.layer_norm_2(x))


class Published(nn.Module):
    """The published code: ids (B, T) -> logits (B, T, V)."""

    def __init__(self, vocab_size: int, d_model: int = 64, num_blocks: int = 8, num_heads: int = 4):
        super().__init__()
        self.token_embedding_lookup_table = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(PublishedBlock(d_model, num_heads) for _ in range(num_blocks))
        self.layer_norm = nn.LayerNorm(d_model)
        self.language_model_out_linear_layer = nn.Linear(d_model, vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_embedding_lookup_table(ids)
        x = x + position_encoding_lookup_table(x.shape[1], x.shape[2])
        for block in self.blocks:
            x = block(x)
        return self.language_model_out_linear_layer(self.layer_norm(x))
