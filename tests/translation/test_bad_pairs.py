"""Translation's mistakes, and commands for the other kind of model: one line, exit code 2."""

from pathlib import Path

import pytest
from conftest import TINY, Refused
from trained import TINY_TRANSLATOR

from export.__main__ import main as export_main
from training.__main__ import main as training_main
from training.run.directory import Run

TRANSLATE = [f"--set={key}={value}" for key, value in (TINY_TRANSLATOR | {"steps": 1}).items()]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no pairs: write source, tab, target on each line"),
        (b"a\tb\nc d\n", "line 2: the line has no tab"),
        (b"a\t\n", "line 1: one side is empty"),
        (b"\xff\xfe\t", "is not UTF-8 text"),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_refused(
    content: bytes, words: str, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "pairs.tsv").write_bytes(content)
    line = ("translate", tmp_path / "pairs.tsv", "--out", tmp_path / "out", *TRANSLATE)
    assert words in refused(training_main, *line)
    assert not (tmp_path / "out").exists()


def test_pairs_that_are_all_held_out_or_all_too_long_are_refused(
    pairs_file: Path, tmp_path: Path, refused: Refused
) -> None:
    line = ("translate", pairs_file, "--out", tmp_path / "out", *TRANSLATE)
    said = refused(training_main, *line, "--set=block_size=2")
    assert "every pair to train on is longer than block_size=2: enlarge it" in said
    assert "--validation" in refused(training_main, *line, "--validation", pairs_file)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("translate --out OUT", "name a file of pairs: source, tab, target"),
        ("translate MISSING --out OUT", " is not a file: name one with"),
        ("translate PAIRS --out RUN", "holds a run already: add --resume, or choose"),
        ("translate PAIRS --out PAIRS", "is a file: name a folder"),
        ("translate PAIRS --out OUT --preset nano", "unknown preset of a translator 'nano'"),
        ("translate PAIRS --out OUT --preset vaswan", "did you mean 'vaswani'?"),
        ("translate PAIRS --out OUT --set n_encoder_layer=0", "n_encoder_layer=0 is out of range"),
        ("translate PAIRS --out OUT --set chat=1", "unknown setting 'chat'"),
        ("translate PAIRS --out TRANSLATION --resume", "is complete already"),
        ("translate PAIRS --out TRANSLATION --resume --preset vaswani", "only --out"),
        ("translate PAIRS --out TRANSLATION --resume --reverse", "reverse=True, but"),
        ("translate PAIRS --out TRANSLATION --resume --validation PAIRS", "was started without it"),
        ("translate MISSING --out TRANSLATION --resume", "source=missing.tsv, first column to"),
        ("translate --out TRANSLATION --resume --set steps=9", "steps=9, but the run in"),
        ("translate --out TRANSLATION --resume --set micro_batch_size=5", "divide batch_size=32"),
        (
            "translate --out DECODER --resume",
            "is not a translator: use python -m training --resume",
        ),
        (
            "--out TRANSLATION --resume",
            "is a translator: use python -m training translate --resume",
        ),
        ("TEXT --out OUT --init TRANSLATION", "is a translator: name a language"),
        ("TEXT --out OUT --preset vaswani", "is for translators: use python -m training translate"),
        (
            "TEXT --out OUT --preset translator",
            "is for translators: use python -m training translate",
        ),
        ("TEXT --out OUT --preset wayland --set n_encoder_layer=2", "setting 'n_encoder_layer'"),
    ],
)
def test_a_command_for_one_kind_of_model_refuses_the_other(
    line: str,
    words: str,
    chats: Path,
    pairs_file: Path,
    run: Run,
    translation_run: Run,
    tmp_path: Path,
    refused: Refused,
) -> None:
    names = {
        "TEXT": chats,
        "PAIRS": pairs_file,
        "MISSING": tmp_path / "missing.tsv",
        "RUN": run.path,
        "DECODER": run.path,
        "TRANSLATION": translation_run.path,
        "OUT": tmp_path / "out",
    }
    assert words in refused(training_main, *(names.get(word, word) for word in line.split()))
    assert not (tmp_path / "out").exists()


def test_no_translator_is_told_to_go_on_from_weights(
    translation_run: Run, pairs_file: Path, tmp_path: Path, refused: Refused
) -> None:
    """`translate` has no --init."""
    for line in (
        ("--resume", "--out", translation_run.path),
        ("--resume", "--out", translation_run.path, "--set=lora=4"),
        (pairs_file, "--out", tmp_path / "out", "--set=lora=4"),
    ):
        assert "--init" not in refused(training_main, "translate", *line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("score MODEL PAIRS", "is not a translation model"),
        ("score TRANSLATOR MISSING", " is not a file: name one with"),
        ("score TRANSLATOR CHATS", "line 1: the line has no tab"),
        ("score TRANSLATOR PAIRS --beams 99", "beams=99 must be a whole number from 1 to 16"),
        ("score MISSING PAIRS", "no model folder at"),
        ("inspect MISSING", "no model folder at"),
        ("verify MISSING", "no model folder at"),
        ("verify PAIRS", "no model folder at"),
    ],
)
def test_an_export_command_refuses_what_it_is_not_for(
    line: str,
    words: str,
    chats: Path,
    pairs_file: Path,
    model_folder: Path,
    tmp_path: Path,
    refused: Refused,
) -> None:
    names = {
        "CHATS": chats,
        "PAIRS": pairs_file,
        "MISSING": tmp_path / "missing.tsv",
        "MODEL": model_folder,
        "TRANSLATOR": TINY / "translator",
    }
    assert words in refused(export_main, *(names.get(word, word) for word in line.split()))
