"""ModelConfig: the shape of a model, frozen and validated, and the named presets.

    >>> PRESETS["nano"].head_dim
    32
    >>> from gptcore.checks import build
    >>> build(ModelConfig, PRESETS["nano"].to_dict()) == PRESETS["nano"]
    True

A Seq2SeqConfig is the shape of an encoder-decoder. A plain ModelConfig is that of a decoder.

| here       | Vaswani et al. (arXiv 1706.03762) | Llama (arXiv 2302.13971, HF keys) |
|------------|-----------------------------------|-----------------------------------|
| n_layer    | N                                 | num_hidden_layers                 |
| n_embd     | d_model                           | hidden_size                       |
| n_head     | h                                 | num_attention_heads               |
| n_kv_head  | (h)                               | num_key_value_heads               |
| head_dim   | d_k = d_v                         | head_dim                          |
| n_inner    | d_ff                              | intermediate_size                 |
| block_size | (sequence length)                 | max_position_embeddings           |
| residual   | post: LayerNorm(x + Sublayer(x))  | pre: x + Sublayer(RMSNorm(x))     |
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from gptcore.checks import UserError, check_range, check_types

# The allowed names equal the keys of the registries in gptcore/nn (a test compares them).
Norm = Literal["rmsnorm", "layernorm", "unbiased_layernorm"]
Residual = Literal["pre", "post"]
Position = Literal["rotary", "llama3_rotary", "sinusoidal", "learned"]
FeedForward = Literal["swiglu", "relu", "gelu", "norm_relu"]
Init = Literal["gpt2", "normal", "xavier", "torch"]


MAX_LAYERS = 10_000  # upper limit of n_layer: each layer costs memory before any weight is read


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a decoder. Raises UserError when a field or a combination of fields is invalid."""

    vocab_size: int = 2048  # number of tokens, special tokens included
    block_size: int = 512  # context length in tokens: prompt plus new tokens
    n_layer: int = 4  # number of blocks
    n_head: int = 4  # number of query heads
    n_kv_head: int = 2  # number of key/value heads; queries share them (arXiv 2305.13245)
    head_size: int = 0  # width of a head; 0 means n_embd / n_head
    n_embd: int = 128  # width of the embeddings and between blocks
    n_inner: int = 352  # width inside the feed-forward; 8/3 of n_embd for a gated one
    norm: Norm = "rmsnorm"  # or "layernorm", "unbiased_layernorm"
    norm_eps: float = 1e-5  # added to the variance
    shared_norm: bool = False  # all sublayers of a block share one norm layer
    last_norm: bool = True  # another norm after the last block
    residual: Residual = "pre"  # norm before each sublayer ("pre") or after each sum ("post")
    position: Position = "rotary"  # or "llama3_rotary", "sinusoidal", "learned"
    rope_theta: float = 10000.0  # base of the rotary frequencies
    rope_factor: float = 8.0  # llama3_rotary slows low frequencies down by this factor
    rope_slow: float = 1.0  # pairs with fewer turns than this in rope_context are slowed down fully
    rope_fast: float = 4.0  # pairs with more turns than this in rope_context are not slowed down
    rope_context: int = 8192  # context length before llama3_rotary extends it, in tokens
    n_position: int = 0  # rows of the position table; 0 means block_size
    feed_forward: FeedForward = "swiglu"  # or "relu", "gelu", "norm_relu"
    qk_norm: bool = False  # each head's queries and keys are normed (arXiv 2302.05442)
    qkv_bias: bool = False  # queries, keys and values have a bias
    out_bias: bool = False  # the attention's output projection has a bias
    feed_forward_bias: bool = False  # the feed-forward's matrices have a bias
    head_bias: bool = False  # the logits have a bias
    tied_embeddings: bool = True  # the output layer shares the weights of the embeddings
    embedding_scale: bool = False  # embeddings are multiplied by sqrt(n_embd)
    init: Init = "gpt2"  # how weights are drawn; or "normal", "xavier", "torch"
    dropout: float = 0.0  # dropout of each sublayer's output
    attention_dropout: float = 0.0  # dropout of the attention weights
    inner_dropout: float = 0.0  # dropout inside the feed-forward, after its activation
    embedding_dropout: float = 0.0  # dropout of the sum of embeddings and positions

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("vocab_size", "n_head", "n_kv_head", "n_embd"):
            check_range(self, name, 1, 2**31)
        check_range(self, "block_size", 2, 2**31)
        check_range(self, "n_layer", 1, MAX_LAYERS)
        check_range(self, "n_inner", 1, 2**31)
        check_range(self, "n_position", 0, 2**31)
        check_range(self, "head_size", 0, 2**31)
        check_range(self, "norm_eps", 1e-12, 1.0)
        check_range(self, "rope_theta", 1.0, 1e12)
        for name in ("rope_factor", "rope_slow", "rope_fast", "rope_context"):
            check_range(self, name, 1e-3, 1e9)
        if self.rope_slow >= self.rope_fast:
            raise UserError(
                f"rope_slow={self.rope_slow} must be less than rope_fast={self.rope_fast}: pairs "
                f"with a number of turns between them are slowed down in part"
            )
        for name in ("dropout", "attention_dropout", "inner_dropout", "embedding_dropout"):
            check_range(self, name, 0.0, 0.99)
        self.check_heads()
        if 0 < self.n_position < self.block_size:
            raise UserError(
                f"n_position={self.n_position} is less than block_size={self.block_size}: the "
                f"position table needs one row per position; choose 0 or at least block_size"
            )

    def check_heads(self) -> None:
        for name, whole_name in (("n_head", "n_embd"), ("n_kv_head", "n_head")):
            part, whole = getattr(self, name), getattr(self, whole_name)
            if whole % part and not (self.head_size and name == "n_head"):
                # only even head sizes are offered where an odd one would be refused below
                step = 2 if name == "n_head" and "rotary" in self.position else 1
                choices = [n for n in range(1, min(whole, 64) + 1) if whole % (n * step) == 0]
                remedy = f"choose one of {choices}" if choices else f"choose an even {whole_name}"
                raise UserError(f"{name}={part} does not divide {whole_name}={whole}: {remedy}")
        if self.head_dim % 2 and "rotary" in self.position:
            own = f"head_size={self.head_size}"
            share = f"n_embd / n_head = {self.head_dim}"
            raise UserError(
                f"{own if self.head_size else share} is odd, and rotary positions rotate pairs of "
                f"dimensions: change "
                f"{'it' if self.head_size else f'n_head={self.n_head} or n_embd={self.n_embd}'}"
            )
        if self.n_embd % 2 and self.position == "sinusoidal":
            raise UserError(
                f"n_embd={self.n_embd} is odd, and sinusoidal positions come in pairs of sine and "
                f"cosine: choose an even number"
            )

    @property
    def head_dim(self) -> int:
        return self.head_size or self.n_embd // self.n_head

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Seq2SeqConfig(ModelConfig):
    """Shape of an encoder-decoder; vocab_size and n_layer are the decoder's.

    block_size is the limit of the source's length and of the target's length, in tokens.
    """

    source_vocab_size: int = 2048  # number of tokens of the source tokenizer
    n_encoder_layer: int = 4  # number of encoder blocks; n_layer counts the decoder's
    shared_embeddings: bool = False  # source and target share one embedding table

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "source_vocab_size", 1, 2**31)
        check_range(self, "n_encoder_layer", 1, MAX_LAYERS)
        if self.shared_embeddings and self.source_vocab_size != self.vocab_size:
            raise UserError(
                f"source_vocab_size={self.source_vocab_size} differs from vocab_size="
                f"{self.vocab_size}, but shared_embeddings needs one vocabulary for both"
            )


DECODERS: dict[str, ModelConfig] = {
    # for tests: 0.1M parameters
    "tiny": ModelConfig(
        vocab_size=512, block_size=256, n_layer=2, n_head=4, n_kv_head=2, n_embd=64, n_inner=128
    ),
    # 1.0M parameters, trains in minutes; models/nano has this shape
    "nano": ModelConfig(),
    # 12.6M parameters: an hour or two on two CPU cores
    "small": ModelConfig(
        vocab_size=8192, n_layer=6, n_head=6, n_kv_head=2, n_embd=384, n_inner=1024
    ),
    # 61M parameters: for a GPU, or for a long run on a CPU
    "base": ModelConfig(
        vocab_size=16384,
        block_size=1024,
        n_layer=11,
        n_head=10,
        n_kv_head=5,
        n_embd=640,
        n_inner=1728,
    ),
}

# The textbook systems; docs/textbook.md names the source of each and the errors corrected here.
WAYLAND = ModelConfig(
    vocab_size=100_070,
    block_size=16,
    n_layer=8,
    n_head=4,
    n_kv_head=4,
    n_embd=64,
    n_inner=256,
    norm="layernorm",
    position="sinusoidal",
    feed_forward="relu",
    out_bias=True,
    feed_forward_bias=True,
    head_bias=True,
    tied_embeddings=False,
    init="torch",
    dropout=0.1,
    attention_dropout=0.1,
)
DECODERS |= {
    # the published code: norm before each sublayer, and a norm after the last block
    "wayland": WAYLAND,
    # the article: norm after each residual sum, and biases in all matrices
    "wayland_post": dataclasses.replace(
        WAYLAND, residual="post", last_norm=False, qkv_bias=True, attention_dropout=0.0
    ),
    "annotated": ModelConfig(
        vocab_size=50_257,
        block_size=1024,
        n_layer=6,
        n_head=8,
        n_kv_head=8,
        n_embd=512,
        n_inner=2048,
        norm="unbiased_layernorm",
        norm_eps=1e-6,
        position="sinusoidal",
        n_position=5000,
        feed_forward="relu",
        qkv_bias=True,
        out_bias=True,
        feed_forward_bias=True,
        head_bias=True,
        tied_embeddings=False,
        embedding_scale=True,
        init="xavier",
        dropout=0.1,
        attention_dropout=0.1,
        inner_dropout=0.1,
        embedding_dropout=0.1,
    ),
}

# The sizes of "Attention is all you need" (arXiv 1706.03762, table 3, row "base").
VASWANI = Seq2SeqConfig(
    source_vocab_size=21_128,
    vocab_size=30_522,
    n_encoder_layer=6,
    n_layer=6,
    n_head=8,
    n_kv_head=8,
    n_embd=512,
    n_inner=2048,
    norm="layernorm",
    shared_norm=True,
    last_norm=False,
    position="sinusoidal",
    feed_forward="norm_relu",
    feed_forward_bias=True,
    head_bias=True,
    tied_embeddings=False,
    embedding_scale=True,
    init="xavier",
    dropout=0.1,
    attention_dropout=0.1,
    inner_dropout=0.1,
    embedding_dropout=0.1,
)
TRANSLATORS: dict[str, Seq2SeqConfig] = {
    # 9.6M parameters: translates short sentences after an hour on two CPU cores; the dropout suits
    # a small corpus of some ten thousand pairs
    "translator": Seq2SeqConfig(
        source_vocab_size=4096,
        vocab_size=4096,
        block_size=128,
        n_encoder_layer=4,
        n_layer=4,
        n_head=4,
        n_kv_head=4,
        n_embd=256,
        n_inner=704,
        dropout=0.3,
        embedding_dropout=0.2,
    ),
    "vaswani": VASWANI,
    # as in the paper: post-norm, one table for source, target and output (sections 3.1 to 3.4)
    "original": dataclasses.replace(
        VASWANI,
        source_vocab_size=37_000,
        vocab_size=37_000,
        shared_embeddings=True,
        tied_embeddings=True,
        shared_norm=False,
        residual="post",
        feed_forward="relu",
        head_bias=False,
        attention_dropout=0.0,
        inner_dropout=0.0,
    ),
    # sizes not named in the document are the paper's; the feed-forward is as wide as n_embd
    "handbook": dataclasses.replace(
        VASWANI,
        source_vocab_size=30_000,
        vocab_size=30_000,
        shared_embeddings=True,
        n_inner=512,
        norm="unbiased_layernorm",
        norm_eps=1e-6,
        shared_norm=False,
        last_norm=True,
        feed_forward="relu",
        feed_forward_bias=False,
        head_bias=False,
        embedding_scale=False,
        init="normal",
        inner_dropout=0.0,
    ),
}
PRESETS: dict[str, ModelConfig] = DECODERS | TRANSLATORS
