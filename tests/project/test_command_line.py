"""What the command lines of training, export and the page have in common."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from conftest import ROOT, SECONDS, started

import export.__main__
import gptcore.__main__
import training.__main__
from export.commands.export import SMALLER
from export.quantize.save import FORMATS
from gptcore.system.command_line import INTERRUPTED, Command, Program, choose, guard, run_program

MODEL = ROOT / "models" / "nano"
HEAVY = ("torch", "onnx", "onnxruntime", "gradio", "transformers", "matplotlib", "huggingface_hub")
PROGRAMS = {"training": training.__main__.PROGRAM, "export": export.__main__.PROGRAM}
COMMANDS = [command for program in PROGRAMS.values() for command in program.commands.values()]
DEFAULTS = ("page", "train", "export")
# For each subcommand, a line with a path that does not exist.
WRONG = {
    "app.py": {"page": "--model nowhere", "serve": "nowhere", "chat": "nowhere"},
    "training": {
        "train": "nowhere.txt",
        "translate": "nowhere.tsv",
        "recipe": "nowhere.toml",
        "shards": "nowhere.txt",
        "datasets": "gsm8k --data-dir nowhere",
        "evaluate": "nowhere",
        "look": "nowhere",
        "doctor": "nowhere",
        "report": "nowhere",
    },
    "export": {
        "export": "nowhere --out out",
        "fetch": "nowhere",
        "verify": "nowhere",
        "inspect": "nowhere",
        "embed": "nowhere",
        "score": "nowhere pairs.tsv",
        "gguf": "nowhere",
        "ship": "nowhere --out out",
        "space": "nowhere",
        "push": "nowhere me/mine",
        "web": "nowhere --out out",
        "desktop": "nowhere --out out",
    },
}
LINES = [
    (program, [*([name] if name not in DEFAULTS else []), *line.split()])
    for program, commands in WRONG.items()
    for name, wrong in commands.items()
    for line in ("--help", wrong)
]
LINES += [
    ("training", line.split())
    for line in (
        "--out nowhere --resume",
        "--out o --init no",
        "docs/pictures/chat.png --out o",
        "LICENSE docs/pictures/chat.png --out o --minutes 1",
        ".gitignore --out o",  # too short to hold out a part of it
        "requirements.txt --out o --minutes 1",  # too short to plan for
        "README.md --out o --minutes 1 --set stpes=1",
        "README.md --out o --set row_tokens=9999",
        "look docs/pictures/chat.png",
    )
]


# Runs each of a program's lines as a shell would, in one process: 57 of them would take 17 s.
EACH_LINE = """
import io, json, runpy, sys
from contextlib import redirect_stderr, redirect_stdout

program, lines, heavy = json.loads(sys.argv[1])
run, told = runpy.run_path if program.endswith(".py") else runpy.run_module, []
for line in lines:
    out, err, sys.argv = io.StringIO(), io.StringIO(), [program, *line]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run(program, run_name="__main__")
        except SystemExit as end:
            code = end.code
    loaded = [name for name in heavy if name in sys.modules]
    told.append((code, out.getvalue(), err.getvalue(), loaded))
print(json.dumps(told))
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_every_subcommand_is_tried() -> None:
    known = {"app.py": gptcore.__main__.COMMANDS}
    known |= {name: program.commands for name, program in PROGRAMS.items()}
    assert {name: set(commands) for name, commands in WRONG.items()} == {
        name: set(commands) for name, commands in known.items()
    }


@pytest.mark.parametrize("program", WRONG)
def test_help_and_a_wrong_path_are_told_without_a_large_package(program: str) -> None:
    lines = [line for name, line in LINES if name == program]
    done = run("-c", EACH_LINE, json.dumps([program, lines, HEAVY]))
    assert done.returncode == 0, done.stderr
    for line, (code, out, err, heavy) in zip(lines, json.loads(done.stdout), strict=True):
        if line[-1] == "--help":
            assert code == 0 and out.startswith("usage: ") and not err, line
        else:
            assert code == 2 and err.startswith("error: ") and err.count("\n") == 1, (line, err)
        assert not heavy, line


def test_the_help_of_a_training_lists_the_settings_and_the_other_commands() -> None:
    said = run("-m", "training", "--help").stdout
    for words in ("  steps=1000 ", "  n_layer=", "  doctor  ", "verify every file of a run"):
        assert words in said
    assert "  lora=" not in said  # --set refuses it


def test_the_help_of_shards_and_translators_names_what_they_take() -> None:
    said = run("-m", "training", "shards", "--help").stdout
    assert "runs/shards" in said and "URL" not in said
    said = run("-m", "training", "translate", "--help").stdout
    assert "  steps=4000 " in said and not re.search("^  (lora|keep|row_tokens)=", said, re.M)


@pytest.mark.parametrize(
    "command", [*gptcore.__main__.COMMANDS.values(), *COMMANDS], ids=lambda command: command.module
)
def test_every_option_says_what_it_is(command: Command) -> None:
    parser = argparse.ArgumentParser()
    import_module(command.module).add_arguments(parser)
    assert all(action.help for action in parser._actions)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mistyped_subcommand_is_told_with_the_nearest_one(name: str) -> None:
    mistyped = {"training": "evalute", "export": "verfy"}[name]
    done = run("-m", name, mistyped, "somewhere")
    assert done.returncode == 2 and f"unknown command {mistyped!r}: did you mean" in done.stderr


def test_a_file_may_be_called_almost_like_a_subcommand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reports").write_text("a text")
    assert choose(PROGRAMS["training"], ["reports"]) == ("train", ["reports"])


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_a_subcommand_does_fits_into_a_line(program: Program) -> None:
    assert all(len(command.help) < 95 for command in program.commands.values())


def test_an_export_on_a_full_disk_ends_in_one_line(tmp_path: Path) -> None:
    """A limit of file sizes stands for the disk: writing fails in the same way."""
    out = tmp_path / "nano.gguf"
    line = f"ulimit -f 100; exec {sys.executable} -m export gguf {MODEL} --out {out}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {out} cannot be written: ")
    assert done.stderr.endswith("; --out is unchanged\n") and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ctrl_c_ends_an_export_in_one_line_that_says_what_is_kept(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "scores.json")  # the command waits there, until it is interrupted
    words = ["ship", MODEL, "--out", tmp_path / "out", "--scores", tmp_path / "scores.json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "export", *map(str, words)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    with open(tmp_path / "scores.json", "w"):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    assert process.returncode == INTERRUPTED
    assert said == "\nstopped; --out is unchanged\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_signal_ends_a_command_like_ctrl_c_unless_it_is_ignored(
    tmp_path: Path, name: str, is_ignored: bool
) -> None:
    number = getattr(signal, name)
    script = (
        "import signal, sys, time; from gptcore.system.command_line import guard\n"
        f"if {is_ignored}: signal.signal({number:d}, signal.SIG_IGN)\n"
        "def run():\n"
        f"    try: print('begun', flush=True); time.sleep({1 if is_ignored else 60})\n"
        "    finally: time.sleep(0.5); open('cleaned', 'x')\n"
        "    return 0\n"
        "sys.exit(guard(run, ''))"
    )
    with started(script, tmp_path) as process:
        assert process.stdout.readline() == b"begun\n"
        if name == "SIGHUP":  # as of a terminal that is closed: shells send it twice
            process.stdout.close()
            process.stderr.close()
            process.send_signal(number)
            time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(SECONDS) == (0 if is_ignored else INTERRUPTED)
    assert (tmp_path / "cleaned").exists()


def test_an_interrupt_that_python_drops_is_raised_again(tmp_path: Path) -> None:
    """As in a callback, of which each import has one: Stop on the page would do nothing."""
    script = (
        "import signal, sys, time, weakref; from gptcore.system.command_line import guard\n"
        "def run():\n"
        "    lock = set()\n"
        "    kept = weakref.ref(lock, lambda _: signal.raise_signal(signal.SIGTERM))\n"
        "    del lock\n"
        "    time.sleep(600)\n"
        "sys.exit(guard(run, ''))"
    )
    with started(script, tmp_path) as process:
        try:
            _, told = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert (process.returncode, told) == (INTERRUPTED, b"\nstopped\n")


def test_ctrl_c_within_a_text_that_is_executed_has_the_same_exit_code(tmp_path: Path) -> None:
    """As in a dataclass that is imported: the page would tell an error of what it stopped."""
    (tmp_path / "stopped.py").write_text(
        "import sys; from gptcore.system.command_line import guard\n"
        "sys.exit(guard(lambda: exec('raise KeyboardInterrupt'), ''))"
    )
    command = [sys.executable, "-m", "stopped"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (INTERRUPTED, b"\nstopped\n")


@pytest.mark.parametrize("command", [["training", "datasets"], ["training.dialogues"]])
def test_a_reader_that_goes_ends_a_command_quietly(command: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("encoding", "typed", "shown"),
    [
        ("cp932", b"A", "A · ? é".encode("cp932", "replace")),  # files and pipes of Windows
        ("utf-8:strict", b"\xe9\n", "\ufffd · \U0001f600 é".encode()),
    ],
)
def test_what_an_encoding_does_not_have_is_replaced(
    tmp_path: Path, encoding: str, typed: bytes, shown: bytes
) -> None:
    script = (
        "import sys; from gptcore.system.command_line import guard\n"
        "sys.exit(guard(lambda: print(input(), '\\xb7 \\U0001f600 \\xe9'), ''))"
    )
    command = [sys.executable, "-c", script]
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(command, env=environment, input=typed, capture_output=True, timeout=60)
    assert told.stdout.strip() == shown and not told.stderr


def test_an_error_of_our_own_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        guard(lambda: 1 // 0, "requirements.txt")


def test_the_names_in_the_help_are_those_of_the_formats() -> None:
    assert list(FORMATS) == SMALLER


def test_a_model_folder_without_its_option_is_told_the_option(capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        gptcore.__main__.main(["models/mine"])
    said = "unrecognized arguments: models/mine: a model's folder is named with --model models/mine"
    assert capsys.readouterr().err.endswith(f"{said}\n")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--minutes=three", "argument --minutes: 'three' is no number, such as 10 or 0.5\n"),
        ("--depth=2.5", "argument --depth: '2.5' is no whole number, such as 10\n"),
    ],
)
def test_what_is_no_number_is_called_so(option: str, said: str, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_program(PROGRAMS["training"], ["README.md", option])
    assert capsys.readouterr().err.endswith(said)


def test_an_unknown_argument_is_told_what_may_be_meant(capsys) -> None:
    program = PROGRAMS["training"]
    for more, hint in (
        ("n_layer=2", ": each KEY=VALUE needs a --set of its own\n"),
        ("--minuts=3", ": did you mean '--minutes'?\n"),
        ("--words", "\n"),  # like no other but for the hyphens
        ("--qqq", "\n"),
    ):
        with pytest.raises(SystemExit, match="2"):
            run_program(program, ["README.md", "--set", "steps=2", "--out", "no", more])
        assert capsys.readouterr().err.endswith(f"unrecognized arguments: {more}{hint}")
