"""Vaswani et al., "Attention is all you need" (arXiv 1706.03762), the base model of table 3.

Formulas as the paper writes them: rows times matrices, x W; a W^Q, W^K, W^V (d_model, d_k) for
each head (section 3.2.2), heads in a loop; LayerNorm(x + Sublayer(x)) (section 3.1); one matrix
for both embeddings and the last linear transformation (section 3.4). The paper gives no epsilon
for its layer norm; here PyTorch's, 1e-5. Masks are true where a query may look.
"""

import math

import torch
from torch import Tensor, nn


def matrix(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape))


class MultiHead(nn.Module):
    """Concat(head_1, ..., head_h) W^O."""

    def __init__(self, h: int, d_model: int):
        super().__init__()
        d_k = d_model // h
        self.W_Q = nn.ParameterList(matrix(d_model, d_k) for _ in range(h))
        self.W_K = nn.ParameterList(matrix(d_model, d_k) for _ in range(h))
        self.W_V = nn.ParameterList(matrix(d_model, d_k) for _ in range(h))
        self.W_O = matrix(h * d_k, d_model)

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
        heads = []
        for W_Q, W_K, W_V in zip(self.W_Q, self.W_K, self.W_V):
            scores = (Q @ W_Q) @ (K @ W_K).transpose(1, 2) / math.sqrt(W_K.shape[1])
            heads.append(scores.masked_fill(~mask, -math.inf).softmax(-1) @ (V @ W_V))
        return torch.cat(heads, -1) @ self.W_O


class FFN(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.W_1, self.b_1 = matrix(d_model, d_ff), matrix(d_ff)
        self.W_2, self.b_2 = matrix(d_ff, d_model), matrix(d_model)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.W_1 + self.b_1).clamp(min=0) @ self.W_2 + self.b_2


class LayerNorm(nn.Module):
    """arXiv 1607.06450, equation 4."""

    def __init__(self, d_model: int):
        super().__init__()
        self.g, self.b = matrix(d_model), matrix(d_model)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.g + self.b


class Layer(nn.Module):
    """Two sublayers in the encoder, three in the decoder, which looks at a memory, too."""

    def __init__(self, d_model: int, h: int, d_ff: int, is_decoder: bool):
        super().__init__()
        self.attention, self.attention_norm = MultiHead(h, d_model), LayerNorm(d_model)
        if is_decoder:
            self.memory_attention, self.memory_norm = MultiHead(h, d_model), LayerNorm(d_model)
        self.ffn, self.ffn_norm = FFN(d_model, d_ff), LayerNorm(d_model)

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor = None
    ) -> Tensor:
        x = self.attention_norm(x + self.attention(x, x, x, mask))
        if memory is not None:
            x = self.memory_norm(x + self.memory_attention(x, memory, memory, memory_mask))
        return self.ffn_norm(x + self.ffn(x))


class Transformer(nn.Module):
    """ids (B, S) and (B, T), masks that broadcast to (B, 1, S, S) and (B, 1, T, T) -> (B, T, V)."""

    def __init__(self, n_vocab: int, N: int = 6, d_model: int = 512, d_ff: int = 2048, h: int = 8):
        super().__init__()
        self.E = matrix(n_vocab, d_model)
        self.encoder = nn.ModuleList(Layer(d_model, h, d_ff, False) for _ in range(N))
        self.decoder = nn.ModuleList(Layer(d_model, h, d_ff, True) for _ in range(N))

    def embed(self, ids: Tensor) -> Tensor:
        d_model = self.E.shape[1]
        pos, i = torch.arange(ids.shape[1])[:, None], torch.arange(d_model // 2)
        angle = pos / 10000 ** (2 * i / d_model)
        PE = torch.stack([angle.sin(), angle.cos()], -1).reshape(ids.shape[1], d_model)
        return self.E[ids] * math.sqrt(d_model) + PE

    def forward(self, src: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        src_mask, tgt_mask = src_mask.squeeze(1), tgt_mask.squeeze(1)
        memory = self.embed(src)
        for layer in self.encoder:
            memory = layer(memory, src_mask)
        x = self.embed(tgt)
        for layer in self.decoder:
            x = layer(x, tgt_mask, memory, src_mask)
        return x @ self.E.T
