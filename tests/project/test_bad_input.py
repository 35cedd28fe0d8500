"""What goes wrong is said in one line that helps: exit code 2, no traceback."""

import json
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Refused

from export.__main__ import main as export_main
from gptcore.bundle import ONNX
from gptcore.nn.checkpoint import MODEL
from gptcore.system.command_line import CPU_TORCH
from training.__main__ import main as training_main
from training.run.directory import Run

QUICK = [f"--set={s}" for s in ("n_layer=1", "block_size=64", "batch_size=4", "micro_batch_size=2")]

ONE_STAGE = "[[stages]]\nname = 'out'\nmix = {dialogues = 1}"


@pytest.fixture
def train(tmp_path: Path) -> tuple[object, ...]:
    """The command line of a short training, but for its text."""
    return ("--out", tmp_path / "runs" / "out", "--preset", "tiny", "--set=steps=1", *QUICK)


def numbered_lines(n: int) -> str:
    return "".join(f"This is line {i} of the text.\n" for i in range(n))


FILES = {
    "one_line.txt": (b"A line shorter than a block.", "too short: 28 bytes in 1 document"),
    "rows.jsonl": (
        b'{"txt": "fine"}\n{"txt": "not"}\n',
        "rows.jsonl, line 1: it has no known key: its keys are 'txt'",
    ),
    "roles.jsonl": (b'{"messages": [{"role": "bob", "content": ""}]}', "unknown role 'bob'"),
    "same.jsonl": (b'{"text": "These words and no others."}\n' * 99, " bytes in 1 document"),
    "surrogate.jsonl": (b'{"text": "Half a smile: \\ud83d"}\n' * 99, "line 1"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_text_that_cannot_be_trained_on_is_refused(
    name: str, tmp_path: Path, refused: Refused, train: tuple
) -> None:
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    said = refused(training_main, tmp_path / name, *train, "--set=vocab_size=262")
    assert message in said
    assert not (tmp_path / "runs" / "out").exists()


def test_a_missing_text_is_refused(tmp_path: Path, refused: Refused, train: tuple) -> None:
    said = refused(training_main, tmp_path / "misspelt.txt", *train)
    assert said == f"error: no such file or folder: {tmp_path / 'misspelt.txt'}"
    (tmp_path / "mispelt.txt").write_text("Here it is.")
    said = refused(training_main, tmp_path / "misspelt.txt", *train)
    assert said.endswith(f": did you mean '{tmp_path / 'mispelt.txt'}'?")
    for name in ("Questions.xlsx", "Questions asked.csv"):  # the better one comes later
        (tmp_path / name).write_bytes(b"PK")
        said = refused(training_main, tmp_path / "Questions.csv", *train)
        assert said.endswith(f": did you mean '{tmp_path / name}'?")
    said = refused(training_main, tmp_path / "mis*.txr", *train)
    assert said.endswith(f": did you mean '{tmp_path / 'mis*.txt'}'?")
    said = refused(training_main, tmp_path / "chat*.txr", *train)
    assert said.endswith("chat*.txr"), "no other ending finds anything"


SETTINGS = {
    "n_head=3": "n_head=3 does not divide n_embd=64: choose one of [1, 2, 4, 8, 16, 32",
    "n_kv_head=3": "n_kv_head=3 does not divide n_head=4: choose one of [1, 2, 4]",
    "n_layers=2": "unknown setting 'n_layers': did you mean 'n_layer'?",
    "xyz=9": "unknown setting 'xyz': known are",
    "steps": "--set steps: write it as KEY=VALUE",
    "steps=many": "--set steps=many: give a value of type int",
    "steps=1.5": "--set steps=1.5: give a value of type int",
    "steps=0": "steps=0 is out of range: choose 1 to",
    "learning_rate=fast": "give a value of type float",
    "learning_rate=nan": "learning_rate=nan is out of range: choose 0 to 10",
    "tied_embeddings=yes": "unknown tied_embeddings 'yes': known are true, false",
    "dtype=float23": "unknown dtype 'float23': did you mean 'float32'?",
    "micro_batch_size=3": "micro_batch_size=3 does not divide batch_size=4",
    "norm=layer_norm": "unknown norm 'layer_norm': did you mean 'layernorm'?",
    "optimizer=adam": "unknown optimizer 'adam': did you mean 'adamw'?",
    "label_smoothing=1.5": "label_smoothing=1.5 is out of range: choose 0 to 1",
    "dropout=1": "dropout=1.0 is out of range: choose 0 to 0.99",
    "vocab_size=100": "vocab_size=100 is too small",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_makes_no_sense_is_refused(
    setting: str, chats: Path, refused: Refused, train: tuple, tmp_path: Path
) -> None:
    assert SETTINGS[setting] in refused(training_main, chats, *train, f"--set={setting}")
    assert not (tmp_path / "runs" / "out").exists()


def test_an_unknown_preset_is_refused_with_a_hint(chats: Path, refused: Refused, train) -> None:
    said = refused(training_main, chats, *train, "--preset", "smal")
    assert "unknown preset 'smal': did you mean 'small'?" in said


def test_a_short_text_yields_a_smaller_vocabulary_and_says_so(
    tmp_path: Path, train: tuple, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text(numbered_lines(200))
    assert training_main([str(text), *map(str, train), "--set=vocab_size=5000"]) == 0
    said = capsys.readouterr().out
    n = int(re.search(r"the text is short: its tokenizer has (\d+) tokens", said)[1])
    run = Run.load(tmp_path / "runs" / "out")
    assert 262 < n < 5000 and n == run.model.vocab_size == run.tokenizer.vocab_size


def test_a_text_of_fewer_tokens_than_a_block_trains(tmp_path: Path, train: tuple) -> None:
    text = tmp_path / "text.txt"
    text.write_text(numbered_lines(60))
    words = (text, *train, "--set=vocab_size=270", "--set=block_size=1500")
    assert training_main([str(word) for word in words]) == 0


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Path:
    """A copy of a sound run."""
    return shutil.copytree(run.path, tmp_path / "copy")


def test_an_existing_run_is_not_overwritten(
    chats: Path, copy: Path, refused: Refused, train: tuple
) -> None:
    said = refused(training_main, chats, *train, "--out", copy)
    assert said == (f"error: {copy} holds a run already: add --resume, or choose another --out")


def test_a_plan_beside_a_run_takes_nothing_of_it(
    chats: Path, copy: Path, train: tuple, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.stat().st_mtime_ns for path in copy.rglob("*"))
    assert training_main([str(w) for w in (chats, *train, "--out", copy, "--plan")]) == 0
    assert "passes over the text" in capsys.readouterr().out
    assert sorted(path.stat().st_mtime_ns for path in copy.rglob("*")) == before


@pytest.mark.parametrize("name", ["gptcore.json", "config.json", "summary.json"])
def test_no_file_that_a_run_would_replace_is_touched(
    name: str, chats: Path, tmp_path: Path, refused: Refused, train: tuple
) -> None:
    out = tmp_path / "runs" / "out"
    out.mkdir(parents=True)
    (out / name).write_text("{}")
    said = refused(training_main, chats, *train)
    assert said == f"error: {out} holds {name}, but no run: choose another --out"
    assert [path.name for path in out.iterdir()] == [name]
    recipe = tmp_path / "one.toml"
    recipe.write_text(ONE_STAGE)
    assert said == refused(training_main, "recipe", recipe, "--out", tmp_path / "runs")
    assert (out / name).read_text() == "{}"


@pytest.mark.parametrize(
    "words",
    [
        ["--set=steps=9"],
        ["--set=n_layer=3"],
        ["--preset=nano"],
        ["README.md", "--set=steps=40"],
        ["README.md", "--minutes=5"],
        ["--minutes=5"],
        ["--depth=2"],
        ["--tokenizer=own"],
        ["--full-vocabulary"],
        ["--shards=elsewhere"],
        ["--init=."],
    ],
    ids=str,
)
def test_resume_takes_no_other_text_or_settings(
    words: list[str], copy: Path, refused: Refused
) -> None:
    said = refused(training_main, "--out", copy, "--resume", *words)
    other = (
        r"--resume: (\w+)=.*, but the run in .* (has \1=|was started without it)|no training run"
    )
    assert re.search(other, said)
    if words[0].startswith("--set"):
        assert words[0].removeprefix("--set=") in said


@pytest.mark.parametrize("package", ["training", "export"])
def test_without_torch_one_line_says_what_to_install(
    package: str, run: Run, tmp_path: Path
) -> None:
    arguments = ["--out", str(tmp_path / "out"), *([str(run.path)] if package == "export" else [])]
    program = (
        f"import runpy, sys; sys.modules['torch'] = None; sys.argv[1:] = {arguments}; "
        f"runpy.run_module({package!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines() == [
        "error: the package torch is missing: pip install -r requirements-train.txt (on a machine "
        f"without a GPU, first {CPU_TORCH})"
    ]


def test_resume_needs_a_run(tmp_path: Path, refused: Refused) -> None:
    said = refused(training_main, "--out", tmp_path / "nothing", "--resume")
    assert (
        said
        == f"error: no training run at {tmp_path / 'nothing'}: name a folder that training wrote"
    )
    (tmp_path / "wa").mkdir()
    (tmp_path / "something").mkdir()
    for typed, meant in {"somthing": "something", "Something2": "something", "wb": "wa"}.items():
        said = refused(training_main, "--out", tmp_path / typed, "--resume")
        assert said.endswith(f": did you mean '{tmp_path / meant}'?")


def test_a_run_whose_every_checkpoint_is_damaged_is_neither_resumed_nor_exported(
    copy: Path, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "summary.json").unlink()
    for weights in copy.glob(f"checkpoints/*/{MODEL}"):
        weights.write_bytes(weights.read_bytes()[:-1])
    for said in (
        refused(training_main, "--out", copy, "--resume"),
        refused(training_main, "--init", copy, "--out", tmp_path / "tuned"),
        refused(export_main, copy, "--out", tmp_path / "model"),
    ):
        assert "no sound checkpoint in" in said and "step-20" in said and "step-40" in said
    assert not (tmp_path / "tuned").exists() and not (tmp_path / "model").exists()
    assert export_main([str(copy), "--out", str(tmp_path / "model")]) == 2
    assert f"note: the training in {copy} is not complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps({"model": 3, "train": {}, "data": {}}),
        json.dumps({"model": {}, "train": {}, "data": {}}),
        json.dumps({"model": {"n_layer": None}, "train": {}, "data": {"shards": ""}}),
    ],
)
def test_a_run_whose_settings_are_damaged_is_refused(
    text: str, copy: Path, refused: Refused
) -> None:
    (copy / "summary.json").unlink()  # or a sound one would be refused, too: it is complete
    (copy / "config.json").write_text(text)
    assert "config.json" in refused(training_main, "--out", copy, "--resume")


def test_a_run_whose_shards_are_gone_is_refused(copy: Path, refused: Refused) -> None:
    run = Run.load(copy)
    replace(run, data=replace(run.data, shards=str(copy / "nothing"))).write_config()
    (copy / "summary.json").unlink()  # as if it had been stopped
    assert "the token shards in" in refused(training_main, "--out", copy, "--resume")


@pytest.mark.parametrize("setting", ["n_embd=32", "n_layer=3", "tied_embeddings=false"])
def test_fine_tuning_in_another_shape_is_refused(
    setting: str, chats: Path, run: Run, tmp_path: Path, refused: Refused
) -> None:
    out = tmp_path / "out"
    words = ("--init", run.path, "--out", out, "--set=steps=1", f"--set={setting}")
    assert "does not belong to this model" in refused(training_main, chats, *words)
    assert not (out / "config.json").exists()


@pytest.mark.parametrize("option", ["--preset", "--tokenizer"])
def test_fine_tuning_takes_shape_and_tokenizer_from_the_run(
    option: str, chats: Path, run: Run, tmp_path: Path, refused: Refused
) -> None:
    given = "tiny" if option == "--preset" else run.path / "tokenizer"
    words = ("--init", run.path, "--out", tmp_path / "out", option, given)
    assert "sets shape and tokenizer" in refused(training_main, chats, *words)


def test_a_name_without_its_folder_is_told_the_folder(
    chats: Path, run: Run, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/mine").symlink_to(run.path)
    Path("models/default").mkdir(parents=True)
    words = (chats, "--out", "out", "--init")
    assert refused(training_main, *words, "mine").endswith("did you mean 'runs/mine'?")
    assert refused(training_main, *words, "default").endswith("did you mean 'models/default'?")
    assert refused(training_main, *words, "models/smollm2-135m") == (
        "error: --init models/smollm2-135m is neither a model folder nor a run: "
        "`python -m export fetch --list` names models to fetch"
    )
    assert refused(export_main, "runs/mine") == (
        "error: name the folder to write: --out models/mine"
    )


def test_a_complete_run_is_not_resumed_with_other_options(run: Run, refused: Refused) -> None:
    said = refused(training_main, "--out", run.path, "--resume", "--minutes", 5)
    assert f"{run.path} was started without it and is complete: to train it" in said
    assert said.endswith(f"further, add --init {run.path} and choose another --out")


def test_an_option_that_names_no_run_or_tokenizer_is_refused(
    chats: Path, tmp_path: Path, refused: Refused
) -> None:
    out = ("--out", tmp_path / "out")
    assert "no training run at" in refused(training_main, chats, *out, "--init", tmp_path)
    assert "no tokenizer at" in refused(training_main, chats, *out, "--tokenizer", tmp_path)
    assert "no training run at" in refused(export_main, tmp_path, *out)
    assert "nano is a model folder: name the run" in refused(export_main, "models/nano", *out)


@pytest.mark.parametrize(
    ("main", "line"),
    [
        (training_main, "--out file.txt --resume"),
        (training_main, "text.txt --out file.txt --preset tiny --set vocab_size=262"),
        (training_main, "text.txt --out out --init file.txt"),
        (training_main, "text.txt --out out --tokenizer file.txt"),
        (export_main, "file.txt --out out"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__module__,
)
def test_a_file_where_a_folder_is_meant_is_refused(
    main, line: str, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.txt").write_text("no folder")
    Path("text.txt").write_text(numbered_lines(60))
    assert "file.txt" in refused(main, *line.split())
    assert Path("file.txt").read_text() == "no folder"


@pytest.mark.parametrize("line", ["text.txt", "recipe default"])
def test_an_out_that_cannot_be_written_is_refused_before_the_work(
    line: str, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.txt").write_text("no folder")
    Path("text.txt").write_text(numbered_lines(60))
    said = refused(training_main, *line.split(), "--out", "file.txt/run")
    assert said == f"error: --out file.txt/run: {tmp_path / 'file.txt'} is a file: name a folder"
    assert not Path("shards").exists()


def test_after_an_error_of_the_system_only_a_training_says_what_is_saved(
    chats: Path, copy: Path, tmp_path: Path, refused: Refused, train: tuple
) -> None:
    end = f".{threading.get_native_id()}.tmp"
    (tmp_path / "runs" / "out" / f".config.json{end}").mkdir(parents=True)
    said = refused(training_main, chats, *train)
    assert f".config.json{end}" in said
    assert said.endswith("; no checkpoint was saved yet: start again")
    (copy / f".report.html{end}").mkdir()
    assert refused(training_main, "report", copy).endswith(f".report.html{end}'")


def test_a_folder_that_is_no_sound_model_is_not_verified(
    model_folder: Path, tmp_path: Path, refused: Refused
) -> None:
    model = shutil.copytree(model_folder, tmp_path / "model")
    assert "no model folder at" in refused(export_main, "verify", tmp_path / "nothing")
    assert "no model folder at" in refused(export_main, "verify", model / ONNX)
    assert "gptcore.json is missing" in refused(export_main, "verify", tmp_path)
    data = (model / ONNX).read_bytes()
    (model / ONNX).write_bytes(data[:-1])
    assert "model.onnx is damaged or changed" in refused(export_main, "verify", model)
    (model / ONNX).unlink()
    assert "model.onnx is missing: export" in refused(export_main, "verify", model)
    (model / "gptcore.json").write_text("{")
    assert "gptcore.json is damaged" in refused(export_main, "verify", model)
