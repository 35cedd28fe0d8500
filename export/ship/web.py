"""Makes a static page that chats in the browser, without a server.

    >>> build_site(load_bundle("models/default"), Path("site"))          # doctest: +SKIP

The sources of the page are in export/site/. The runtime is transformers.js on ONNX Runtime's
WebAssembly and WebGPU builds; it is downloaded from npm once and kept in the user's cache.
The page sends no request to any other host.
"""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from export.folder.replace import check_replaceable
from export.runtimes.environments import NPM
from gptcore.bundle import VARIANTS, Bundle
from gptcore.checks import UserError
from gptcore.engine.sampling import SETTINGS
from gptcore.system.files import cache_folder, new_folder

TRANSFORMERS = "4.3.1"  # the version pinned in export/runtimes/npm
SOURCES = Path(__file__).parent.parent / "site"
SITE = "site.json"  # the page's facts about its model; a folder with this file is a site
SITE_SETTINGS = ("temperature", "top_k")
BROWSER_FORMATS = ("fp32", "fp16", "int8")
MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
# The asyncify build supports WebGPU; the other one is half as large and runs on any CPU.
RUNTIME_FILES = (
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
    "ort-wasm-simd-threaded.asyncify.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm",
)
# These headers let a static Space use several threads.
CARD = """\
---
title: {title}
sdk: static
{license}custom_headers:
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

`vendor/` holds transformers.js {transformers} (Apache-2.0) and ONNX Runtime Web (MIT).
"""


def build_site(bundle: Bundle, out: Path) -> None:
    """Write the site of a model; if it fails, nothing is left at `out`."""
    check_model(bundle)
    check_replaceable(out, "site", parts)
    runtime = fetch_runtime()
    model = model_name(bundle.path)
    with new_folder(out) as folder:
        shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
        shutil.copytree(runtime, folder / "vendor")
        for source in model_files(bundle):
            target = folder / "models" / model / source.relative_to(bundle.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        (folder / "README.md").write_text(card(bundle), encoding="utf-8")
        facts = site_facts(bundle, model, folder)
        text = json.dumps(facts, indent=2, ensure_ascii=False)
        (folder / SITE).write_text(text + "\n", encoding="utf-8")
    if "int8" not in bundle.variants:
        print("without a GPU the page runs fp32; --quantize int8 adds a file a third as large")
    size = sum(facts["files"].values()) / 1e6
    print(f"wrote {out} ({size:.1f} MB); next: python -m http.server --directory {out}")


def check_model(bundle: Bundle) -> None:
    for name in ("config.json", "tokenizer.json"):
        if name not in bundle.facts.sha256:
            raise UserError(
                f"{bundle.path} has no {name}: only models of the Llama shape with a tokenizer "
                f"of their own run in transformers.js"
            )


def parts(out: Path) -> set[str] | None:
    """See export.folder.replace."""
    try:
        return {SITE, *json.loads((out / SITE).read_text(encoding="utf-8"))["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def model_name(folder: Path) -> str:
    """Return the folder's name in a form that is safe in URLs and in transformers.js."""
    return re.sub(r"[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-") or "model"


def model_files(bundle: Bundle) -> list[Path]:
    known = [*MODEL_FILES, *(VARIANTS[name] for name in BROWSER_FORMATS)]
    return [bundle.path / name for name in known if name in bundle.facts.sha256]


def site_facts(bundle: Bundle, model: str, folder: Path) -> dict[str, Any]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {
        "name": bundle.name,
        "chat": bundle.is_chat,
        "parameters": bundle.facts.parameters,
        "block_size": bundle.config.block_size,
        "special_tokens": bundle.tokenizer.special,
        "chat_format": bundle.tokenizer.chat.to_dict(),
        "settings": site_settings(),
        "max_token_bytes": bundle.tokenizer.max_token_bytes,
        "model": model,
        "transformers": TRANSFORMERS,
        "files": {p.relative_to(folder).as_posix(): p.stat().st_size for p in files},
    }


def site_settings() -> list[dict[str, Any]]:
    """Return the page's sliders: the settings of gptcore that transformers.js also has."""
    return [
        {
            "name": setting.name,
            "label": setting.label,
            "lowest": setting.slider[0],
            "highest": setting.slider[1],
            "step": setting.step,
            "default": setting.default,
            "info": setting.info,
        }
        for setting in SETTINGS
        if setting.slider and setting.name in SITE_SETTINGS
    ]


def card(bundle: Bundle) -> str:
    """Return README.md with a static Space's front matter and the model card's licence."""
    path = bundle.path / "README.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    licence = re.search(r"^license: .+\n", text, re.MULTILINE)
    return CARD.format(
        title=json.dumps(bundle.name, ensure_ascii=False),
        license=licence[0] if licence else "",
        name=bundle.name,
        parameters=bundle.facts.parameters,
        transformers=TRANSFORMERS,
    )


def fetch_runtime() -> Path:
    """Return the folder with the runtime's files; npm downloads them once into the cache."""
    cached = cache_folder() / f"transformers.js-{TRANSFORMERS}"
    if cached.is_dir():
        return cached
    print(f"fetching transformers.js {TRANSFORMERS} and ONNX Runtime Web from npm to {cached}")
    with tempfile.TemporaryDirectory() as temporary, new_folder(cached) as folder:
        transformers = npm_pack("@huggingface/transformers", Path(temporary))
        extract(transformers, "dist/transformers.min.js", folder)
        extract(transformers, "LICENSE", folder)
        # transformers.js contains the JavaScript of ONNX Runtime, so the binaries must have the
        # version that the same lock file pins.
        runtime = npm_pack("onnxruntime-web", Path(temporary))
        for name in RUNTIME_FILES:
            extract(runtime, f"dist/{name}", folder)
    return cached


def pinned(name: str) -> tuple[str, str]:
    """Return the version and the hash ("sha512-" and base64) of a pinned package."""
    lock = json.loads((NPM / "transformers.js" / "package-lock.json").read_text(encoding="utf-8"))
    package = lock["packages"][f"node_modules/{name}"]
    return package["version"], package["integrity"]


def npm_pack(name: str, folder: Path) -> Path:
    """Download a package; raises UserError if npm is missing or fails, or the hash differs."""
    version, integrity = pinned(name)
    npm = shutil.which("npm")
    if not npm:
        raise UserError(
            f"npm is not installed, and the page needs {name} {version} from it once: "
            f"install Node.js"
        )
    words = [npm, "pack", f"{name}@{version}", "--silent", "--ignore-scripts"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    archive = folder / (done.stdout.split() or ["no archive"])[-1]
    if done.returncode != 0 or not archive.is_file():
        said = " ".join((done.stderr or done.stdout).split())[-300:]
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
