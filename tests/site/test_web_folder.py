"""The folder that `python -m export web` writes."""

import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from conftest import ROOT, Refused
from playwright.sync_api import expect
from sites import Open

from export.__main__ import main
from export.ship.web import ON_CPUS
from gptcore.bundle import read_facts, write_facts
from gptcore.config import PRESETS
from gptcore.facts import ModelFacts
from gptcore.system.files import files_in

pytestmark = pytest.mark.peers


def test_the_folder_is_a_static_space_of_what_the_browser_needs(site: Path) -> None:
    facts = json.loads((site / "site.json").read_text(encoding="utf-8"))
    found = set(files_in(site))
    assert found == {*facts["files"], "site.json", "files.json"}
    assert not {"models/tiny/model.safetensors", "models/tiny/gptcore.json"} & found
    card = (site / "README.md").read_text(encoding="utf-8")
    assert card.startswith('---\ntitle: "tiny"\nsdk: static\nlicense: other\n')


def test_what_a_visitor_downloads_is_told_as_the_page_tells_it(
    model_folder: Path, tmp_path: Path, open_page: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model and the runtime: a model without an int8 file has its fp32 graph downloaded."""
    assert main(["web", str(model_folder), "--out", str(tmp_path / "site")]) == 0
    files = json.loads((tmp_path / "site" / "site.json").read_text(encoding="utf-8"))["files"]
    parts = [files["models/tiny/onnx/model.onnx"], files[ON_CPUS]]
    total, model, runtime = (f"{n_bytes / 1e6:.1f}" for n_bytes in (sum(parts), *parts))
    told = f"downloads {total} MB: the model's {model} and the runtime's {runtime};"
    assert told in capsys.readouterr().out
    offer = open_page(tmp_path / "site").get_by_text(re.compile("MB are downloaded once"))
    expect(offer).to_contain_text(f" {total} MB are downloaded once")


def test_a_site_is_replaced_but_nothing_else(
    model_folder: Path, site: Path, tmp_path: Path, refused: Refused
) -> None:
    out = shutil.copytree(site, tmp_path / "site")
    (out / "README.md").unlink()
    assert main(["web", str(model_folder), "--out", str(out)]) == 0
    assert (out / "README.md").is_file()
    card = out / "README.md"
    card.write_text(card.read_text(encoding="utf-8") + "Mine.\n", encoding="utf-8")
    said = refused(main, "web", model_folder, "--out", out)
    assert f"{card} was edited since this program wrote it: move it elsewhere" in said
    card.unlink()
    (out / "files.json").unlink()  # as a site of an earlier version
    assert main(["web", str(model_folder), "--out", str(out)]) == 0 and card.is_file()
    (out / "diary.txt").write_text("mine")
    assert "contains files of yours (diary.txt)" in refused(main, "web", model_folder, "--out", out)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "site.json").write_text("[]")
    assert "is not a site" in refused(main, "web", model_folder, "--out", mine)
    assert (mine / "site.json").read_text() == "[]" and (out / "diary.txt").is_file()


def test_models_that_browsers_cannot_run_are_refused(
    model_folder: Path, tmp_path: Path, refused: Refused
) -> None:
    out, translator = tmp_path / "site", tmp_path / "translator"
    translator.mkdir()
    write_facts(translator, ModelFacts("x", False, parameters=1, config=PRESETS["translator"]))
    assert "translation model" in refused(main, "web", translator, "--out", out)
    other = shutil.copytree(model_folder, tmp_path / "other")
    facts = json.loads((other / "gptcore.json").read_text())
    del facts["sha256"]["tokenizer.json"]
    (other / "gptcore.json").write_text(json.dumps(facts))
    assert "has no tokenizer.json" in refused(main, "web", other, "--out", out)
    half = shutil.copytree(model_folder, tmp_path / "half")
    (half / "onnx/model.onnx").rename(half / "onnx/model_fp16.onnx")
    write_facts(half, read_facts(half))
    said = refused(main, "web", half, "--out", out)
    assert "has neither an int8 graph nor an fp32 graph below 2 GB" in said
    assert not out.exists()


def test_npm_is_needed_once_and_its_failure_is_told(
    model_folder: Path,
    site: Path,
    tmp_path: Path,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, tools = tmp_path / "site", tmp_path / "tools"
    monkeypatch.setenv("PATH", str(tools))
    assert main(["web", str(model_folder), "--out", str(out)]) == 0  # from the cache
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "npm is not installed" in refused(main, "web", model_folder, "--out", tmp_path / "b")
    tools.mkdir()
    npm = tools / "npm"
    npm.write_text("#!/bin/sh\nprintf 'no way \\377\\n' >&2\nexit 1\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    said = refused(main, "web", model_folder, "--out", tmp_path / "b")
    assert "npm could not fetch onnxruntime-web" in said and "no way" in said
    assert not list((tmp_path / "cache").rglob("*.mjs")) and not (tmp_path / "b").exists()


def test_the_reason_that_npm_gives_is_told(
    model_folder: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("npm_config_cache", "/dev/null/npm")
    assert "npm error code ENOTDIR" in refused(main, "web", model_folder, "--out", tmp_path / "b")


def test_two_that_need_the_runtime_at_once_download_it_once(tmp_path: Path) -> None:
    fetching = [sys.executable, "-c", "from export.ship.web import fetch_runtime; fetch_runtime()"]
    there = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    both = [Popen(fetching, env=there, stdout=PIPE, text=True, cwd=ROOT) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "".join(said).count("fetching onnxruntime-web") == 1
    assert list(tmp_path.rglob("ort.wasm.min.mjs"))
