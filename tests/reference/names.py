"""Which of our parameters is which of a reference's: the one file here that knows our names.

A matrix of ours may hold the rows of several of theirs, one under the other; ^T marks those that
the document writes the other way round.
"""

Names = dict[str, list[str]]


def linear(ours: str, *theirs: str, bias: bool = True) -> Names:
    kinds = ("weight", "bias") if bias else ("weight",)
    return {f"{ours}.{kind}": [f"{name}.{kind}" for name in theirs] for kind in kinds}


def norm(ours: str, theirs: str, weight: str = "weight", bias: str = "bias") -> Names:
    return {f"{ours}.weight": [f"{theirs}.{weight}"], f"{ours}.bias": [f"{theirs}.{bias}"]}


def old_norm(ours: str, theirs: str) -> Names:
    return norm(ours, theirs, "a_2", "b_2")


def wayland_names(n_layer: int, n_head: int) -> Names:
    names = linear("embed", "token_embedding_lookup_table", bias=False)
    names |= norm("norm", "layer_norm") | linear("head", "language_model_out_linear_layer")
    for i in range(n_layer):
        b = f"blocks.{i}"
        kinds, heads = ("query_layer", "key_layer", "value_layer"), range(n_head)
        qkv = [f"{b}.heads.{head}.{kind}" for kind in kinds for head in heads]
        names |= norm(f"{b}.attention_norm", f"{b}.layer_norm_1")
        names |= norm(f"{b}.feed_forward_norm", f"{b}.layer_norm_2")
        names |= linear(f"{b}.attention.qkv", *qkv, bias=False)
        names |= linear(f"{b}.attention.out", f"{b}.projection_layer")
        names |= linear(f"{b}.feed_forward.up", f"{b}.ffn.0")
        names |= linear(f"{b}.feed_forward.down", f"{b}.ffn.2")
    return names


def article_names(n_layer: int, n_head: int) -> Names:
    names = linear("embed", "token_embedding_lookup_table", bias=False) | linear("head", "logits")
    for i in range(n_layer):
        b = f"blocks.{i}"
        names |= norm(f"{b}.attention_norm", f"{b}.layer_norm_1")
        names |= norm(f"{b}.feed_forward_norm", f"{b}.layer_norm_2")
        names |= linear(f"{b}.attention.qkv", f"{b}.Wq", f"{b}.Wk", f"{b}.Wv")
        names |= linear(f"{b}.attention.out", f"{b}.Wo")
        names |= linear(f"{b}.feed_forward.up", f"{b}.linear_1")
        names |= linear(f"{b}.feed_forward.down", f"{b}.linear_2")
    return names


def annotated_names(n_layer: int, n_head: int) -> Names:
    names = linear("embed", "embed.lut", bias=False) | linear("head", "proj")
    names |= old_norm("norm", "norm")
    for i in range(n_layer):
        b, layer = f"blocks.{i}", f"layers.{i}"
        q, k, v, out = (f"{layer}.self_attn.linears.{n}" for n in range(4))
        names |= old_norm(f"{b}.attention_norm", f"{layer}.sublayer_norm.0")
        names |= old_norm(f"{b}.feed_forward_norm", f"{layer}.sublayer_norm.1")
        names |= linear(f"{b}.attention.qkv", q, k, v) | linear(f"{b}.attention.out", out)
        names |= linear(f"{b}.feed_forward.up", f"{layer}.feed_forward.w_1")
        names |= linear(f"{b}.feed_forward.down", f"{layer}.feed_forward.w_2")
    return names


def vaswani_names(n_layer: int, n_head: int) -> Names:
    names = linear("source_embed", "src_embed.embedding", bias=False)
    names |= linear("embed", "tgt_embed.embedding", bias=False) | linear("head", "proj")
    for ours, theirs in (("encoder_blocks", "encoder"), ("blocks", "decoder")):
        for i in range(n_layer):
            b, layer = f"{ours}.{i}", f"{theirs}.{i}"
            q, k, v, out = (f"{layer}.self_attention.W_{kind}" for kind in "qkvo")
            names |= norm(f"{b}.attention_norm", f"{layer}.norm")
            names |= linear(f"{b}.attention.qkv", q, k, v, bias=False)
            names |= linear(f"{b}.attention.out", out, bias=False)
            names |= norm(f"{b}.feed_forward.norm", f"{layer}.feed_forward.norm")
            names |= linear(f"{b}.feed_forward.up", f"{layer}.feed_forward.linear_1")
            names |= linear(f"{b}.feed_forward.down", f"{layer}.feed_forward.linear_2")
    for i in range(n_layer):
        b = f"blocks.{i}.cross_attention"
        q, k, v, out = (f"decoder.{i}.cross_attention.W_{kind}" for kind in "qkvo")
        names |= linear(f"{b}.q", q, bias=False) | linear(f"{b}.kv", k, v, bias=False)
        names |= linear(f"{b}.out", out, bias=False)
    return names


def original_names(n_layer: int, n_head: int) -> Names:
    def heads(attention: str, kinds: str) -> list[str]:
        return [f"{attention}.W_{kind}.{h}^T" for kind in kinds for h in range(n_head)]

    names: Names = {"source_embed.weight": ["E"]}  # and our `embed`, and our `head`
    for ours, theirs in (("encoder_blocks", "encoder"), ("blocks", "decoder")):
        for i in range(n_layer):
            b, layer = f"{ours}.{i}", f"{theirs}.{i}"
            names |= norm(f"{b}.attention_norm", f"{layer}.attention_norm", "g", "b")
            names |= norm(f"{b}.feed_forward_norm", f"{layer}.ffn_norm", "g", "b")
            names[f"{b}.attention.qkv.weight"] = heads(f"{layer}.attention", "QKV")
            names[f"{b}.attention.out.weight"] = [f"{layer}.attention.W_O^T"]
            for part, number in (("up", 1), ("down", 2)):
                names[f"{b}.feed_forward.{part}.weight"] = [f"{layer}.ffn.W_{number}^T"]
                names[f"{b}.feed_forward.{part}.bias"] = [f"{layer}.ffn.b_{number}"]
    for i in range(n_layer):
        b, layer = f"blocks.{i}", f"decoder.{i}"
        names |= norm(f"{b}.cross_norm", f"{layer}.memory_norm", "g", "b")
        names[f"{b}.cross_attention.q.weight"] = heads(f"{layer}.memory_attention", "Q")
        names[f"{b}.cross_attention.kv.weight"] = heads(f"{layer}.memory_attention", "KV")
        names[f"{b}.cross_attention.out.weight"] = [f"{layer}.memory_attention.W_O^T"]
    return names


def handbook_names(n_layer: int, n_head: int) -> Names:
    names = linear("source_embed", "wte", bias=False) | linear("head", "lm_head", bias=False)
    names |= old_norm("encoder_norm", "encoder_norm") | old_norm("norm", "decoder_norm")

    def attention(ours: str, theirs: str) -> Names:
        q, k, v, out = (f"{theirs}.w{kind}" for kind in "qkvo")
        parts = {"qkv": (q, k, v)} if ours.endswith(".attention") else {"q": (q,), "kv": (k, v)}
        pairs = (parts | {"out": (out,)}).items()
        return {f"{ours}.{part}.weight": [f"{n}.weight" for n in of] for part, of in pairs}

    def feed_forward(ours: str, theirs: str) -> Names:
        up = linear(f"{ours}.up", f"{theirs}.w1", bias=False)
        return up | linear(f"{ours}.down", f"{theirs}.w2", bias=False)

    for i in range(n_layer):
        b, layer = f"encoder_blocks.{i}", f"encoder.{i}"
        names |= old_norm(f"{b}.attention_norm", f"{layer}.attention_norm")
        names |= old_norm(f"{b}.feed_forward_norm", f"{layer}.fnn_norm")
        names |= attention(f"{b}.attention", f"{layer}.attention")
        names |= feed_forward(f"{b}.feed_forward", f"{layer}.feed_forward")
    for i in range(n_layer):
        b, layer = f"blocks.{i}", f"decoder.{i}"
        names |= old_norm(f"{b}.attention_norm", f"{layer}.attention_norm_1")
        names |= old_norm(f"{b}.cross_norm", f"{layer}.attention_norm_2")
        names |= old_norm(f"{b}.feed_forward_norm", f"{layer}.ffn_norm")
        names |= attention(f"{b}.attention", f"{layer}.mask_attention")
        names |= attention(f"{b}.cross_attention", f"{layer}.attention")
        names |= feed_forward(f"{b}.feed_forward", f"{layer}.feed_forward")
    return names


NAMES = {
    "wayland": wayland_names,
    "wayland_post": article_names,
    "annotated": annotated_names,
    "vaswani": vaswani_names,
    "original": original_names,
    "handbook": handbook_names,
}
