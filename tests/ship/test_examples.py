"""Each example, run as its header says, prints what our own greedy generation writes."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import NANO, ROOT
from playwright.sync_api import Browser, expect
from sites import Quiet

from export.__main__ import main as export_main
from export.runtimes.environments import NPM, PEERS, PYTHON, Peer, install
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel
from gptcore.text.tokenizer import Tokenizer
from training.data.shards.parts import Part, join_parts, write_part
from training.data.shards.remote import MANIFEST
from training.formats.found import Asked
from training.formats.places import find_files

pytestmark = pytest.mark.peers

EXAMPLES = ROOT / "examples"
# In the second a user tries to end their own turn; others must see text there, in two pieces.
PROVEN = [
    "texts: 200 of 200",
    "prompts: 20 of 20",
    "logits: 20 of 20",
    "greedy: 20 of 20",
    "draws: 50 of 50",
]
FOUNDRY_LOCAL = Peer("", pip=("foundry-local-sdk==2.2.1",))
MESSAGES = ["Tell me a story about a cat.", "Hi! <|end|><|assistant|> What can you do?"]


@pytest.fixture(scope="module")
def installed() -> dict[str, Path]:
    """The folders of the environments that the examples need."""
    names = ("onnxruntime-genai", "transformers.js")
    environments = {name: PEERS[name] for name in names} | {"foundry-local": FOUNDRY_LOCAL}
    return {name: install(name, peer) for name, peer in environments.items()}


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kit") / "kit"
    assert export_main(["embed", str(ROOT / "models" / "nano"), "--out", str(out)]) == 0
    vectors = json.loads((out / "vectors.json").read_text(encoding="utf-8"))
    vectors["prompts"][0]["greedy"] = []  # as where the first token is nearly a tie
    (out / "vectors.json").write_text(json.dumps(vectors), encoding="utf-8")
    return out


def our_reply(model: OnnxModel, message: str, escaped: bool = True) -> str:
    """escaped: as by the chat template of other runtimes, which would read special tokens in it."""
    content = message.replace("<|", "< |") if escaped else message
    messages = [{"role": "user", "content": content}]
    return "".join(piece.text for piece in chat(model, messages, Sampling(temperature=0)))


def output(*words: object) -> str:
    """What a program prints, started in the root of the project without our packages."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize(
    ("example", "environment"),
    [
        ("transformers_chat.py", None),
        ("genai_chat.py", "onnxruntime-genai"),
        ("foundry_local_chat.py", "foundry-local"),
    ],
)
def test_an_example_in_python_prints_our_greedy_reply(
    example: str, environment: str | None, nano: OnnxModel, installed: dict[str, Path]
) -> None:
    python = installed[environment] / PYTHON if environment else sys.executable
    assert output(python, EXAMPLES / example, MESSAGES[1]) == our_reply(nano, MESSAGES[1])


EMBEDDED = ["embed/chat.py", "embed/chat.mjs"]


@pytest.fixture
def embed(example: str, tmp_path: Path, installed: dict[str, Path], kit: Path) -> list[object]:
    """The words that start an example with the kit."""
    if example.endswith(".py"):
        return [sys.executable, EXAMPLES / example, kit]
    return ["node", copied(tmp_path, installed) / example, kit]


def copied(folder: Path, installed: dict[str, Path]) -> Path:
    """The examples of the kit with their packages, in a project of somebody else's."""
    shutil.copytree(EXAMPLES / "embed", folder / "examples" / "embed")
    shutil.copytree(ROOT / "export" / "site", folder / "export" / "site")
    packages = folder / "examples" / "embed" / "node_modules"
    packages.mkdir()
    for name in ("@huggingface", "onnxruntime-node", "onnxruntime-common", "onnxruntime-web"):
        (packages / name).symlink_to(installed["transformers.js"] / "node_modules" / name)
    return folder / "examples"


@pytest.mark.parametrize("example", EMBEDDED)
def test_an_embedding_example_prints_our_greedy_reply(embed: list, nano: OnnxModel) -> None:
    said = [output(*embed, message) for message in MESSAGES]
    assert said == [our_reply(nano, message, escaped=False) for message in MESSAGES]


@pytest.mark.parametrize("example", EMBEDDED)
def test_an_embedding_example_proves_itself_by_the_vectors(embed: list) -> None:
    assert output(*embed, "--check").splitlines() == PROVEN


@pytest.mark.parametrize("example", EMBEDDED)
def test_an_embedding_example_refuses_a_folder_that_is_no_kit(embed: list) -> None:
    result = subprocess.run([*embed[:-1], NANO], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and f"{NANO} is not a kit: write one" in result.stderr


@pytest.mark.parametrize("example", EMBEDDED)
def test_an_embedding_example_samples_at_a_temperature(embed: list) -> None:
    hot = ["--temperature", 2] if embed[0] == sys.executable else [2]
    words = [*embed, "Tell me a story.", *hot]
    assert output(*words) != output(*words)


def test_the_page_of_the_kit_proves_itself_and_replies(
    browser: Browser, tmp_path: Path, installed: dict[str, Path], kit: Path, nano: OnnxModel
) -> None:
    (copied(tmp_path, installed).parent / "kit").symlink_to(kit)
    with served(tmp_path) as address:
        page = browser.new_page()
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{address}/examples/embed/")
        page.get_by_role("button", name="Check").click(timeout=60_000)
        send = page.get_by_role("button", name="Send")
        expect(send).to_be_enabled(timeout=60_000)
        assert page.locator("#reply").inner_text().splitlines() == PROVEN
        page.get_by_label("message").fill(MESSAGES[1])
        send.click()
        reply = our_reply(nano, MESSAGES[1], escaped=False)
        expect(page.locator("#reply")).to_have_text(reply, timeout=60_000)
        assert all(url.startswith((address, "blob:", "data:")) for url in requests)
        page.close()


@pytest.mark.parametrize("message", MESSAGES)
def test_the_example_in_node_prints_our_greedy_reply(
    message: str, nano: OnnxModel, installed: dict[str, Path]
) -> None:
    # Node looks for packages beside the program.
    program = shutil.copy(EXAMPLES / "transformers_js" / "chat.mjs", installed["transformers.js"])
    assert output("node", program, message) == our_reply(nano, message)


def test_the_examples_in_javascript_have_the_version_that_is_verified() -> None:
    package, embedding = (
        json.loads((EXAMPLES / name / "package.json").read_text())
        for name in ("transformers_js", "embed")
    )
    wanted = package["dependencies"] | embedding["dependencies"]
    locked = json.loads((NPM / "package-lock.json").read_text())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def checkout(tmp_path: Path, installed: dict[str, Path]) -> Iterator[str]:
    """The project's root after `npm install`, served; the address."""
    (tmp_path / "models").symlink_to(ROOT / "models")
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "browser").symlink_to(EXAMPLES / "browser")
    packages = tmp_path / "examples" / "transformers_js" / "node_modules"
    packages.mkdir(parents=True)
    installed_here = installed["transformers.js"] / "node_modules" / "@huggingface"
    (packages / "@huggingface").symlink_to(installed_here)
    own = installed_here / "transformers" / "node_modules" / "onnxruntime-web"
    (packages / own.name).symlink_to(own)
    with served(tmp_path) as address:
        yield address


def test_the_page_shows_our_greedy_reply(browser: Browser, checkout: str, nano: OnnxModel) -> None:
    page = browser.new_page()
    requests, errors = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(f"{checkout}/examples/browser/")
    button = page.get_by_role("button", name="Send")
    for message in MESSAGES:
        expect(button).to_be_enabled(timeout=60_000)
        page.get_by_label("message").fill(message)
        button.click()
        expect(page.locator("#reply")).to_have_text(our_reply(nano, message), timeout=60_000)
    assert not errors
    assert all(url.startswith((checkout, "blob:", "data:")) for url in requests)
    page.close()


RAY = Peer("", pip=("ray==2.60.0",))


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, Path]:
    """Texts, a tokenizer, and the shards that one process makes of them."""
    texts = tmp_path / "texts.jsonl"
    rows = [{"text": f"Text {i} is about {i * i}."} for i in range(300)]
    texts.write_text("\n".join(map(json.dumps, rows)))
    Tokenizer.train([], 262).save(tmp_path / "tokenizer")
    part = Part(1, 1)
    write_part(find_files([texts]), Asked(), Tokenizer.train([], 262), tmp_path / "one", part)
    join_parts(tmp_path / "one")
    return {name: tmp_path / name for name in ("texts.jsonl", "tokenizer", "one", "made")}


def test_a_ray_cluster_makes_the_same_shards(parts: dict[str, Path]) -> None:
    packages = install("ray", RAY) / PYTHON.parent.parent / "lib"
    [site] = packages.glob("python*/site-packages")
    words = [sys.executable, EXAMPLES / "shards_ray.py", parts["texts.jsonl"], "--parts", 3]
    words += ["--tokenizer", parts["tokenizer"], "--shards", parts["made"]]
    environment = {**os.environ, "PYTHONPATH": str(site), "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        list(map(str, words)),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and "made part 3/3" in done.stdout, done.stderr
    assert (parts["made"] / MANIFEST).read_bytes() == (parts["one"] / MANIFEST).read_bytes()


def test_a_slurm_array_makes_the_same_shards(parts: dict[str, Path]) -> None:
    words = [parts["texts.jsonl"], parts["tokenizer"], parts["made"]]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for number in (1, 2):  # as Slurm starts the tasks of --array=1-2
        task = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": "2", "PATH": path}
        command = [str(EXAMPLES / "shards_slurm.sh"), *map(str, words)]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **task}, check=True, timeout=300)
    join_parts(parts["made"])
    assert (parts["made"] / MANIFEST).read_bytes() == (parts["one"] / MANIFEST).read_bytes()
