"""The embedding and the head, which may be one matrix: each is stored once, in 8 bits.

>>> table = untie(proto.graph)                                       # doctest: +SKIP
>>> ...  # the matrix product named HEAD is quantized                # doctest: +SKIP
>>> share(proto.graph, table, "head_integers", "head_scales")        # doctest: +SKIP
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.formats.graph import Value, head_of, initializers, replace_node
from export.quantize.blocks import choose_size, quantize

HEAD = "head"  # name of the matrix product that computes the logits, and prefix of its weights


def untie(graph: onnx.GraphProto, value: Value = numpy_helper.to_array) -> str | None:
    """Name the head and give it a matrix of its own.

    Return the name of the embedding table it was tied to, or None.
    """
    head = head_of(graph)
    head.name = HEAD
    weights = initializers(graph)
    maker = next((node for node in graph.node if head.input[1] in node.output), None)
    name = maker.input[0] if maker else head.input[1]
    matrix = value(weights[name])
    matrix = matrix.T.copy() if maker else matrix
    graph.initializer.append(numpy_helper.from_array(matrix, HEAD))
    head.input[1] = HEAD
    return name if maker else None


def quantize_table(graph: onnx.GraphProto, value: Value = numpy_helper.to_array) -> None:
    """Store an embedding that is not the head's in 8 bits, if its rows are whole blocks."""
    gather = next(n for n in graph.node if n.op_type == "Gather" and n.input[1] == "input_ids")
    table, rows, scales, half = gather.input[0], "table_integers", "table_scales", "table_half"
    matrix = value(initializers(graph)[table]).T
    blocks = quantize(matrix, 8, choose_size(matrix, 8))
    if blocks.integers.size == matrix.size:
        new = numpy_helper.from_array
        graph.initializer.extend([new(blocks.integers, rows), new(blocks.scales, half)])
        share(graph, table, rows, scales)
        graph.node.insert(0, helper.make_node("Cast", [half], [scales], to=TensorProto.FLOAT))


def share(graph: onnx.GraphProto, table: str, rows: str, scales: str) -> None:
    """Let the embedding read 8-bit integers in place of `table`.

    `rows` and `scales` are values of the graph: integers (V, ..., n), whose zero is 128, and scales
    (V, ...) for every n of them.
    """
    gather = next(n for n in graph.node if n.op_type == "Gather" and table in n.input)
    ids, (result,) = gather.input[1], gather.output
    new = numpy_helper.from_array
    graph.initializer.extend(
        [
            new(np.array(128, np.float32), "embedding_zero"),
            new(np.array([-1], np.int64), "embedding_axis"),
            new(np.array([0, 0, -1], np.int64), "embedding_shape"),
        ]
    )
    node = helper.make_node
    nodes = [
        node("Gather", [rows, ids], ["embedding_rows"]),
        node("Cast", ["embedding_rows"], ["embedding_float"], to=TensorProto.FLOAT),
        node("Sub", ["embedding_float", "embedding_zero"], ["embedding_centred"]),
        node("Gather", [scales, ids], ["embedding_scales"]),
        node("Unsqueeze", ["embedding_scales", "embedding_axis"], ["embedding_factors"]),
        node("Mul", ["embedding_centred", "embedding_factors"], ["embedding_blocks"]),
        node("Reshape", ["embedding_blocks", "embedding_shape"], [result]),
    ]
    replace_node(graph, gather, nodes)
