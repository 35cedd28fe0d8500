"""The examples in docstrings print what they say, and call what there is."""

import ast
import doctest
import importlib
import inspect
from pathlib import Path
from types import ModuleType

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


@pytest.mark.parametrize("path", FILES, ids=str)
def test_an_example_that_is_not_run_fits_the_signatures(path: Path) -> None:
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    for found in doctest.DocTestFinder().find(module):
        for example in found.examples:
            if example.options.get(doctest.SKIP):
                for call in ast.walk(ast.parse(example.source)):
                    if isinstance(call, ast.Call):
                        check_signature(module, call)


def check_signature(module: ModuleType, call: ast.Call) -> None:
    """Raise TypeError if a function of the module does not take such arguments."""
    named = isinstance(call.func, ast.Name) and getattr(module, call.func.id, None)
    if not (inspect.isfunction(named) or inspect.isclass(named)):
        return
    is_open = any(isinstance(argument, ast.Starred) for argument in call.args)
    places = [None for argument in call.args if not isinstance(argument, ast.Starred)]
    names = {keyword.arg: None for keyword in call.keywords if keyword.arg}
    signature = inspect.signature(named)
    (signature.bind_partial if is_open else signature.bind)(*places, **names)
