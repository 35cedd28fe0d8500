"""What the benchmark for GPUs does around its stages: what fails is told."""

import json
from pathlib import Path

from benchmarks.gpu import LEFT_OUT, is_done, run_stage, table


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
