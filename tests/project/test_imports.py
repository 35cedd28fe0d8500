"""Who may import whom (see docs): the text of the import statements, and one real import."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from conftest import ROOT

SKIPPED = ("tests", ".venv", "venv")
FILES = [
    path.relative_to(ROOT)
    for path in sorted(ROOT.rglob("*.py"))
    if path.relative_to(ROOT).parts[0] not in SKIPPED
]


def imported(path: Path) -> set[str]:
    """The modules that a file imports, also inside functions, by their dotted names."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def packages(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def within(folder: str) -> list[Path]:
    return [path for path in FILES if path.is_relative_to(folder)]


def test_the_files_are_found() -> None:
    assert Path("app.py") in FILES
    assert all(
        len(within(folder)) > 3 for folder in ("gptcore", "gptcore/nn", "gptcore/page", "training")
    )


@pytest.mark.parametrize("path", within("gptcore"), ids=str)
def test_torch_is_imported_below_nn_alone(path: Path) -> None:
    allowed = path.is_relative_to("gptcore/nn")
    foreign = {"torch", "safetensors", "onnx", "onnxscript", "transformers"}
    assert not packages(path) & (foreign - ({"torch", "safetensors"} if allowed else set()))
    nn = {name for name in imported(path) if name.startswith("gptcore.nn")}
    assert allowed or not nn, "a module outside nn imports torch by way of nn"


@pytest.mark.parametrize("path", within("gptcore"), ids=str)
def test_gradio_is_imported_in_its_room_alone(path: Path) -> None:
    room = {name for name in imported(path) if name.startswith("gptcore.gradio")}
    assert path.is_relative_to("gptcore/gradio") or not ({"gradio"} & packages(path) | room)


@pytest.mark.parametrize(
    ("importer", "forbidden"),
    [
        ("gptcore", {"training", "export", "app"}),
        ("training", {"export", "app"}),
        ("export", {"app"}),
        ("app.py", {"training", "export", "torch"}),
        (".", {"app"}),
    ],
)
def test_data_flows_one_way(importer: str, forbidden: set[str]) -> None:
    files = within(importer)
    assert files
    for path in files:
        assert not packages(path) & forbidden, f"{path} imports {packages(path) & forbidden}"


def test_nothing_that_trains_runs_onnx_sessions() -> None:
    evaluate = Path("training/evaluation/subject.py")  # measures exported folders, too
    for path in set(within("training") + within("gptcore/nn")) - {evaluate}:
        assert "gptcore.engine.onnx_session" not in imported(path), path


# A room imports from itself and from the rooms before it.
ROOMS = {
    "gptcore": [
        *("checks", "config", "typed_json", "families", "feeds", "system", "text", "facts"),
        *("bundle", "nn"),
        *("engine", "translation", "inspection", "model", "models", "terminal"),
        *("api", "page", "window", "gradio"),
    ],
    "training": [
        *(
            "lora",
            "machine",
            "run",
            "optim",
            "report",
            "dialogues",
            "formats",
            "data",
            "state",
            "step",
            "datasets",
        ),
        *("evaluation", "loop", "tasks", "plan", "look", "jobs", "commands"),
    ],
    "export": [
        "formats",
        "quantize",
        "gguf",
        "verify",
        "runtimes",
        "folder",
        "pretrained",
        "ship",
        "kit",
        "commands",
    ],
}


@pytest.mark.parametrize("house", ROOMS)
def test_no_room_imports_from_one_above_it(house: str) -> None:
    floors = {room: floor for floor, room in enumerate(ROOMS[house])}
    for path in within(house):
        room = path.with_suffix("").parts[1]
        if room in ("__init__", "__main__"):
            continue
        for name in imported(path):
            if name.startswith(f"{house}."):
                other = name.split(".")[1]
                if other.startswith("__"):  # gptcore.__version__
                    continue
                assert floors[other] <= floors[room], f"{path} imports {name}"


def test_no_import_goes_in_a_circle() -> None:
    modules = {".".join(path.with_suffix("").parts): path for path in FILES}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    graph = {name: imported(path) & set(modules) for name, path in modules.items()}
    order = list(TopologicalSorter(graph).static_order())
    assert (
        order.index("gptcore.config") < order.index("gptcore.text.tokenizer") < order.index("app")
    )


@pytest.mark.slow
def test_the_page_starts_without_torch() -> None:
    """The page is imported in a process of its own, with all that gradio brings along."""
    program = """
import sys, inspect
opened, getfile = [], inspect.getfile
sys.addaudithook(lambda event, about: event == "open" and opened.append(str(about[0])))
import app
from gptcore.gradio.launch import import_gradio
import_gradio()
import gptcore.gradio.build
assert inspect.getfile is getfile
assert not [path for path in opened if path.endswith(".pyi")], "Gradio writes stubs for editors"
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.split())
    assert {"app", "gptcore", "gradio", "onnxruntime"} <= loaded
    training_only = {"torch", "onnx", "onnxscript", "tokenizers", "transformers", "matplotlib"}
    assert not loaded & (training_only | {"training", "export"})
    assert "altair" not in loaded, "the first picture imports it, not the start"
