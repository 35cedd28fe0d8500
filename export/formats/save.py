"""Saves a graph whose weights may be too large for its file, or are those of another graph's file.

>>> save_graph(proto, Path("onnx/model.onnx"))                       # doctest: +SKIP

The file beside `model.onnx` is `model.onnx_data`, where transformers.js, Optimum and
onnxruntime-genai look for it. The weights are written one by one: no second copy is in memory.
"""

from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gptcore.bundle import data_file

MOST_BYTES = 2_000_000_000  # of weights in the graph's own file; protobuf ends at 2 GiB
SMALL_BYTES = 1024  # smaller weights are always in the graph's own file
PAGE = 4096  # bytes to which weights are aligned, so that a runtime can map them into memory

Value = Callable[[TensorProto], np.ndarray]


def save_graph(proto: onnx.ModelProto, path: Path, value: Value = numpy_helper.to_array) -> None:
    """Write a graph to `path`, and its weights too, or to one file beside it if they are large.

    `value` returns a weight's values; the proto may have only its shape.
    """
    tensors = proto.graph.initializer
    if sum(map(n_bytes, tensors)) <= MOST_BYTES:
        for tensor in tensors:
            tensor.CopyFrom(numpy_helper.from_array(value(tensor), tensor.name))
    else:
        with open(data_file(path), "wb") as file:
            for tensor in tensors:
                array = np.ascontiguousarray(value(tensor))
                if array.nbytes < SMALL_BYTES:
                    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
                    continue
                offset = file.seek(-(-file.tell() // PAGE) * PAGE)
                file.write(array.data)
                refer(tensor, data_file(path).name, offset, array.nbytes)
    onnx.save(proto, str(path))


def refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Let a tensor be read from a file in the folder of its graph."""
    shape, data_type, name = list(tensor.dims), tensor.data_type, tensor.name
    tensor.Clear()
    tensor.dims.extend(shape)
    tensor.data_type, tensor.name = data_type, name
    tensor.data_location = TensorProto.EXTERNAL
    for key, at in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(at))


def refer_to_weights(graph: onnx.GraphProto, source: Path) -> None:
    """Replace the bytes of each weight by their place in the portable file.

    Weights that lie beside the portable graph have a place already.
    """
    with open(source, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        end = 0
        for tensor in graph.initializer:
            length = len(tensor.raw_data)
            if length < SMALL_BYTES:
                continue
            at = content.find(tensor.raw_data, end)  # the weights keep their order
            if at < 0:
                at = content.find(tensor.raw_data)
            if at < 0:
                continue
            end = at + length
            refer(tensor, source.name, at, length)


def n_bytes(tensor: TensorProto) -> int:
    item = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return item * int(np.prod(tensor.dims, dtype=np.int64))
