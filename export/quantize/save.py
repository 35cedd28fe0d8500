"""Writes the exported graph in smaller number formats; export/folder/variants.py measures them.

    >>> save_quantized(Path("model.onnx"), Path("model_quantized.onnx"), "int8")
    ...                                                                  # doctest: +SKIP

| name | weights | activations |
|------|---------|-------------|
| fp16 | 16 bits | 16 bits; inputs, outputs, cache and norms stay fp32 |
| int8 | 8 bits, a scale for each output | 8 bits, scaled at run time; fp32 where a matrix narrows |
| q8   | 8 bits, a scale for each block of 32 to 128 | 8 bits, a scale for each block |
| q4   | 4 bits, a scale and a zero for each block of 32 or 64; the rest as q8 | 8 bits |
| q4f16 | as q4, and everything else as fp16 | 16 bits |

The rest: head, queries, keys and values. With integers, embeddings have 8 bits too; those tied to
the head are read from it.
"""

import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo

from export.formats.graph import (
    MICROSOFT,
    Value,
    initializers,
    makers_of,
    n_bytes,
    need_microsoft,
    nodes_for,
    remove_unused,
    replace_node,
    save_graph,
    set_items,
)
from export.quantize.blocks import Blocks, choose_size, pack, quantize
from export.quantize.calibrate import compensate, second_moments
from export.quantize.embedding import HEAD, quantize_table, share, untie
from training.machine.progress import progress

MOMENTS_BYTES = 5e8  # of second moments that are in memory together, about
# Constants in fp16 reach so far: where the mask's stand-in for minus infinity is fp16's lowest
# number, a score below 0 makes it infinite, and a row with every key masked NaN.
LARGEST = 3e4


def save_quantized(source: Path, path: Path, variant: str, rows: Iterable[np.ndarray] = ()) -> None:
    """Write the fp32 graph at `source` to `path` in the format `variant`.

    `rows` are ids (T,) of texts like those that the model will read: 4 bits are fitted to them.
    """
    # The quantizers log one line per node, and advice that does not apply here.
    logging.disable(logging.WARNING)
    before, tempfile.tempdir = tempfile.tempdir, str(path.parent)  # as /tmp may have no room
    try:
        proto = FORMATS[variant](source, rows)
    finally:
        tempfile.tempdir = before
        logging.disable(logging.NOTSET)
    remove_unused(proto.graph)
    save_graph(proto, path, values_of(source))


def values_of(source: Path) -> Value:
    """Return the function that reads a weight, from beside the graph `source` if it lies there."""
    from onnxruntime.transformers.float16 import convert_np_to_float16

    def value(tensor: TensorProto) -> np.ndarray:
        is_beside = tensor.data_location == TensorProto.EXTERNAL
        if not is_beside or ExternalDataInfo(tensor).length == n_bytes(tensor):
            return numpy_helper.to_array(tensor, base_dir=str(source.parent))
        stored = TensorProto()  # what the source has in 32 bits
        stored.CopyFrom(tensor)
        stored.data_type = TensorProto.FLOAT
        array = numpy_helper.to_array(stored, base_dir=str(source.parent))
        return convert_np_to_float16(array)

    return value


def to_half(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Compute in fp16; of weights that lie beside the graph only the type is changed."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    graph = proto.graph
    kept = [value.name for value in (*graph.input, *graph.output)]
    beside = {t.name: t for t in graph.initializer if t.data_location == TensorProto.EXTERNAL}
    # The converter looks at the values of weights: these are inputs meanwhile.
    set_items(graph.initializer, [t for t in graph.initializer if t.name not in beside])
    graph.input.extend(
        helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
        for name, tensor in beside.items()
    )
    proto = convert_float_to_float16(proto, keep_io_types=kept, max_finite_val=LARGEST)
    set_items(proto.graph.input, [v for v in proto.graph.input if v.name not in beside])
    for tensor in beside.values():
        if tensor.data_type == TensorProto.FLOAT:
            tensor.data_type = TensorProto.FLOAT16
        proto.graph.initializer.append(tensor)
    widen_norms(proto.graph)
    return proto


def widen_norms(graph: onnx.GraphProto) -> None:
    """Let a graph in fp16 compute its norms in fp32, between two casts.

    The squares of some layers add up to more than fp16 holds, 65504. On CPUs and with CUDA, ONNX
    Runtime makes one operator of a norm with its casts; for WebGPU it does not, with or without.
    """
    del graph.value_info[:]  # it has the types of before
    makers = makers_of(graph)
    weights = initializers(graph)
    wide: dict[str, TensorProto] = {}  # the constants of norms, by their names in fp16
    for last in list(graph.node):
        root = makers.get(last.input[1]) if last.op_type == "Div" else None
        if root is None or root.op_type != "Sqrt":
            continue
        x, result = last.input[0], last.output[0]
        names = {x: f"{result}_input"}
        for node in [*nodes_for(graph, root.output, {x}), last]:
            for name in node.input:
                if name in weights and weights[name].data_type == TensorProto.FLOAT16:
                    values = numpy_helper.to_array(weights[name]).astype(np.float32)
                    names[name] = f"{name}_wide"
                    wide[name] = numpy_helper.from_array(values, names[name])
            node.input[:] = [names.get(name, name) for name in node.input]
        last.output[0] = f"{result}_wide"
        graph.node.extend(
            [
                helper.make_node("Cast", [x], [names[x]], to=TensorProto.FLOAT),
                helper.make_node("Cast", [*last.output], [result], to=TensorProto.FLOAT16),
            ]
        )
    graph.initializer.extend(wide.values())


def to_int8(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Use integer matrix products (arXiv 1712.05877, section 2).

    The scale of a product's inputs is computed at run time. Weights are unsigned: processors
    without VNNI add products of unsigned and signed integers in 16 bits, which saturates.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    table = untie(proto.graph)
    for node in narrowing(proto.graph):
        keep_inputs(proto.graph, node)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        quantize_dynamic(
            proto, path, op_types_to_quantize=["MatMul"], per_channel=True,
            weight_type=QuantType.QUInt8, use_external_data_format=True,
            extra_options={"WeightSymmetric": True},
        )  # fmt: skip
        proto = onnx.load(path)
    if not table:
        quantize_table(proto.graph)
        return proto
    weights = initializers(proto.graph)
    integers, zeros = (
        numpy_helper.to_array(weights[f"{HEAD}_{kind}"]) for kind in ("quantized", "zero_point")
    )  # (C, V), (V,)
    integers = np.where(zeros, integers, 128).astype(np.uint8)  # a row of zeros is given zero 0
    same = numpy_helper.from_array(np.full_like(zeros, 128), f"{HEAD}_zero_point")
    weights[same.name].CopyFrom(same)
    rows = numpy_helper.from_array(integers.T.copy(), f"{HEAD}_rows")
    weights[f"{HEAD}_quantized"].CopyFrom(rows)
    transpose = helper.make_node("Transpose", [rows.name], [f"{HEAD}_quantized"], perm=[1, 0])
    proto.graph.node.insert(0, transpose)
    share(proto.graph, table, rows.name, f"{HEAD}_scale")
    return proto


def narrowing(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the products with fewer outputs than inputs, which end a feed-forward.

    Their inputs have outliers (arXiv 2402.17762): one scale for all inputs would round the others
    to zero.
    """
    weights = initializers(graph)
    products = (
        node
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in weights and node.name != HEAD
    )
    shapes = ((node, weights[node.input[1]].dims) for node in products)
    return [node for node, (n_in, n_out) in shapes if n_out < n_in]


def keep_inputs(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    """Give a product 8-bit weights but keep its inputs in fp32.

    ONNX Runtime converts the weights to fp32 once, when it loads the graph.
    """
    (inputs, name), (result,) = node.input, node.output
    matrix = numpy_helper.to_array(initializers(graph)[name])  # (n_in, n_out)
    scale = np.maximum(np.abs(matrix).max(0) / 127, np.finfo(np.float32).tiny)
    integers = np.round(matrix / scale).astype(np.int8)
    new = numpy_helper.from_array
    graph.initializer.extend([new(integers, f"{name}_integers"), new(scale, f"{name}_scale")])
    nodes = [
        helper.make_node("Cast", [f"{name}_integers"], [f"{name}_cast"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", [inputs, f"{name}_cast"], [f"{result}_unscaled"], node.name),
        helper.make_node("Mul", [f"{result}_unscaled", f"{name}_scale"], [result]),
    ]
    replace_node(graph, node, nodes)


def to_blocks(source: Path, bits: int, rows: Iterable[np.ndarray] = ()) -> onnx.ModelProto:
    """Quantize weights only, in blocks; the head and what attention reads always have 8 bits.

    Weights beside the graph are read one by one, and those that are not quantized stay there.
    """
    proto, value = onnx.load(source, load_external_data=False), values_of(source)
    graph, rows = proto.graph, list(rows)
    table = untie(graph, value)
    precise = {HEAD, *attention_inputs(graph)}
    weights = initializers(graph)
    products = [n for n in graph.node if n.op_type == "MatMul" and n.input[1] in weights]
    fitted = [n for n in products if n.name not in precise] if bits < 8 and rows else []
    parts = groups(fitted, weights)
    inputs = [[node.input[0] for node in part] for part in parts]
    for part, moments in zip(parts, second_moments(source, inputs, rows)):
        for node in progress(part, f"fitting {bits} bits", unit=" matrices"):
            matrix = value(weights[node.input[1]])
            size = choose_size(matrix, bits)
            blocks = compensate(matrix, moments[node.input[0]], bits, size)
            multiply_blocks(graph, node, blocks, len(matrix), bits)
    rest = [node for node in products if node.name not in {n.name for n in fitted}]
    for node in progress(rest, f"quantising to {bits} bits", unit=" matrices"):
        n_bits = 8 if node.name in precise else bits
        matrix = value(weights[node.input[1]])
        blocks = quantize(matrix, n_bits, choose_size(matrix, n_bits))
        multiply_blocks(graph, node, blocks, len(matrix), n_bits)
    need_microsoft(proto)
    if not table:
        quantize_table(graph, value)
        return proto
    # Quantization pads rows to whole blocks, which an embedding lookup could not undo.
    n_blocks, size = initializers(graph)[f"{HEAD}_integers"].dims[1:]
    if initializers(graph)[table].dims[1] == n_blocks * size:
        share(graph, table, f"{HEAD}_integers", f"{HEAD}_scales")
    return proto


def groups(
    products: list[onnx.NodeProto], weights: dict[str, TensorProto]
) -> list[list[onnx.NodeProto]]:
    """Return products in their order, as many together as have second moments of MOMENTS_BYTES.

    A group begins with inputs that are as narrow as the first ones: they are kept for each token.
    """
    found: list[list[onnx.NodeProto]] = []
    n_bytes = narrow = 0
    for node in products:
        n_in = weights[node.input[1]].dims[0]
        narrow = narrow or n_in
        if not found or (n_bytes >= MOMENTS_BYTES and n_in <= narrow):
            found.append([])
            n_bytes = 0
        found[-1].append(node)
        n_bytes += 4 * n_in**2
    return found


def attention_inputs(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the products that make queries, keys and values, which are one matrix.

    Errors in values reach the output as they are.
    """
    makers, names = makers_of(graph), []
    for output in graph.output:
        if not output.name.endswith(".value"):
            continue
        node = makers[output.name]
        while node.op_type != "MatMul":  # Concat, Transpose, Split, Reshape, perhaps a bias
            node = makers[next(name for name in node.input if name in makers)]
        names.append(node.name)
    return names


def multiply_blocks(
    graph: onnx.GraphProto, node: onnx.NodeProto, blocks: Blocks, n_in: int, bits: int
) -> None:
    """Replace a product with a matrix (n_in, n_out) by one with its blocks.

    The scales are stored in 16 bits; ONNX Runtime widens them once, when it loads the graph.
    """
    (inputs, name), new = node.input, numpy_helper.from_array
    parts = [f"{name}_integers", f"{name}_scales"]
    stored = [new(pack(blocks.integers, bits), parts[0]), new(blocks.scales, f"{name}_half")]
    if bits < 8:
        parts.append(f"{name}_zeros")
        stored.append(new(pack(blocks.zeros, bits), parts[-1]))
    graph.initializer.extend(stored)
    nodes = [
        helper.make_node("Cast", [f"{name}_half"], [parts[1]], to=TensorProto.FLOAT),
        helper.make_node(
            "MatMulNBits", [inputs, *parts], node.output, node.name, domain=MICROSOFT,
            K=n_in, N=len(blocks.integers), bits=bits, block_size=blocks.integers.shape[-1],
            accuracy_level=4,
        ),
    ]  # fmt: skip
    replace_node(graph, node, nodes)


def to_half_blocks(source: Path, rows: Iterable[np.ndarray]) -> onnx.ModelProto:
    proto = to_blocks(source, 4, rows)
    remove_unused(proto.graph)
    return to_half(proto)


FORMATS = {
    "fp16": lambda source, rows: to_half(onnx.load(source, load_external_data=False)),
    "int8": lambda source, rows: to_int8(onnx.load(source)),
    "q8": lambda source, rows: to_blocks(source, 8),
    "q4": lambda source, rows: to_blocks(source, 4, rows),
    "q4f16": to_half_blocks,
}
