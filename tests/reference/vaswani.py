"""The notebook of 86,198,074 parameters, "程序段" 1.1 to 1.12: an encoder-decoder.

What sets it apart: one norm per layer serves all of its sublayers (in the decoder the encoder's
output, too), the feed-forward has a norm of its own on top of that, and nothing stands between the
last layer and the projection. It runs as printed; nothing is mended but `masked_fill_`, which
becomes `masked_fill`.
"""

import math

import torch
from torch import Tensor, nn


class InputEmbeddings(nn.Module):
    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.embedding(x.long()) * math.sqrt(self.embedding.embedding_dim)


class PositionalEncoding(nn.Module):
    def __init__(self, seq_len: int, d_model: int):
        super().__init__()
        position = torch.arange(0, seq_len, dtype=torch.float).unsqueeze(1)
        angle = position / torch.pow(10000, torch.arange(0, d_model, 2).float() / d_model)
        pe = torch.zeros(1, seq_len, d_model)
        pe[:, :, 0::2], pe[:, :, 1::2] = torch.sin(angle), torch.cos(angle)
        self.register_buffer("pe", pe, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:, : x.shape[1], :]


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads, self.d_k = heads, d_model // heads
        self.W_q = nn.Linear(d_model, d_model, bias=False)
        self.W_k = nn.Linear(d_model, d_model, bias=False)
        self.W_v = nn.Linear(d_model, d_model, bias=False)
        self.W_o = nn.Linear(d_model, d_model, bias=False)

    def split(self, X: Tensor) -> Tensor:
        return X.view(X.shape[0], X.shape[1], self.heads, self.d_k).transpose(1, 2)

    def forward(self, Query: Tensor, Key: Tensor, Value: Tensor, mask: Tensor) -> Tensor:
        Q, K, V = (
            self.split(self.W_q(Query)),
            self.split(self.W_k(Key)),
            self.split(self.W_v(Value)),
        )
        attention_matrix = (Q @ K.transpose(-2, -1)) / math.sqrt(self.d_k)
        attention_matrix = attention_matrix.masked_fill(mask == 0, -1e9).softmax(dim=-1)
        X = torch.matmul(attention_matrix, V).transpose(1, 2).contiguous()
        return self.W_o(X.view(X.shape[0], -1, self.heads * self.d_k))


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(torch.relu(self.linear_1(self.norm(x))))


class EncoderLayer(nn.Module):
    def __init__(self, d_model: int, heads: int, d_ff: int):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.self_attention = MultiHeadAttention(d_model, heads)
        self.feed_forward = FeedForward(d_model, d_ff)

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        x = x + self.self_attention(self.norm(x), self.norm(x), self.norm(x), src_mask)
        return x + self.feed_forward(self.norm(x))


class DecoderLayer(nn.Module):
    def __init__(self, d_model: int, heads: int, d_ff: int):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.self_attention = MultiHeadAttention(d_model, heads)
        self.cross_attention = MultiHeadAttention(d_model, heads)
        self.feed_forward = FeedForward(d_model, d_ff)

    def forward(self, x: Tensor, encoder_output: Tensor, src_mask: Tensor, tgt_mask: Tensor):
        x = x + self.self_attention(self.norm(x), self.norm(x), self.norm(x), tgt_mask)
        memory = self.norm(encoder_output)
        x = x + self.cross_attention(self.norm(x), memory, memory, src_mask)
        return x + self.feed_forward(self.norm(x))


class Transformer(nn.Module):
    """ids (B, S) and (B, T), masks that broadcast to (B, h, S, S) and (B, h, T, T) -> (B, T, V)."""

    def __init__(
        self,
        src_vocab_size: int = 21128,
        tgt_vocab_size: int = 30522,
        seq_len: int = 8,
        d_model: int = 512,
        heads: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        d_ff: int = 2048,
    ):
        super().__init__()
        self.src_embed = InputEmbeddings(src_vocab_size, d_model)
        self.tgt_embed = InputEmbeddings(tgt_vocab_size, d_model)
        self.pos = PositionalEncoding(seq_len, d_model)
        size = (d_model, heads, d_ff)
        self.encoder = nn.ModuleList(EncoderLayer(*size) for _ in range(num_encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*size) for _ in range(num_decoder_layers))
        self.proj = nn.Linear(d_model, tgt_vocab_size)

    def forward(self, src: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        encoder_output = self.pos(self.src_embed(src))
        for layer in self.encoder:
            encoder_output = layer(encoder_output, src_mask)
        x = self.pos(self.tgt_embed(tgt))
        for layer in self.decoder:
            x = layer(x, encoder_output, src_mask, tgt_mask)
        return self.proj(x)
