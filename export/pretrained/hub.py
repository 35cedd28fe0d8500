"""Fetches a model's files from the Hugging Face Hub: resumed, and each compared with its hash.

>>> folder = Path("hub/HuggingFaceTB/SmolLM2-135M-Instruct")
>>> fetch_model(folder, "HuggingFaceTB/SmolLM2-135M-Instruct", check=print)      # doctest: +SKIP

The Hub's library lists the files with their hashes, and knows the user's token. The bytes come
through training.machine.download, because the library (2.4) begins a file anew when its process
has ended, and compares sizes only. Only data is fetched, never pickles or programs.
"""

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import HfApi, ModelInfo, constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, httpx

from gptcore.checks import UserError
from gptcore.system.files import file_sha256, is_lfs_pointer, locked, write_whole
from training.machine.download import beside, fetch, keep

NEEDED = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map)\.json"
    r"|chat_template\.jinja|README\.md"
    r"|model\.safetensors\.index\.json|model(-\d+-of-\d+)?\.safetensors"
)
WEIGHTS = ".safetensors"
SUMS = "SHA256SUMS"  # in the form of the program sha256sum
TIMEOUT = 30.0  # seconds for the list of files


class HubFile(NamedTuple):
    """A file in a repository."""

    name: str
    size: int  # bytes
    digest: str  # its SHA-256 if the repository has it as a large file, else git's SHA-1


def home() -> Path:
    """Return the folder of fetched models, OWNER/NAME each: a mirror for other machines, too."""
    return Path(constants.HF_HOME) / "gptcore"


def fetch_model(folder: Path, repo: str, check: Callable[[Path], None]) -> None:
    """Make `folder` hold the model's files as the Hub has them; those that it holds are kept.

    `check` is called with the folder before the weights are fetched, when the small files are
    there; it raises UserError for a model that is of no use.
    """
    api = HfApi()
    commit, files = list_files(api, repo)
    size = sum(file.size for file in files) / 1e9
    print(f"fetching {repo} ({size:.2f} GB, version {commit[:7]}) into {folder}", flush=True)
    address = f"{api.endpoint}/{repo}/resolve/{commit}"
    try:
        with locked(beside(folder, ".lock"), timeout=0):
            folder.mkdir(exist_ok=True)
            clear(folder, files)
            for file in (f for f in files if not f.name.endswith(WEIGHTS)):
                obtain(file, address, folder)
            check(folder)
            check_space(folder, files)
            for file in files:
                obtain(file, address, folder)
            write_sums(folder, files)
    except TimeoutError:  # of the lock
        raise UserError(f"another process fetches {folder}: wait for its end") from None
    except OSError as error:
        raise UserError(
            f"{folder}: {error}; correct that, or name another disk with HF_HOME; what was fetched "
            f"is kept"
        ) from None


def list_files(api: HfApi, repo: str) -> tuple[str, list[HubFile]]:
    """Return the commit of a repository's main branch, and those of its files that are needed.

    Raises UserError if the Hub cannot be reached or refuses, or if needed files are missing.
    """
    try:
        info = api.model_info(repo, files_metadata=True, timeout=TIMEOUT)
        if info.gated:
            api.auth_check(repo)
        files = read_list(info)
    except HFValidationError:
        raise UserError(f"model {repo!r} is not a repository name: write OWNER/NAME") from None
    except HfHubHTTPError as error:
        raise UserError(f"{repo} cannot be fetched: {reason(error, api.endpoint, repo)}") from None
    except (httpx.RequestError, ConnectionError) as error:
        raise UserError(
            f"cannot reach {api.endpoint} ({error}): try again later, or name a folder that has "
            f"{repo} with --mirror"
        ) from None
    except (httpx.InvalidURL, ValueError, TypeError, KeyError, AttributeError):
        raise UserError(
            f"{api.endpoint} does not answer as a Hub does: correct HF_ENDPOINT, or name a folder "
            f"that has {repo} with --mirror"
        ) from None
    check_complete(repo, [file.name for file in files])
    return str(info.sha), files


def read_list(info: ModelInfo) -> list[HubFile]:
    return [
        HubFile(s.rfilename, int(s.size or 0), str(s.lfs.sha256 if s.lfs else s.blob_id))
        for s in info.siblings or []
        if NEEDED.fullmatch(s.rfilename)
    ]


def reason(error: HfHubHTTPError, endpoint: str, repo: str) -> str:
    """Explain the Hub's error in one line."""
    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        return (
            f"it is gated: accept its licence at {endpoint}/{repo}, then run `hf auth login`, or "
            f"set HF_TOKEN"
        )
    if isinstance(error, RepositoryNotFoundError):
        return f"{endpoint} has no such model, or it is private and needs a token (HF_TOKEN)"
    if status == 401:
        return "the token is not valid: run `hf auth login`, or unset HF_TOKEN"
    return " ".join(f"HTTP {status}, {error.server_message or error}; try again later".split())


def check_complete(place: object, names: list[str]) -> None:
    """Raise UserError unless there are a configuration, a tokenizer and weights."""
    for name in ("config.json", "tokenizer.json"):
        if name not in names:
            raise UserError(f"{place} has no {name}: name another model")
    if not any(name.endswith(WEIGHTS) for name in names):
        raise UserError(
            f"{place} has no weights as model.safetensors, and pickles (.bin) are never read: name "
            f"another model"
        )


def clear(folder: Path, files: list[HubFile]) -> None:
    """Delete what is not as the Hub has it, such as files of an older version."""
    digests = {file.name: file.digest for file in files}
    for path in folder.iterdir():
        name = path.name.removesuffix(".version").removesuffix(".part")
        digest = digests.get(name)  # None: a file that is no longer there, however large
        is_part = name != path.name  # which only its download can judge
        if NEEDED.fullmatch(name) and not (digest and (is_part or has_digest(path, digest))):
            path.unlink()


def obtain(file: HubFile, address: str, folder: Path) -> None:
    """Download a file unless it is there. Raises UserError if it is not what the Hub promised."""
    path = folder / file.name
    if path.exists():
        return
    url = f"{address}/{file.name}"
    part = fetch(url, path, build_hf_headers())
    if not has_digest(part, file.digest):
        part.unlink()
        raise UserError(
            f"{url} is damaged or another file: its hash is not {file.digest}, as the Hub "
            f"states; it was deleted: run the command again"
        )
    keep(part, path)


def has_digest(path: Path, digest: str) -> bool:
    """Return whether a file has this SHA-256, or as a git blob this SHA-1."""
    if is_sha256(digest):
        return file_sha256(path) == digest
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == digest


def is_sha256(digest: str) -> bool:
    return len(digest) == 64


def check_space(folder: Path, files: list[HubFile]) -> None:
    """Raise UserError if the disk has less free space than the missing files need."""
    needed = 0
    for file in files:
        path = folder / file.name
        part = beside(path, ".part")
        here = path if path.exists() else part
        needed += max(0, file.size - (here.stat().st_size if here.exists() else 0))
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder} needs {needed / 1e9:.2f} GB more, and the disk has {free / 1e9:.2f} GB: "
            f"make room, or name another disk with HF_HOME"
        )


def write_sums(folder: Path, files: list[HubFile]) -> None:
    """Write SHA256SUMS, with which a copy of the folder can be verified."""
    digests = (f.digest if is_sha256(f.digest) else file_sha256(folder / f.name) for f in files)
    lines = (f"{digest}  {file.name}\n" for digest, file in zip(digests, files))
    write_whole(folder / SUMS, "".join(lines))


def find_in_mirror(mirror: Path, repo: str) -> Path:
    """Return the folder OWNER/NAME of a mirror; its files must have the hashes of SHA256SUMS, if
    it has that. Raises UserError."""
    folder = mirror / repo
    if not folder.is_dir():
        known = sorted(
            p.parent.relative_to(mirror).as_posix() for p in mirror.glob("*/*/config.json")
        )
        listed = f"it has {', '.join(known[:9])}" if known else "it has no OWNER/NAME/config.json"
        raise UserError(f"--mirror {mirror} has no folder {repo}: {listed}")
    check_complete(folder, [path.name for path in folder.iterdir()])
    for path in folder.glob("*" + WEIGHTS):
        if is_lfs_pointer(path):
            raise UserError(f"{path} stands for a file of Git LFS: run `git lfs pull` there")
    check_sums(folder)
    return folder


def check_sums(folder: Path) -> None:
    """Compare files with SHA256SUMS; print a line if there is none. Raises UserError."""
    if not (folder / SUMS).is_file():
        print(f"{folder} has no {SUMS}: its files are taken as they are")
        return
    stated = {}
    for line in (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition(" ")
        # sha256sum writes two spaces, or one and a star, and the name as it was given
        name = name.strip().removeprefix("*").removeprefix("./")
        if NEEDED.fullmatch(name):
            stated[name] = digest.lower()
    for name, digest in stated.items():
        path = folder / name
        if not path.is_file() or file_sha256(path) != digest:
            raise UserError(
                f"{path} is damaged or missing: {SUMS} has another hash; copy the folder again"
            )
    for path in folder.glob("*" + WEIGHTS):
        if NEEDED.fullmatch(path.name) and path.name not in stated:
            raise UserError(
                f"{path} is not listed in {SUMS}, so it cannot be verified: add its hash there, or "
                f"delete {SUMS}"
            )
