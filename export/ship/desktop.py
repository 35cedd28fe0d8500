"""Makes an application folder: the window with one model, which starts without Python and offline.

>>> build_application(load_bundle("models/default"), Path("dist"))   # doctest: +SKIP

PyInstaller collects Python, ONNX Runtime and the rest for the system that it runs on. The folder
lists its files with their hashes; see gptcore/window/application.py, which checks them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from export.folder.replace import replacing
from export.ship.space import copy_model
from gptcore.bundle import Bundle
from gptcore.checks import UserError
from gptcore.page.shell import VIEW
from gptcore.system.wording import word
from gptcore.window.application import ICON, MODEL

INSTALL = "pip install 'pyinstaller>=6.16,<7'"
START = "import sys\nfrom gptcore.window.application import main\nsys.exit(main())\n"
# Imports lead to the extension. PyInstaller's own hook adds every library, CUDA's 284 MB too.
HOOK = """\
from PyInstaller.utils.hooks import collect_dynamic_libs

found = collect_dynamic_libs("onnxruntime")
binaries = [(source, target) for source, target in found if "providers_shared" in source]
"""
UNNEEDED = (  # imported somewhere, but never in a window
    *("gradio", "pandas", "PIL", "matplotlib", "torch", "transformers", "tokenizers", "onnx"),
    *("requests", "urllib3", "certifi", "charset_normalizer", "httptools", "uvloop", "websockets"),
    *("onnxruntime.quantization", "onnxruntime.tools", "onnxruntime.transformers"),
    *("cryptography", "cffi", "filelock", "itsdangerous", "jinja2", "psutil", "yaml"),
    *("numpy.f2py", "setuptools", "pip", "tkinter", "unittest", "pydoc", "lib2to3", "sqlite3"),
    *("trio", "hypothesis"),  # which AnyIO takes where a test's packages are installed
)
HIDDEN = (  # imported by name, when they are first needed
    *("tiktoken", "regex", "llguidance", "uvicorn.protocols.http.h11_impl"),
    *("uvicorn.loops.asyncio", "uvicorn.lifespan.off", "uvicorn.logging"),
)


def build_application(bundle: Bundle, out: Path) -> None:
    """Write the folder `out`; raises UserError if PyInstaller is missing or fails."""
    if find_spec("PyInstaller") is None:
        raise UserError(f"PyInstaller is missing, which makes the application: {INSTALL}")
    name = application_name(bundle)
    replaced = replacing(out, "application folder", ICON)
    with tempfile.TemporaryDirectory() as temporary, replaced as folder:
        work = Path(temporary)
        copy_model(bundle, work / "model")
        run_pyinstaller(name, work)
        strip_python(work / "dist" / name)
        shutil.copytree(work / "dist" / name, folder, dirs_exist_ok=True, symlinks=True)
        shutil.copyfile(VIEW / "looks" / "icon-512.png", folder / ICON)
        sizes = sizes_by_package(folder)
    print("\n".join(f"{size / 1e6:6.1f} MB  {part}" for part, size in sizes.most_common(8)))
    print(f"wrote {out} ({sizes.total() / 1e6:.0f} MB); next: {word(out / name)}")


def application_name(bundle: Bundle) -> str:
    """Return the model's name in a form that is safe for files.

    Letters of other scripts are left out. Then it ends with a part of the name's hash, so that two
    such names are two applications.
    """
    name = re.sub(r"[^a-z0-9]+", "-", bundle.name.lower()).strip("-")
    if any(letter.isalnum() and not letter.isascii() for letter in bundle.name):
        return f"{name or 'chat'}-{sha256(bundle.name.encode()).hexdigest()[:6]}"
    return name or "chat"


def run_pyinstaller(name: str, work: Path) -> None:
    """Write the application to `work`/dist/`name`, with the model folder `work`/model."""
    (work / "start.py").write_text(START, encoding="utf-8")
    (work / "hooks").mkdir()
    (work / "hooks" / "hook-onnxruntime.py").write_text(HOOK, encoding="utf-8")
    data = [(VIEW, "gptcore/page/view"), (work / "model", MODEL.as_posix())]
    words = [sys.executable, "-m", "PyInstaller", "--onedir", "--noconfirm", "--log-level=ERROR"]
    words += [f"--name={name}", f"--icon={VIEW / 'looks' / 'icon-512.png'}"]
    words += ["--windowed"] if sys.platform in ("win32", "darwin") else []
    words += [f"--distpath={work / 'dist'}", f"--workpath={work / 'build'}", f"--specpath={work}"]
    words += [f"--additional-hooks-dir={work / 'hooks'}", f"--paths={Path.cwd()}"]
    words += [f"--add-data={source}{os.pathsep}{target}" for source, target in data]
    words += [f"--exclude-module={module}" for module in UNNEEDED]
    words += [f"--hidden-import={module}" for module in HIDDEN]
    words += [str(work / "start.py")]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise UserError(f"PyInstaller failed: {said[-1][-300:]}")


def strip_python(folder: Path) -> None:
    """Leave out the debugging symbols of a Python that was built from source, 22 MB of them.

    Wheels have none; and some of their files are no longer sound when they are stripped.
    """
    strip = shutil.which("strip") if sys.platform == "linux" else None
    own = [*folder.glob("_internal/libpython*"), *folder.glob("_internal/python3*/lib-dynload/*")]
    if strip:
        subprocess.run([strip, "--strip-debug", *map(str, own)], check=True)


def sizes_by_package(folder: Path) -> Counter[str]:
    """Return the bytes of each part of an application folder: a package, or a file of its own."""
    sizes: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            place = path.relative_to(folder).parts
            inner = place[1:] if place[0] == "_internal" else place
            part = MODEL.as_posix() if Path(*inner).is_relative_to(MODEL) else inner[0]
            sizes[part.removesuffix(".libs")] += path.stat().st_size
    return sizes
