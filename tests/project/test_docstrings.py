"""The examples in docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest
from conftest import ROOT

FILES = [
    path.relative_to(ROOT)
    for room in ("gptcore", "training", "export", "benchmarks", "models")
    for path in sorted((ROOT / room).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_examples_print_what_they_say(path: Path) -> None:
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    assert doctest.testmod(module).failed == 0
