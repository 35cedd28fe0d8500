"""What the benchmark for GPUs does around its stages: carried wheels, and stages that fail."""

import json
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu import LEFT_OUT, is_done, join_slices, run_stage, table


def cut_wheel(folder: Path) -> tuple[bytes, list[Path]]:
    """A wheel in four slices, of which every other one lies in another folder."""
    with zipfile.ZipFile(folder / "whole.whl", "w") as wheel:
        wheel.writestr("package/data.bin", bytes(range(256)) * 40)
    content = (folder / "whole.whl").read_bytes()
    folders = [folder / "one", folder / "two"]
    for number in range(4):
        target = folders[number % 2]
        target.mkdir(exist_ok=True)
        size = len(content) // 4 + 1
        part = content[number * size : (number + 1) * size]
        (target / f"package-1-py3-none-any.whl.a{'abcd'[number]}").write_bytes(part)
    return content, folders


def test_a_wheel_that_was_cut_is_joined_from_several_folders(tmp_path: Path) -> None:
    content, folders = cut_wheel(tmp_path)
    [wheel] = join_slices(folders, tmp_path / "joined")
    assert wheel.name == "package-1-py3-none-any.whl" and wheel.read_bytes() == content


@pytest.mark.parametrize("missing", ["aa", "ab", "ad"])
def test_a_missing_slice_is_told(tmp_path: Path, missing: str) -> None:
    _, folders = cut_wheel(tmp_path)
    [slice_path] = tmp_path.glob(f"*/*.whl.{missing}")
    slice_path.unlink()
    with pytest.raises(SystemExit, match=r"any\.whl is not whole .* only the slices"):
        join_slices(folders, tmp_path / "joined")


def test_a_stage_that_fails_is_a_row_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    path = tmp_path / "rows" / "train.json"
    rows = run_stage("train", {"device": "cpu"}, tmp_path, limit_s=0.01)
    assert rows == [(LEFT_OUT, "it took more than 0.01 s")]
    path.write_text(json.dumps(rows), encoding="utf-8")
    assert not is_done(path)
    shown = table(tmp_path, "cpu")
    assert "| training | left out | it took more than 0.01 s |" in shown
    assert "| the machine | left out | not run yet |" in shown
    assert "proves that the script works, and nothing about a GPU" in shown
