"""Parameters as safetensors: written in one file or in shards, read one tensor at a time.

>>> write_weights([("norm.weight", torch.ones(64))], Path("models/mine"))   # doctest: +SKIP
>>> Weights(Path("models/mine"))["norm.weight"].shape                       # doctest: +SKIP
torch.Size([64])

A folder has `model.safetensors`, or the shards that `model.safetensors.index.json` names.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from export.formats.model_folder import weight_files
from gptcore.bundle import INDEX, WEIGHTS
from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.families import family
from gptcore.nn.llama import to_llama
from gptcore.system.files import write_json

UNSCALED = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # others need a scale
SHARD_BYTES = 2_000_000_000  # most bytes of a file, unless one tensor has more


class Weights(Mapping[str, Tensor]):
    """The tensors of a folder by name, each read as fp32 when it is asked for.

    Raises UserError if a file is missing or damaged, or a tensor is quantised.
    """

    def __init__(self, folder: Path):
        self.files: dict[str, Path] = {}  # by the name of a tensor
        for path in weight_files(folder):
            self.files |= dict.fromkeys(self.names(path), path)

    def __getitem__(self, name: str) -> Tensor:
        with safe_open(path := self.files[name], "pt") as file:
            tensor = file.get_tensor(name)
            if tensor.dtype not in UNSCALED:
                raise UserError(
                    f"{path}: {name} is of {tensor.dtype}, as in a quantised model, which is not "
                    f"supported: name the model that it was made from"
                )
            # A copy: the tensor that is read is a part of the file.
            return tensor.to(torch.float32, copy=True)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, which is not read."""
        with safe_open(self.files[name], "pt") as file:
            return tuple(file.get_slice(name).get_shape())

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


def write_decoder_weights(tensors: Mapping[str, Tensor], config: ModelConfig, folder: Path) -> None:
    """Write the parameters of a GPT, under the names of transformers if it has a class for them."""
    named = to_llama(tensors, config) if family(config) else tensors
    write_weights(named.items(), folder)


def write_weights(tensors: Iterable[tuple[str, Tensor]], folder: Path) -> None:
    """Write model.safetensors, or several files and their index if one would be too large.

    No more tensors than those of one file are in memory at a time, if they are made when asked for.
    """
    files: list[list[str]] = []  # the names of the tensors of each
    n_bytes = 0
    for shard in split(tensors):
        path = folder / part_name(len(files))
        try:
            save_file(shard, path, metadata={"format": "pt"})
        except SafetensorError as error:  # as on a full disk
            raise OSError(f"{path} cannot be written: {error}") from None
        path.chmod(0o644)  # save_file makes it readable only for its owner
        n_bytes += sum(tensor.nbytes for tensor in shard.values())
        files.append(list(shard))
        del shard
    names = [WEIGHTS]
    if (n := len(files)) > 1:
        stem = Path(WEIGHTS).stem
        names = [f"{stem}-{i:05}-of-{n:05}.safetensors" for i in range(1, n + 1)]
        places = {key: name for name, keys in zip(names, files) for key in keys}
        index = {"metadata": {"total_size": n_bytes}, "weight_map": places}
        write_json(folder / INDEX, index)
    for i, name in enumerate(names):
        (folder / part_name(i)).rename(folder / name)


def part_name(i: int) -> str:
    """Return a file's name while it is not known how many there will be."""
    return f"{WEIGHTS}.{i}"


def split(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """Yield the tensors in parts of at most SHARD_BYTES, or of one tensor."""
    part: dict[str, Tensor] = {}
    n_bytes = 0
    for name, tensor in tensors:
        if part and n_bytes + tensor.nbytes > SHARD_BYTES:
            yield part
            part, n_bytes = {}, 0
        part[name] = tensor.detach().contiguous()
        n_bytes += tensor.nbytes
    yield part
