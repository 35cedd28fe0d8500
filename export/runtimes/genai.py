"""onnxruntime-genai, which reads genai_config.json and pads unequal prompts on the right itself."""

import json
from pathlib import Path

import numpy as np
import onnxruntime_genai as og

from export.runtimes.program import Generate, serve


def load(folder: Path, threads: int, file: str = "") -> tuple[str, Generate]:
    facts = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))["model"]
    pad = facts["pad_token_id"]
    file = file or facts["decoder"]["filename"]
    decoder = {"filename": file, "session_options": {"intra_op_num_threads": threads}}
    # An end token is required; the padding token is chosen because no prompt contains it.
    changes = {"eos_token_id": pad, "decoder": decoder}
    config = og.Config(str(folder))
    config.overlay(json.dumps({"model": changes}))
    model = og.Model(config)

    def generate(prompts, n, tick):
        width = max(map(len, prompts))
        params = og.GeneratorParams(model)
        params.set_search_options(batch_size=len(prompts), max_length=width + n, do_sample=False)
        generator = og.Generator(model, params)
        rows = [prompt + [pad] * (width - len(prompt)) for prompt in prompts]
        generator.append_tokens(np.array(rows, np.int32))
        for _ in range(n):
            generator.generate_next_token()
            tick()
        return [generator.get_sequence(i)[-n:].tolist() for i in range(len(prompts))]

    return file, generate


if __name__ == "__main__":
    serve("onnxruntime-genai", og.__version__, load)
