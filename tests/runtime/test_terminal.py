"""`gptcore chat` with a pipe for a keyboard: what it answers, and what it refuses."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import NANO, ROOT, Refused

from gptcore import Sampling, complete, load_model
from gptcore.__main__ import main
from gptcore.bundle import FACTS


def talk(*typed: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    always = ("--temperature", "0", "--variant", "q8")  # a variant says the same each time
    command = [sys.executable, "-m", "gptcore", "chat", *always, *options]
    return subprocess.run(
        command, cwd=ROOT, input="\n".join(typed), capture_output=True, text=True, encoding="utf-8"
    )


def replies(result: subprocess.CompletedProcess) -> list[str]:
    """What was said after the two lines of the beginning."""
    assert result.returncode == 0, result.stderr
    return result.stdout.split("\n", 2)[2].strip().split("\n\n")


def test_a_conversation_is_remembered_and_quit_ends_it() -> None:
    result = talk("My name is Ada.", "", "What is my name?", "/quit", "Hello!")
    first, second = replies(result)
    assert "Ada" in first and "Ada" in second
    begun = result.stdout.splitlines()[:2]
    assert begun[0].startswith("gptcore chat: 8,262,432 parameters on ")
    commands = "/new begins a new conversation; /quit or Ctrl-D ends."
    assert begun[1] == f"Ctrl-C stops a reply; {commands}"
    assert result.stderr == ""


def test_a_new_conversation_knows_nothing_of_the_one_before() -> None:
    said = talk("My name is Ada.", "/new", "Hello!", "/help")
    alone = replies(talk("Hello!"))
    assert replies(said)[1:] == [
        f"(a new conversation)\n{alone[0]}",
        "(/help is no command: /new begins a new conversation, /quit ends)",
    ]


def test_the_end_of_the_input_ends_it_and_options_reach_the_model() -> None:
    whole = replies(talk("Tell me a story about a cat."))
    cut = replies(talk("Tell me a story about a cat.", options=("--max-tokens", "5")))
    text, note = cut[0].split("\n")
    assert whole[0].startswith(text) and len(text) < len(whole[0])
    assert note == "(stopped at max tokens)"
    drawn = ("--temperature", "1.5", "--seed", "7", "--top-k", "0")
    assert replies(talk("Hello!", options=drawn)) == replies(talk("Hello!", options=drawn))


def test_a_message_that_is_refused_leaves_the_conversation_as_it_was() -> None:
    result = talk("x" * 100_000, "Hello!")
    assert result.stderr.startswith("error: the user message is too long")
    assert result.stderr.count("\n") == 1
    assert replies(result) == replies(talk("Hello!"))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signal for a closed pipe")
def test_a_reader_that_goes_in_the_middle_of_a_reply_ends_it_quietly() -> None:
    for _ in range(4):
        command = [sys.executable, "-m", "gptcore", "chat"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
            process.stdin.write(b"The Debian archive\n")
            process.stdin.close()
            process.stdout.readline(), process.stdout.readline(), process.stdout.read(1)
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141


@pytest.mark.slow
def test_the_oldest_messages_are_left_out_and_that_is_said() -> None:
    result = talk(*["I like green tea and long walks."] * 60, options=(str(NANO),))
    assert "messages no longer fit and were left out)" in replies(result)[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--temperature nan", "temperature=nan is out of range"),
        ("--top-p 2", "top_p=2.0 is out of range"),
        ("--max-tokens 0", "max_tokens=0 must be a whole number of at least 1"),
        ("--variant q5", "unknown variant 'q5'"),
        ("--variant fp32", "has no variant 'fp32'"),
    ],
)
def test_a_wrong_option_is_named(words: str, said: str, refused: Refused) -> None:
    assert said in refused(main, "chat", *words.split())


def test_a_base_model_continues_what_is_typed(tmp_path: Path, refused: Refused) -> None:
    folder = Path(shutil.copytree(NANO, tmp_path / "base"))
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    (folder / FACTS).write_text(json.dumps(facts | {"chat": False}), encoding="utf-8")
    text = "Once upon a time"
    said = talk(text, "/quit", options=(str(folder), "--max-tokens", "8"))
    model = load_model(folder, variant="q8")
    pieces = complete(model, text, Sampling(temperature=0), max_tokens=8)
    written = text + "".join(piece.text for piece in pieces)
    assert "it continues the text that you type" in said.stdout
    assert written in said.stdout and len(written) > len(text), said.stderr
    assert "was not trained on conversations" in refused(main, "chat", folder, "--system", "Hi")
