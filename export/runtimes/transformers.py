"""Hugging Face's class for the model's family, which reads config.json and model.safetensors."""

from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

from export.runtimes.program import Generate, left_padded, serve


class Ticks(BaseStreamer):
    """Records the time of each token of a batch."""

    def __init__(self, tick):
        self.tick = tick

    def put(self, ids: torch.Tensor) -> None:
        if ids.dim() == 1:  # the prompt, which comes first, has two dimensions
            self.tick()

    def end(self) -> None:
        pass


def generate_with(model: transformers.GenerationMixin) -> Generate:
    # No end, and none of what its makers recommend: a penalty changes greedy tokens, too.
    model.generation_config = transformers.GenerationConfig()

    def generate(prompts, n, tick):
        ids, mask = map(torch.from_numpy, left_padded(prompts))
        result = model.generate(  # type: ignore[misc]
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=n,
            do_sample=False,
            streamer=Ticks(tick),
        )
        return result[:, ids.shape[1] :].tolist()

    return generate


def load(folder: Path, threads: int) -> tuple[str, Generate]:
    torch.set_num_threads(threads)
    return "model.safetensors", generate_with(AutoModelForCausalLM.from_pretrained(folder))


if __name__ == "__main__":
    serve("transformers", transformers.__version__, load)
