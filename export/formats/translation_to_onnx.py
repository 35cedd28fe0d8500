"""Exports an encoder-decoder to two ONNX files: the encoder, and the decoder with its cache.

encoder_model.onnx             source ids -> keys and values of the source for the decoder
decoder_with_past_model.onnx   target ids, those keys and values, cache -> logits, cache

>>> write_translator(model, Path("models/zh-en/onnx"))               # doctest: +SKIP
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from export.formats.to_onnx import Axes, write_graph
from gptcore.bundle import DECODER, ENCODER
from gptcore.config import Seq2SeqConfig
from gptcore.nn.attention import Cache
from gptcore.nn.seq2seq import Seq2Seq

SOURCE = ["batch_size", "encoder_sequence_length"]


class Encoder(nn.Module):
    """`Seq2Seq.encode` with the argument names of the graph."""

    def __init__(self, model: Seq2Seq):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Cache]:
        return self.model.encode(input_ids, attention_mask)


class Decoder(nn.Module):
    """`Seq2Seq.decode` with the argument names of the graph."""

    def __init__(self, model: Seq2Seq):
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        encoder_attention_mask: Tensor,
        past_key_values: list[Cache],
        memory: list[Cache],
    ) -> tuple[Tensor, list[Cache]]:
        return self.model.decode(
            input_ids, attention_mask, position_ids, encoder_attention_mask, past_key_values, memory
        )


def write_translator(model: Seq2Seq, folder: Path) -> None:
    """Write both graphs in fp32; batch, source length and target length are dynamic."""
    config = model.config
    # These must be two tensors: the same tensor twice would be exported as one input.
    source = {name: torch.ones(2, 5, dtype=torch.long) for name in ("input_ids", "attention_mask")}
    write_graph(Encoder(model), source, *encoder_axes(config), folder / ENCODER)
    write_graph(Decoder(model), decoder_example(config), *decoder_axes(config), folder / DECODER)


def encoder_axes(config: Seq2SeqConfig) -> tuple[Axes, Axes]:
    """Return names and axes of the encoder's inputs and outputs."""
    inputs = {"input_ids": SOURCE, "attention_mask": SOURCE}
    return inputs, caches(config, "present", "encoder", SOURCE[1])


def decoder_axes(config: Seq2SeqConfig) -> tuple[Axes, Axes]:
    """Return names and axes of the decoder's inputs and outputs."""
    tokens, past = ["batch_size", "sequence_length"], "past_sequence_length"
    inputs = {
        "input_ids": tokens,
        "attention_mask": ["batch_size", "total_sequence_length"],
        "position_ids": tokens,
        "encoder_attention_mask": SOURCE,
        **caches(config, "past_key_values", "decoder", past),
        **caches(config, "past_key_values", "encoder", SOURCE[1]),
    }
    outputs = {"logits": [*tokens, config.vocab_size]}
    return inputs, outputs | caches(config, "present", "decoder", f"{past} + sequence_length")


def caches(config: Seq2SeqConfig, prefix: str, side: str, length: str) -> Axes:
    axes = ["batch_size", config.n_kv_head, length, config.head_dim]
    names = [f"{n}.{side}.{part}" for n in range(config.n_layer) for part in ("key", "value")]
    return {f"{prefix}.{name}": axes for name in names}


def decoder_example(config: Seq2SeqConfig) -> dict:
    """Return small inputs for tracing; no two axes have the same size."""
    B, T, P, S = 2, 3, 5, 7

    def cache(length: int) -> list[Cache]:
        shape = (B, config.n_kv_head, length, config.head_dim)
        return [(torch.randn(shape), torch.randn(shape)) for _ in range(config.n_layer)]

    return {
        "input_ids": torch.ones(B, T, dtype=torch.long),
        "attention_mask": torch.ones(B, P + T, dtype=torch.long),
        "position_ids": torch.arange(P, P + T).expand(B, T).contiguous(),
        "encoder_attention_mask": torch.ones(B, S, dtype=torch.long),
        "past_key_values": cache(P),
        "memory": cache(S),
    }
