"""The blind reading: the sheet names no model, and every grade counts once."""

import json
from pathlib import Path

import pytest
from conftest import NANO

from benchmarks.behaviour import blind


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    talks = [
        {"skill": "greeting", "user": ["Hello!", "Tell me a story."], "wants": "a greeting"},
        {"skill": "manner", "user": ["Hi"], "wants": "a pirate", "system": "Talk like a pirate."},
    ]
    (tmp_path / "conversations.json").write_text(json.dumps(talks), encoding="utf-8")
    monkeypatch.setattr(blind, "CONVERSATIONS", tmp_path / "conversations.json")
    blind.ask([f"one={NANO}"], tmp_path, threads=1, variant="fp32")
    blind.ask([f"one={NANO}", f"two={NANO}"], tmp_path, threads=1, variant="fp32")
    return tmp_path


def test_the_sheet_has_each_models_replies_and_no_name(folder: Path) -> None:
    sheet = blind.read(folder / "sheet.jsonl")
    assert len(sheet) == 4 and not any("model" in row for row in sheet)
    first, second = (
        [row["replies"] for row in blind.read(folder / "replies.jsonl") if row["model"] == name]
        for name in ("one", "two")
    )
    assert first == second and [len(replies) for replies in first] == [2, 1]
    (pirate,) = {row["system"] for row in sheet if row["skill"] == "manner"}
    assert pirate == "Talk like a pirate."


def test_a_reply_without_a_grade_is_an_error_and_readers_share(folder: Path, capsys) -> None:
    ids = {(row["model"], row["talk"]): row["id"] for row in blind.read(folder / "replies.jsonl")}
    good = {("one", 0), ("one", 1), ("two", 0)}
    grades = [{"id": key, "good": which in good} for which, key in ids.items()]
    blind.write(folder / "grades-anna.jsonl", grades[:3])
    with pytest.raises(SystemExit, match="1 of 4"):
        blind.count(folder)
    blind.write(folder / "grades-anna.jsonl", grades)
    other = [grade | {"good": grade["good"] and grade["id"] != ids["two", 0]} for grade in grades]
    blind.write(folder / "grades-ben.jsonl", other)
    blind.count(folder)
    printed = capsys.readouterr().out
    assert "agree on 75% of 4" in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("| all |"))
    assert "| 100% (34% to 100%) | 25% (3% to 80%) |" in line


def test_a_model_without_a_name_is_refused(tmp_path: Path) -> None:
    for wrong in ("models/nano", "one=", "one=nowhere"):
        with pytest.raises(SystemExit, match="give NAME=FOLDER"):
            blind.ask([wrong], tmp_path, threads=1)


def test_wilsons_interval() -> None:
    """Table I of Newcombe (Statistics in Medicine 17, 1998): 81 of 263."""
    low, high = blind.wilson([1.0] * 81 + [0.0] * 182)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
