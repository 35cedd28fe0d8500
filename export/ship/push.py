"""Uploads a folder to the Hugging Face Hub: a model, a Space or a static page.

>>> push(Path("models/mine"), "me/mine")                             # doctest: +SKIP

The endpoint is HF_ENDPOINT if it is set. The token comes from HF_TOKEN or `hf auth login`;
otherwise the user is asked for it.
"""

import sys
from getpass import getpass
from pathlib import Path

from huggingface_hub import HfApi, constants, get_token, metadata_load
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import httpx  # under this name in each version; in 2.x it is httpx2
from yaml import YAMLError

from export.formats.model_folder import load_any_bundle
from gptcore.bundle import FACTS
from gptcore.checks import UserError
from gptcore.system.files import check_links

# Files of an earlier push that go if the folder lacks them; what people add by hand stays.
# A model's folder goes whole: the page of a Space would take what is left of it for a model.
OURS = ["*.onnx", "*.onnx_data", "*.safetensors", "*.safetensors.index.json"]
OURS += ["gptcore/*", "models/*", "tokenizer.facts.json", "source_tokenizer/*"]


def push(folder: Path, repo: str, private: bool = False) -> str:
    """Create the repository if needed, upload the folder, and return its URL.

    The hashes of all model folders in it are compared first. Raises UserError.
    """
    sdk = read_sdk(folder)
    check_links(folder)
    kind = "space" if sdk else "model"
    if kind == "model" and not (folder / FACTS).exists():
        load_any_bundle(folder)  # which says what is missing
    for facts in folder.rglob(FACTS):
        load_any_bundle(facts.parent)
    api = HfApi(token=get_token() or ask_token())
    try:
        made = api.create_repo(
            repo, repo_type=kind, private=private or None, space_sdk=sdk, exist_ok=True
        )
        if private and not api.repo_info(made.repo_id, repo_type=kind).private:
            raise UserError(
                f"{made.repo_id} exists and is public, so --private has no effect: make it private "
                f"in its settings, or name another; nothing was uploaded"
            )
        api.upload_folder(
            repo_id=made.repo_id,
            repo_type=kind,
            folder_path=folder,
            commit_message=f"Upload {folder.resolve().name}",
            ignore_patterns=["*__pycache__/*"],  # left by running the Space locally
            # Such files that an earlier push left would be the old model's.
            delete_patterns=OURS,
        )
    except HFValidationError:
        raise UserError(f"repo={repo!r} is not a repository name: write USER/NAME") from None
    except (HfHubHTTPError, httpx.TransportError, ConnectionError) as error:
        raise explained(repo, error) from None
    except RuntimeError as error:  # what huggingface_hub makes of those above in large files
        if not isinstance(error.__cause__, HfHubHTTPError | httpx.TransportError):
            raise
        raise explained(repo, error.__cause__) from None
    return str(made)


def explained(repo: str, error: Exception) -> UserError:
    if isinstance(error, HfHubHTTPError):
        return UserError(f"the Hub refused {repo}: {reason(error)}")
    return UserError(
        f"cannot reach {constants.ENDPOINT} ({error}): run the same command later; large files "
        f"that have arrived are not sent again"
    )


def ask_token() -> str:
    """Ask for a token without showing it; raises UserError if nobody is at the terminal."""
    token = getpass(f"token of {constants.ENDPOINT}, not shown: ") if sys.stdin.isatty() else ""
    if not token:
        raise UserError("there is no token: run `hf auth login`, or set HF_TOKEN")
    return token


def read_sdk(folder: Path) -> str | None:
    """Return the sdk in README.md's front matter; every Space has one."""
    readme = folder / "README.md"
    try:
        return (metadata_load(readme) or {}).get("sdk") if readme.is_file() else None
    except (YAMLError, ValueError) as error:
        said = " ".join(str(error).split())
        raise UserError(
            f"{readme} has no front matter that the Hub can read: correct it ({said})"
        ) from None


def reason(error: HfHubHTTPError) -> str:
    """Explain the Hub's error in one line."""
    status = error.response.status_code
    known = {
        401: "the token is not valid; make one with write permission at its settings/tokens",
        403: "the token may not write there; make one that may, or choose another repository",
    }
    return known.get(status) or " ".join(f"HTTP {status}, {error.server_message or error}".split())
