"""Makes a static page that chats in the browser, without a server.

    >>> build_site(load_bundle("models/default"), Path("site"))          # doctest: +SKIP

The page is the view of gptcore/page/view, with a worker of export/site/ that runs the model. The
runtime is ONNX Runtime's WebAssembly and WebGPU builds and Hugging Face's tokenizers; they are
downloaded from npm once and kept in the user's cache. The page sends no request to any other host.
"""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from export.folder.card import read_hub
from export.folder.copy import copy_files
from export.folder.replace import replacing
from export.runtimes.environments import NPM
from gptcore.bundle import INSPECT, UNTRAINED, VARIANTS, Bundle, data_file, graph_bytes
from gptcore.checks import UserError, shorten
from gptcore.page.facts import view_facts
from gptcore.page.shell import VIEW
from gptcore.system.files import (
    cache_folder,
    file_sha256,
    files_in,
    locked,
    new_folder,
    read_json,
    write_json,
)
from gptcore.system.wording import word

SOURCES = Path(__file__).parent.parent / "site"
SITE = "site.json"  # the page's facts about its model; a folder with this file is a site
OF_SERVERS = ("host.js", "page.js", "window.js")  # the view's modules that ask a server
BROWSER_FORMATS = ("fp32", "fp16", "int8")
INSIDE = (INSPECT, UNTRAINED)  # the graphs of the Inspect tab, which not every model has
MODEL_FILES = ("tokenizer.json", "tokenizer_config.json")
# The packages of npm, and the files wanted.
# The asyncify build supports WebGPU; the other one is half as large and runs on any CPU.
RUNTIME = {
    "onnxruntime-web": (
        "dist/ort.wasm.min.mjs",
        "dist/ort.webgpu.min.mjs",
        "dist/ort-wasm-simd-threaded.mjs",
        "dist/ort-wasm-simd-threaded.wasm",
        "dist/ort-wasm-simd-threaded.asyncify.mjs",
        "dist/ort-wasm-simd-threaded.asyncify.wasm",
    ),
    "@huggingface/tokenizers": ("dist/tokenizers.min.mjs", "LICENSE"),
}
ON_CPUS = "vendor/ort-wasm-simd-threaded.wasm"  # the one that a visitor without WebGPU downloads
LARGE = (".onnx", ".wasm")  # files that the page downloads when they are wanted, and keeps
# These headers let a static Space use several threads.
CARD = """\
---
title: {title}
sdk: static
license: {hub.license}
{hub.terms}custom_headers:
  cross-origin-embedder-policy: require-corp
  cross-origin-opener-policy: same-origin
  cross-origin-resource-policy: cross-origin
---

# {name}

A page that runs a language model of {parameters:,} parameters wholly in the browser: nothing that
is typed leaves the device. Any web server can serve this folder, also from a subfolder:

```bash
python -m http.server --directory path/to/this/folder
```

`vendor/` holds {runtime} (MIT) and {tokenizers} (Apache-2.0); `view/vendor/` says what it holds.
"""


def build_site(bundle: Bundle, out: Path) -> None:
    """Write the site of a model; if that fails, `out` is unchanged."""
    check_model(bundle)
    with replacing(out, "site", SITE, unlisted(out)) as folder:
        model = copy_page(bundle, folder, browser_files(bundle))
        (folder / "README.md").write_text(card(bundle), encoding="utf-8", newline="\n")
        write_json(folder / "manifest.webmanifest", manifest(bundle))
        facts = site_facts(bundle, model, folder)
        write_json(folder / SITE, facts)
    if "int8" not in bundle.variants:
        print(without_int8(bundle, facts["files"][ON_CPUS]))
    size = sum(facts["files"].values()) / 1e6
    print(f"wrote {out} ({size:.1f} MB); next: python -m http.server --directory {word(out)}")


def without_int8(bundle: Bundle, runtime_bytes: int) -> str:
    """Return a note on what a visitor without a GPU downloads if a model has no int8 file."""
    size, runtime = graph_bytes(bundle.path / graph_on_cpus(bundle)) / 1e6, runtime_bytes / 1e6
    return (
        f"a visitor without a GPU downloads {size + runtime:,.1f} MB: the model's {size:,.1f} and "
        f"the runtime's {runtime:,.1f}; exported with --quantize int8, the model needs at most "
        f"{size / 3:,.1f} MB"
    )


def copy_page(bundle: Bundle, folder: Path, graphs: list[str]) -> str:
    """Copy the page, the runtime and a model with these graphs; return the model's name there."""
    runtime, model = fetch_runtime(), model_name(bundle.path)
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("single"))
    shutil.copytree(VIEW, folder / "view", ignore=shutil.ignore_patterns(*OF_SERVERS))
    shutil.copytree(runtime, folder / "vendor")
    names = (*MODEL_FILES, *graphs, *INSIDE)
    there = [name for name in names if name in bundle.facts.sha256]
    copy_files(bundle.path, folder / "models" / model, there)
    return model


def check_model(bundle: Bundle) -> None:
    if "tokenizer.json" not in bundle.facts.sha256:
        raise UserError(
            f"{bundle.path} has no tokenizer.json: only models with a tokenizer of their own run "
            f"in a browser"
        )
    graph_on_cpus(bundle)


def graph_on_cpus(bundle: Bundle) -> str:
    """Return the graph that a browser without WebGPU takes. Raises UserError if there is none."""
    files = browser_files(bundle)
    for name in ("int8", "fp32"):
        if VARIANTS[name] in files:
            return VARIANTS[name]
    raise UserError(
        f"{bundle.path} has neither an int8 graph nor an fp32 graph below 2 GB; a browser "
        f"without a GPU needs one of them: export it with --quantize int8"
    )


def browser_files(bundle: Bundle) -> list[str]:
    """Return the graphs for browsers; one whose weights do not fit its own file is too large."""
    files, listed = (VARIANTS[name] for name in BROWSER_FORMATS), bundle.facts.sha256
    return [f for f in files if f in listed and data_file(Path(f)).as_posix() not in listed]


def unlisted(out: Path) -> list[str]:
    """Return the files of a site; older ones list them in site.json alone."""
    try:
        return [SITE, *read_json(out / SITE)["files"]]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def model_name(folder: Path) -> str:
    """Return the folder's name in a form that is safe in URLs."""
    return re.sub(r"[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-") or "model"


def site_facts(bundle: Bundle, model: str, folder: Path) -> dict[str, Any]:
    files = files_in(folder)
    return {
        **view_facts(bundle.facts, bundle.path),
        "parameters": bundle.facts.parameters,
        "n_layer": bundle.config.n_layer,
        "special_tokens": bundle.tokenizer.special,
        "chat_format": asdict(bundle.tokenizer.chat),
        "max_token_bytes": bundle.tokenizer.max_token_bytes,
        "model": model,
        "files": {name: path.stat().st_size for name, path in files.items()},
        "versions": {n: file_sha256(p)[:16] for n, p in files.items() if p.suffix in LARGE},
    }


def manifest(bundle: Bundle) -> dict[str, Any]:
    """Return what a browser needs to install the page (W3C, Web Application Manifest)."""
    return {
        "name": bundle.name,
        "short_name": bundle.name,
        "start_url": "./",
        "scope": "./",
        "display": "standalone",
        "background_color": "#f7f8fb",
        "theme_color": "#4446d8",
        "icons": [
            {"src": f"view/looks/icon-{size}.png", "sizes": f"{size}x{size}", "type": "image/png"}
            for size in (192, 512)
        ],
    }


def card(bundle: Bundle) -> str:
    """Return README.md with a static Space's front matter and the model card's licence."""
    runtime, tokenizers = (f"{name} {pinned(name)[0]}" for name in RUNTIME)
    return CARD.format(
        title=json.dumps(bundle.name, ensure_ascii=False),
        hub=read_hub(bundle.path),
        name=bundle.name,
        parameters=bundle.facts.parameters,
        runtime=runtime,
        tokenizers=tokenizers,
    )


def fetch_runtime() -> Path:
    """Return the folder with the runtime's files; npm downloads them once into the cache."""
    versions = [pinned(package)[0] for package in RUNTIME]
    cached = cache_folder() / f"site-{'-'.join(versions)}"
    with locked(cached.with_name(f"{cached.name}.lock")):
        if cached.is_dir():
            return cached
        print(f"fetching {', '.join(RUNTIME)} from npm to {cached}")
        with tempfile.TemporaryDirectory() as temporary, new_folder(cached) as folder:
            for package, files in RUNTIME.items():
                archive = npm_pack(package, *pinned(package), Path(temporary))
                for name in files:
                    extract(archive, name, folder)
    return cached


def pinned(package: str) -> tuple[str, str]:
    """Return the version and the hash ("sha512-" and base64) of a package in the lock file."""
    found = read_json(NPM / "package-lock.json")["packages"][f"node_modules/{package}"]
    return found["version"], found["integrity"]


def npm_pack(name: str, version: str, integrity: str, folder: Path) -> Path:
    """Download a package; raises UserError if npm is missing or fails, or the hash differs."""
    npm = shutil.which("npm")
    if not npm:
        raise UserError(
            f"npm is not installed, and the page needs {name} {version} from it once: "
            f"install Node.js"
        )
    words = [npm, "pack", f"{name}@{version}", "--loglevel=error", "--ignore-scripts"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, encoding="utf-8", errors="replace"
    )
    archive = folder / (done.stdout.split() or ["no archive"])[-1]
    if done.returncode != 0 or not archive.is_file():
        said = shorten(" ".join((done.stderr or done.stdout).split()), 300)
        raise UserError(f"npm could not fetch {name} {version}: is there a network? {said}")
    check_integrity(archive, integrity)
    return archive


def check_integrity(archive: Path, integrity: str) -> None:
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if f"sha512-{found}" != integrity:
        raise UserError(
            f"{archive.name} from npm has the hash sha512-{found}, but should have {integrity}: it "
            f"is damaged or was changed"
        )


def extract(archive: Path, name: str, folder: Path) -> None:
    """Copy one file of an npm package, which is under `package/`, into a folder."""
    with tarfile.open(archive) as package:
        try:
            content = package.extractfile(f"package/{name}")
        except KeyError:
            raise UserError(
                f"{archive.name} has no {name}: it is not the expected package"
            ) from None
        assert content, f"{name} is a folder"
        (folder / Path(name).name).write_bytes(content.read())
