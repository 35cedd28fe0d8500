"""Copies files of a folder to another one, under the same names.

>>> copy_files(Path("models/nano"), Path("kit"), ["onnx/model.onnx"])    # doctest: +SKIP
"""

import shutil
from collections.abc import Iterable
from pathlib import Path


def copy_files(source: Path, target: Path, names: Iterable[str]) -> None:
    """Copy the files with these names, such as `onnx/model.onnx`; folders are made as needed."""
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
