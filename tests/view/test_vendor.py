"""The libraries of others that the chat view ships are those that npm has, unchanged."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.peers

VENDOR = ROOT / "gptcore" / "page" / "view" / "vendor"
SOURCES = {  # in the package
    "marked.esm.js": "lib/marked.esm.js",
    "purify.es.js": "dist/purify.es.mjs",
    "highlight.min.js": "es/highlight.min.js",
    "katex.min.js": "dist/katex.min.js",
}
ROW = re.compile(r"^\| (\S+\.js) \| (\S+)[^|]* \| ([\d.]+) \|", re.MULTILINE)
ROWS = ROW.findall((VENDOR / "README.md").read_text(encoding="utf-8"))


def test_every_file_is_listed_with_its_licence() -> None:
    assert {file for file, _, _ in ROWS} == {p.name for p in VENDOR.glob("*.js")} == set(SOURCES)
    assert (VENDOR / "LICENSES.txt").read_text(encoding="utf-8").count("==== ") == len(ROWS)


@pytest.mark.parametrize(("file", "package", "version"), ROWS)
def test_a_file_is_that_of_its_package(
    file: str, package: str, version: str, tmp_path: Path
) -> None:
    npm = shutil.which("npm")
    assert npm, "this test needs npm: apt-get install npm"
    words = [npm, "pack", f"{package}@{version}", "--silent", "--ignore-scripts"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    [archive] = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as content:
        theirs = content.extractfile(f"package/{SOURCES[file]}")
        assert theirs and theirs.read() == (VENDOR / file).read_bytes()
