"""Makes a Hugging Face Space: a folder with the page and a model, which starts on its own.

Its kind ("sdk") is "gradio", for which the Hub installs requirements.txt and starts app.py, or
"docker", for which it builds the Dockerfile; that starts on any machine with Docker, too.

>>> write_space(Path("models/default"), Path("space"))               # doctest: +SKIP
"""

import json
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from export.folder.card import Hub, read_hub
from export.folder.copy import copy_files
from export.folder.replace import replacing
from gptcore.bundle import FACTS, Bundle, load_bundle, load_translation_bundle, write_facts
from gptcore.text.tokenizer import FACTS_NAME, FILE_NAME

ROOT = Path(__file__).parent.parent.parent
MODEL, TRANSLATOR = Path("models") / "default", Path("models") / "translate"  # the page's defaults
README = """\
---
title: {title}
emoji: 💬
colorFrom: indigo
colorTo: blue
{sdk}
license: {hub.license}
{hub.terms}short_description: A language model on ONNX Runtime
---

# {name}

{parameters:,} parameters, run by ONNX Runtime. `{command}`
starts the same page on any machine. On a Space with a GPU of its own, write
`onnxruntime-gpu[cuda,cudnn]` in `requirements.txt`, for CUDA's libraries. `python -m export space`
replaces no folder with a file that you edited: choose another --out, and write it there again.
"""
PORT = 7860  # the one that the Hub expects
# What README.md tells the Hub of each kind, and the command that starts it elsewhere.
SDKS = {
    "gradio": (
        'sdk: gradio\nsdk_version: {gradio}\npython_version: "3.12"\napp_file: app.py',
        "pip install -r requirements.txt && python app.py",
    ),
    "docker": (
        f"sdk: docker\napp_port: {PORT}",
        f"docker build -t chat . && docker run -p {PORT}:{PORT} chat",
    ),
}
# The Hub runs it as user 1000, who may write to nothing but the home and /tmp.
DOCKERFILE = f"""\
FROM python:3.12-slim
RUN useradd --create-home --uid 1000 user
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
USER user
ENV HOME=/home/user HF_HOME=/home/user/.cache/huggingface
EXPOSE {PORT}
CMD ["python", "app.py", "--host", "0.0.0.0", "--port", "{PORT}"]
"""
ATTRIBUTES = """\
models/** -text
*.onnx* filter=lfs diff=lfs merge=lfs -text
"""  # git on Windows changes no byte of them; the Hub requires LFS for large files
# What a Space consists of that was written before it listed its files.
UNLISTED = (
    *("app.py", "LICENSE", "README.md", "requirements.txt", ".gitattributes", "Dockerfile"),
    *("gptcore", MODEL.as_posix(), TRANSLATOR.as_posix()),
)


def write_space(
    model: Path,
    out: Path,
    translator: Path | None = None,
    license_name: str | None = None,
    sdk: str = "gradio",
) -> None:
    """Write the page, the torch-free core, and the files of the models that the page reads."""
    bundle = load_bundle(model)
    translation = load_translation_bundle(translator) if translator else None
    with replacing(out, "Space", (MODEL / FACTS).as_posix(), UNLISTED) as folder:
        copy_files(ROOT, folder, ("app.py", "LICENSE"))
        unneeded = shutil.ignore_patterns("nn", "__pycache__")
        shutil.copytree(ROOT / "gptcore", folder / "gptcore", ignore=unneeded)
        copy_model(bundle, folder / MODEL)
        if translation:
            copy_model(translation, folder / TRANSLATOR)
        settings, command = SDKS[sdk]
        text = README.format(
            title=json.dumps(bundle.name, ensure_ascii=False),  # JSON quotes strings as YAML does
            name=bundle.name,
            parameters=bundle.facts.parameters,
            sdk=settings.format(gradio=version("gradio")),
            command=command,
            hub=Hub(license_name) if license_name else read_hub(model),
        )
        (folder / "README.md").write_text(text, encoding="utf-8", newline="\n")
        (folder / "requirements.txt").write_text(requirements(), encoding="utf-8", newline="\n")
        (folder / ".gitattributes").write_text(ATTRIBUTES, encoding="utf-8", newline="\n")
        if sdk == "docker":
            (folder / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8", newline="\n")


def copy_model(bundle: Bundle, folder: Path) -> None:
    """Copy the graphs and tokenizers of a model folder; other files are for other runtimes."""
    tokenizers = (FILE_NAME, FACTS_NAME)
    listed = bundle.facts.sha256
    read = [n for n in listed if n.startswith("onnx/") or Path(n).name in tokenizers]
    copy_files(bundle.path, folder, read)
    write_facts(folder, replace(bundle.facts, loss_curve=False))


def requirements() -> str:
    """Return requirements.txt with the version of Gradio that README.md names for the Hub."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = [f"gradio=={version('gradio')}" if ln.startswith("gradio>") else ln for ln in lines]
    return "\n".join(pinned) + "\n"
