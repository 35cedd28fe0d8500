"""llama.cpp, which reads a .gguf file in place of the model folder (python -m export gguf)."""

from pathlib import Path

import llama_cpp as lib
import numpy as np

from export.runtimes.program import Generate, serve

FLOAT32 = 0  # ggml's number for fp32
MAX_PROMPTS = 4
LONGEST = 4096  # tokens of a prompt and what is written: the cache is in memory whole


def load(file: Path, threads: int, cache: str = "f32") -> tuple[str, Generate]:
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(str(file).encode(), lib.llama_model_default_params())
    n_tokens = min(lib.llama_model_n_ctx_train(model), LONGEST) * MAX_PROMPTS
    settings = lib.llama_context_default_params()
    settings.n_ctx = settings.n_batch = n_tokens
    settings.n_seq_max = MAX_PROMPTS
    settings.n_threads = settings.n_threads_batch = threads
    if cache == "f32":  # by default it is rounded to 16 bits
        settings.type_k = settings.type_v = FLOAT32
    context = lib.llama_init_from_model(model, settings)
    batch = lib.llama_batch_init(n_tokens, 0, 1)
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def read(rows, lengths):
        """Read the new ids of rows after `lengths` earlier ones; return each likeliest next id."""
        batch.n_tokens, last = 0, []
        for row, ids in enumerate(rows):
            for position, token in enumerate(ids, lengths[row]):
                i = batch.n_tokens
                batch.token[i], batch.pos[i] = token, position
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, row
                batch.logits[i] = False
                batch.n_tokens += 1
            batch.logits[i] = True
            last.append(i)
        assert lib.llama_decode(context, batch) == 0
        logits = [lib.llama_get_logits_ith(context, i) for i in last]
        return [int(np.ctypeslib.as_array(row, (n_vocab,)).argmax()) for row in logits]

    def generate(prompts, n, tick):
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        rows, lengths = prompts, [0] * len(prompts)
        columns: list[list[int]] = []
        while len(columns) < n:
            columns.append(read(rows, lengths))
            tick()
            lengths = [length + len(ids) for length, ids in zip(lengths, rows)]
            rows = [[token] for token in columns[-1]]
        return [list(row) for row in zip(*columns)]

    return file.name, generate


if __name__ == "__main__":
    serve("llama.cpp", lib.__version__, load)
