"""Parameters as safetensors: written in one file or in shards, read one tensor at a time.

>>> write_weights({"norm.weight": torch.ones(64)}, Path("models/mine"))     # doctest: +SKIP
>>> Weights(Path("models/mine"))["norm.weight"].shape                       # doctest: +SKIP
torch.Size([64])

A folder has `model.safetensors`, or the shards that `model.safetensors.index.json` names.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gptcore.bundle import INDEX, WEIGHTS, weight_files
from gptcore.checks import UserError

SHARD_BYTES = 2_000_000_000  # most bytes of a file, unless one tensor has more


class Weights(Mapping[str, Tensor]):
    """The tensors of a folder by name, each read as fp32 when it is asked for.

    Raises UserError if a file is missing or damaged.
    """

    def __init__(self, folder: Path):
        self.files: dict[str, Path] = {}  # by the name of a tensor
        for path in weight_files(folder):
            self.files |= dict.fromkeys(self.names(path), path)

    def __getitem__(self, name: str) -> Tensor:
        with safe_open(self.files[name], "pt") as file:
            # A copy: the tensor that is read is a part of the file.
            return file.get_tensor(name).to(torch.float32, copy=True)

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    @staticmethod
    def names(path: Path) -> list[str]:
        try:
            with safe_open(path, "pt") as file:
                return list(file.keys())
        except SafetensorError as error:
            raise UserError(f"{path} is damaged: {error}") from None


def write_weights(state: dict[str, Tensor], folder: Path) -> None:
    """Write model.safetensors, or several files and their index if one would be too large."""
    shards = list(split(state))
    names = [WEIGHTS]
    if len(shards) > 1:
        stem, n = Path(WEIGHTS).stem, len(shards)
        names = [f"{stem}-{i:05}-of-{n:05}.safetensors" for i in range(1, n + 1)]
        size = sum(tensor.nbytes for tensor in state.values())
        files = {key: name for name, shard in zip(names, shards) for key in shard}
        index = {"metadata": {"total_size": size}, "weight_map": files}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    for name, shard in zip(names, shards):
        tensors = {key: tensor.detach().contiguous() for key, tensor in shard.items()}
        save_file(tensors, folder / name, metadata={"format": "pt"})
        (folder / name).chmod(0o644)  # save_file makes it readable only for its owner


def split(state: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield the tensors in parts of at most SHARD_BYTES, or of one tensor."""
    part: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if part and sum(t.nbytes for t in part.values()) + tensor.nbytes > SHARD_BYTES:
            yield part
            part = {}
        part[name] = tensor
    yield part
