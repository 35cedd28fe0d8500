"""llama.cpp's own formats of a GGUF, for quantize.py and serving/llama_speed.py.

It runs in an environment with xllamacpp, whose library holds llama.cpp's functions, and gguf.

    python llama_cpp.py MODEL.gguf ROWS.npz FOLDER FORMAT [--threads 1] [--context 512]

ROWS.npz holds rows of token ids. The weights of the GGUF are dequantised, quantised again in FORMAT
(F32, Q8_0, Q4_0, Q4_1 or Q4_K_M) by llama.cpp's functions, and written into FOLDER. The first line
of the output is the file's size and the rows' nats; for each context on the input, a line of times
follows.
"""

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import xllamacpp.xllamacpp
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES

STEPS = 32
library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
# What llama-quantize does with rows that are no multiple of 256 long.
NARROW = {Type.Q4_K: Type.Q5_0, Type.Q6_K: Type.Q8_0}


def tensor_type(name: str, row: int, wanted: str, n_layer: int, is_tied: bool) -> Type:
    """Return the type that llama-quantize gives a matrix (llama-quant.cpp, without imatrix)."""
    if wanted in ("F32", "Q8_0"):
        return Type[wanted]
    found = Type.Q4_K if wanted == "Q4_K_M" else Type[wanted]
    if name == ("token_embd.weight" if is_tied else "output.weight"):
        found = Type.Q6_K
    elif wanted == "Q4_K_M" and any(part in name for part in ("attn_v.", "ffn_down.")):
        layer = int(name.split(".")[1])
        eighth = n_layer // 8
        is_outer = layer < eighth or layer >= 7 * n_layer // 8
        found = Type.Q6_K if is_outer or (layer - eighth) % 3 == 2 else found
    return found if row % GGML_QUANT_SIZES[found][0] == 0 else NARROW[found]


def quantize(source: Path, path: Path, wanted: str) -> None:
    """Write `source` with its matrices in another format."""
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_int64, ctypes.c_void_p,
    ]  # fmt: skip
    reader = gguf.GGUFReader(source)
    fields = {field.name: field for field in reader.fields.values() if "." in field.name}
    architecture = reader.fields["general.architecture"].contents()
    n_layer = fields[f"{architecture}.block_count"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, field in fields.items():
        if name not in ("general.architecture", "general.file_type") and field.types:
            kinds = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), *kinds)
    is_tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    for tensor in reader.tensors:
        matrix = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if matrix.ndim == 1:
            writer.add_tensor(tensor.name, matrix)
            continue
        matrix = np.ascontiguousarray(matrix)
        n, row = matrix.shape
        kind = tensor_type(tensor.name, row, wanted, n_layer, is_tied)
        per_block, block_bytes = GGML_QUANT_SIZES[kind]
        packed = np.zeros((n, row // per_block * block_bytes), np.uint8)
        if kind == Type.F32:
            packed = matrix.view(np.uint8)
        else:
            library.ggml_quantize_chunk(
                kind.value, matrix.ctypes.data, packed.ctypes.data, 0, n, row, None
            )
        writer.add_tensor(tensor.name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Settings(ctypes.Structure):
    """llama.cpp's parameters by value: larger than its own structures, so that any version fits."""

    _fields_ = [("numbers", ctypes.c_uint32 * 256)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class Model:
    """A loaded GGUF with one sequence."""

    def __init__(self, path: Path, context: int, threads: int):
        for name, kind in (
            ("llama_model_default_params", Settings),
            ("llama_context_default_params", Settings),
            ("llama_model_load_from_file", ctypes.c_void_p),
            ("llama_init_from_model", ctypes.c_void_p),
            ("llama_get_memory", ctypes.c_void_p),
            ("llama_model_get_vocab", ctypes.c_void_p),
            ("llama_batch_init", Batch),
            ("llama_get_logits", ctypes.POINTER(ctypes.c_float)),
        ):
            getattr(library, name).restype = kind
        silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self.log = silent(lambda *_: None)
        library.llama_log_set(self.log, None)
        library.llama_backend_init()
        model = ctypes.c_void_p(
            library.llama_model_load_from_file(
                str(path).encode(), library.llama_model_default_params()
            )
        )
        settings = library.llama_context_default_params()
        numbers = settings.numbers  # n_ctx, n_batch, n_ubatch, ...
        numbers[0] = numbers[1] = context
        self.context = ctypes.c_void_p(library.llama_init_from_model(model, settings))
        library.llama_set_n_threads(self.context, threads, threads)
        vocabulary = ctypes.c_void_p(library.llama_model_get_vocab(model))
        self.n_vocab = library.llama_vocab_n_tokens(vocabulary)
        self.batch = library.llama_batch_init(context, 0, 1)

    def clear(self) -> None:
        memory = ctypes.c_void_p(library.llama_get_memory(self.context))
        library.llama_memory_clear(memory, ctypes.c_bool(True))

    def read(self, ids: np.ndarray, past: int, every: bool) -> np.ndarray:
        """Return the logits of every token, or of the last, (n, V)."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = int(token), past + i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, every or i == len(ids) - 1
        assert library.llama_decode(self.context, batch) == 0
        shape = (len(ids) if every else 1, self.n_vocab)
        return np.ctypeslib.as_array(library.llama_get_logits(self.context), shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("format")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context", type=int, default=0, help="the longest that is asked for")
    options = parser.parse_args()
    path = options.folder / f"{options.format}.gguf"
    if not path.exists():
        quantize(options.model, path, options.format)
    rows = list(np.load(options.rows).values())
    longest = max(len(rows[0]), options.context) + STEPS
    model = Model(path, longest, options.threads)
    nats, likeliest = 0.0, []
    for row in rows:
        model.clear()
        logits = model.read(row[:-1], 0, every=True)
        highest = logits.max(1, keepdims=True)
        log_sum = np.log(np.exp(logits - highest).sum(1)) + highest[:, 0]
        nats += float((log_sum - logits[np.arange(len(row) - 1), row[1:]]).sum())
        likeliest += logits.argmax(1).tolist()
    result = {"bytes": path.stat().st_size, "nats": nats, "likeliest": likeliest}
    print(json.dumps(result), flush=True)
    for line in sys.stdin:
        print(json.dumps(seconds(model, rows[0], int(line))), flush=True)


def seconds(model: Model, ids: np.ndarray, context: int) -> dict[str, float]:
    """Return the time in which `context` tokens are read, and STEPS more written after them."""
    model.clear()
    start = time.perf_counter()
    model.read(np.resize(ids, context), 0, every=False)
    read = time.perf_counter()
    for step in range(STEPS):
        model.read(ids[:1], context + step, every=False)
    return {"prefill": read - start, "decode": time.perf_counter() - read}


if __name__ == "__main__":
    main()
