"""Writes the serving graph: the same model, but its cache is one buffer that is extended in place.

    >>> write_serving(Path("onnx/model.onnx"), Path("onnx/serving.onnx"), config)   # doctest: +SKIP

The portable graph copies the whole cache for each token. This one is for ONNX Runtime alone: its
operator GroupQueryAttention extends the cache where it lies, and each row of a batch has a length
of its own, and a sum and its norm are one operator. The weights stay where the portable graph has
them, in its file or beside it; this one refers to them.

Inputs (B rows of T tokens, a cache with room for S positions):

| name                    | shape        | meaning |
|-------------------------|--------------|---------|
| input_ids               | (B, T)       | |
| position_ids            | (B, T)       | only where positions are added to the embeddings |
| last_positions          | (B,) int32   | position of each row's last token |
| total_sequence_length   | () int32     | the largest of these, plus 1 |
| first_logits            | (1,)         | logits begin at this token: 0, or -1 for the last |
| past_key_values.N.key   | (B, K, S, D) | and .value; bound to the same memory as present.N.key |

If T is more than 1, then B must be 1 or the cache empty.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.formats.graph import (
    MICROSOFT,
    initializers,
    keep_last_logits,
    makers_of,
    need_microsoft,
    refer_to_weights,
    remove_unused,
    replace_node,
    set_items,
)
from gptcore.config import ModelConfig

MOST_SCORES = 2**18  # of one token, heads x positions: 256 tokens of a prompt have 268 MB of them

Shape = list[str | int | None]


def can_serve(config: ModelConfig) -> bool:
    """Say whether ONNX Runtime's GroupQueryAttention can have heads of this model's size."""
    return config.head_dim % (16 if "rotary" in config.position else 8) == 0


def write_serving(source: Path, path: Path, config: ModelConfig) -> None:
    """Write the serving graph of the portable graph at `source`, into the same folder."""
    proto = onnx.load(source, load_external_data=False)
    graph = proto.graph
    rotary = add_rotary(graph, source.parent, config) if "rotary" in config.position else []
    if config.qk_norm:
        width = (config.n_head + 2 * config.n_kv_head) * config.head_dim
        graph.initializer.append(numpy_helper.from_array(np.array([0, 0, width]), "packed.shape"))
    for layer in range(config.n_layer):
        replace_attention(graph, config, layer, rotary)
    keep_last_logits(graph)
    join_sums_and_norms(graph)
    set_inputs(graph, config)
    remove_unused(graph)
    need_microsoft(proto)
    refer_to_weights(graph, source)
    onnx.save(proto, str(path))


def is_plain(config: ModelConfig) -> bool:
    """Say whether the graph is to use ONNX Runtime's plain attention, and not its tiled one.

    The plain one is faster for a single token after a long text, but only if it need not scale the
    scores (docs/log.md, 2026-11-30). So the scale is put into the rotary tables, its square root
    each, as they multiply both queries and keys. The operator has no option for the plain one, but
    takes it if it is given a sink, a further score in each softmax; ours is minus infinity, which
    changes nothing. The plain one keeps all scores of a prompt's part, so they must not be many.
    """
    return "rotary" in config.position and config.n_head * config.block_size <= MOST_SCORES


def add_rotary(graph: onnx.GraphProto, folder: Path, config: ModelConfig) -> list[str]:
    """Add the operator's tables of cosines and sines (positions, D / 2), and its sink (H,).

    `folder` is that of the weights beside the graph. Return the names of the operator's last
    inputs, from the tables on.
    """
    weights = initializers(graph)
    scale = config.head_dim**-0.25 if is_plain(config) else 1.0
    for name in ("cos", "sin"):
        table = numpy_helper.to_array(weights[f"position.{name}"], str(folder))
        # Older graphs have both halves; their second one has the sines without a sign.
        half = table[:, -(config.head_dim // 2) :] * np.float32(scale)
        graph.initializer.append(numpy_helper.from_array(half, f"rotary.{name}"))
    if not is_plain(config):
        return ["rotary.cos", "rotary.sin"]
    sink = np.full(config.n_head, -np.inf, np.float32)
    graph.initializer.append(numpy_helper.from_array(sink, "rotary.sink"))
    return ["rotary.cos", "rotary.sin", "", "", "rotary.sink"]


def replace_attention(
    graph: onnx.GraphProto, config: ModelConfig, layer: int, rotary: list[str]
) -> None:
    """Replace what lies between the projection to q, k, v and the output projection."""
    makers = makers_of(graph)
    readers = {name: node for node in graph.node for name in node.input}
    value = f"present.{layer}.value"
    # Backwards: Concat(past, Transpose(Split(Reshape(packed))))
    packed = makers[value].input[1]
    split = makers[makers[packed].input[0]]
    for kind in ("Transpose", "Split", "Reshape"):
        assert makers[packed].op_type == kind, f"{packed} comes from {makers[packed].op_type}"
        packed = makers[packed].input[0]
    normed = normed_queries_keys(readers, split) if config.qk_norm else []
    # Forwards: Reshape(Transpose(Reshape(MatMul(weights, value))))
    result = value
    for kind in ("MatMul", "Reshape", "Transpose", "Reshape"):
        assert readers[result].op_type == kind, f"{result} goes to {readers[result].op_type}"
        result = readers[result].output[0]
    caches = [f"{layer}.key", f"{layer}.value"]
    node = helper.make_node(
        "GroupQueryAttention",
        [packed, "", ""]
        + [f"past_key_values.{name}" for name in caches]
        + ["last_positions", "total_sequence_length", *rotary],
        [result, *(f"present.{name}" for name in caches)],
        domain=MICROSOFT,
        num_heads=config.n_head,
        kv_num_heads=config.n_kv_head,
        do_rotary=int(bool(rotary)),
        scale=1.0 if is_plain(config) else config.head_dim**-0.5,
    )
    at = list(graph.node).index(makers[result])
    if normed:  # they are packed again, as the operator wants them
        names = [f"packed.{layer}", f"packed.{layer}.flat"]
        node.input[0] = names[1]
        for step in (
            helper.make_node("Reshape", [names[0], "packed.shape"], [names[1]]),
            helper.make_node("Concat", [*normed, split.output[1]], [names[0]], axis=2),
        ):
            graph.node.insert(at, step)
        at += 2
    for name in node.output:
        makers[name].output[0] = f"portable.{name}"  # what only these need is removed later
    graph.node.insert(at, node)


def normed_queries_keys(readers: dict[str, onnx.NodeProto], split: onnx.NodeProto) -> list[str]:
    """Return the name of the normed queries and keys: split, normed, and joined again."""
    node = readers[split.output[0]]
    assert node.op_type == "Split", f"queries and keys go to {node.op_type}"
    while node.op_type != "Concat":
        node = readers[node.output[0]]
    return [node.output[0]]


def join_sums_and_norms(graph: onnx.GraphProto) -> None:
    """Make one operator of each sum and the RMSNorm that reads it."""
    makers, weights, joined = makers_of(graph), initializers(graph), set()
    for last in list(graph.node):
        norm = rms_norm(last, makers)
        total = makers.get(norm["Pow"].input[0]) if norm else None
        if not norm or not total or total.op_type != "Add" or total.output[0] in joined:
            continue
        joined.add(total.output[0])
        epsilon = numpy_helper.to_array(weights[norm["Add"].input[1]])
        node = helper.make_node(
            "SkipSimplifiedLayerNormalization",
            [*total.input, last.input[1]],
            [last.output[0], "", "", total.output[0]],
            domain=MICROSOFT,
            epsilon=float(epsilon),
        )
        graph.node.remove(last)
        replace_node(graph, total, [node])


def rms_norm(
    last: onnx.NodeProto, makers: dict[str, onnx.NodeProto]
) -> dict[str, onnx.NodeProto] | None:
    """Return the nodes, by operator, of the RMSNorm that ends in this node; None: it ends none."""
    node: onnx.NodeProto | None = last
    found: dict[str, onnx.NodeProto] = {}
    # Mul(Div(x, Sqrt(Add(ReduceMean(Pow(x, 2)), epsilon))), weight)
    for kind, at in [
        ("Mul", 0),
        ("Div", 1),
        ("Sqrt", 0),
        ("Add", 0),
        ("ReduceMean", 0),
        ("Pow", 0),
    ]:
        if node is None or node.op_type != kind:
            return None
        found[kind] = node
        node = makers.get(node.input[at])
    return found if found["Pow"].input[0] == found["Div"].input[0] else None


def set_inputs(graph: onnx.GraphProto, config: ModelConfig) -> None:
    """Declare the inputs and outputs of the table above."""
    tokens: Shape = ["batch_size", "sequence_length"]
    cache: Shape = ["batch_size", config.n_kv_head, "max_sequence_length", config.head_dim]
    new = helper.make_tensor_value_info
    inputs = [
        new("input_ids", TensorProto.INT64, tokens),
        new("position_ids", TensorProto.INT64, tokens),
        new("last_positions", TensorProto.INT32, ["batch_size"]),
        new("total_sequence_length", TensorProto.INT32, []),
        new("first_logits", TensorProto.INT64, [1]),
    ]
    outputs = [new("logits", TensorProto.FLOAT, ["batch_size", "n_logits", config.vocab_size])]
    for layer in range(config.n_layer):
        for part in ("key", "value"):
            inputs.append(new(f"past_key_values.{layer}.{part}", TensorProto.FLOAT, cache))
            outputs.append(new(f"present.{layer}.{part}", TensorProto.FLOAT, cache))
    if "rotary" in config.position:
        del inputs[1]
    set_items(graph.input, inputs)
    set_items(graph.output, outputs)
