"""Two commands never write to one place: the second is told so, or waits."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT

from export.__main__ import main as export_main
from gptcore.system.files import cache_folder, locked
from training.__main__ import main
from training.run.directory import Run

HOLD = """
import sys, time
from pathlib import Path
from training.run.lock import locked_run
with locked_run(Path(sys.argv[1]), is_first=True):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_command(out: Path) -> Iterator[subprocess.Popen]:
    """A process that has the run directory to itself until it is killed."""
    words = [sys.executable, "-c", HOLD, str(out)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("kind", [[], ["translate"]], ids=["text", "pairs"])
def test_a_second_command_with_the_same_out_is_refused_until_the_first_is_dead(
    kind: list[str], chats: Path, pairs_file: Path, tmp_path: Path, refused: Callable
) -> None:
    out = tmp_path / "runs" / "mine"
    words = [*kind, pairs_file if kind else chats, "--out", out, "--set=steps=1"]
    with another_command(out) as first:
        said = refused(main, *words)
        assert f"{out} is in use: another command trains into it" in said
        assert [path.name for path in out.iterdir()] == ["lock"]
        first.kill()  # by SIGKILL: it cannot clean up
        first.wait()
        with locked(out / "lock", timeout=0):
            pass


def test_of_a_run_that_has_just_begun_it_is_said_that_it_is_still_training(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, export = tmp_path / "mine", ["--out", str(tmp_path / "model")]
    with another_command(out) as first:
        assert export_main([str(out), *export]) == 2
        said = capsys.readouterr().err
        assert f"the training in {out} has just begun: wait for its first checkpoint" in said
        shutil.copy(run.path / "config.json", out)
        assert export_main([str(out), *export]) == 2
        said = capsys.readouterr()
        assert said.out == f"note: the training in {out} still runs\n"
        assert f"{out} is still training: wait for its first checkpoint" in said.err
        first.kill()
        first.wait()
    assert export_main([str(out), *export]) == 2
    assert "it can go on with --resume" in capsys.readouterr().out


def test_a_command_that_was_killed_does_not_lock_out_the_next(chats: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    with another_command(out) as first:
        first.kill()
        first.wait()
    small = ["--preset=tiny", "--set=steps=1", "--set=n_layer=1", "--set=batch_size=8"]
    assert main([str(chats), "--out", str(out), *small, "--set=micro_batch_size=8"]) == 0
    assert Run.load(out).is_complete


def test_a_refused_command_leaves_no_folder(tmp_path: Path, refused: Callable) -> None:
    (tmp_path / "few.txt").write_text("few")
    out = tmp_path / "runs" / "new" / "mine"
    assert "too short" in refused(main, tmp_path / "few.txt", "--out", out, "--preset=tiny")
    assert [path.name for path in tmp_path.iterdir()] == ["few.txt"]


def test_a_lock_of_another_place_is_no_hindrance(tmp_path: Path) -> None:
    with locked(tmp_path / "a.lock", timeout=0), locked(tmp_path / "b.lock", timeout=0):
        with pytest.raises(TimeoutError), locked(tmp_path / "a.lock", timeout=0):
            pass
        assert (tmp_path / "a.lock").exists()


def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gptcore"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "gptcore"
