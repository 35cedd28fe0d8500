"""tokenizer.json and the chat template in other people's engines: the same ids as ours, for
thousands of hard texts. Rust's `tokenizers` and JavaScript's transformers.js read the same file.
"""

import json
import random
import shutil
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import pytest
from conftest import ROOT
from foreign import in_transformers_js
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from export.formats.hugging_face import template_with_system, write_tokenizer_json
from export.kit.hard_texts import FRAGMENTS, hard_texts
from gptcore.text.chat_template import Message, render
from gptcore.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from training.data.corpus import document_ids, tokenizer_with_system

pytestmark = pytest.mark.peers

DEFAULT = ROOT / "models" / "default"
# What is white space to one engine and not to another, with a letter, a digit and a sign.
SPACES = "\t\n\v\f\r \x1c\x1f\x85\xa0\u1680\u180e\u2003\u200b\u2028\u2029\u202f\u3000\ufeff"
ORDINARY = ["a", "1", "!", "中"]
TYPED = [*SPECIAL_TOKENS, "<|", "<<|", "<|end|", "<|<|end|>|>", "<||end||>"]


def texts() -> list[str]:
    """Every triple around white space, and fragments and characters of all kinds in any order.

    Other code points without a meaning in Python's version of Unicode are left out: the engines are
    of different versions, and what a newer one calls a letter is none to an older one.
    """

    def is_known(c: str) -> bool:
        return c in FRAGMENTS or unicodedata.category(c) != "Cn"

    triples = map("".join, product([*SPACES, *ORDINARY], repeat=3))
    mixed = (text for text in hard_texts(9000) if all(map(is_known, text)))
    return [*triples, *mixed, "", " " * 1000, "\n" * 1000, "ab" * 1000]


def conversations() -> list[list[Message]]:
    """With text of every kind, and with what looks like special tokens."""
    rng = random.Random(1)
    roles = ("system", "user", "assistant", "user", "assistant", "user")

    def text() -> str:
        return " ".join(rng.choices([*FRAGMENTS, *TYPED], k=rng.randint(0, 8)))

    return [
        [{"role": role, "content": text()} for role in roles[rng.randint(0, 1) :][: 2 * n + 1]]
        for n in range(3)
        for _ in range(100)
    ]


TEXTS, CHATS = texts(), conversations()


@dataclass
class Case:
    """A folder with tokenizer.json, and our tokenizer of it."""

    folder: Path
    ours: Tokenizer

    @cached_property
    def python(self) -> PreTrainedTokenizerFast:
        return AutoTokenizer.from_pretrained(self.folder)


@pytest.fixture(scope="module", params=["shipped", "pairs"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The tokenizer that ships; and one where every two bytes make a token, so that any other
    split of a text gives other ids."""
    if request.param == "shipped":
        return Case(DEFAULT, Tokenizer.load(DEFAULT))
    tokens = [bytes([a, b]) for a in range(256) for b in range(256)]
    random.Random(0).shuffle(tokens)
    singles = [bytes([byte]) for byte in range(256)]
    ours = Tokenizer({token: i for i, token in enumerate([*singles, *tokens])})
    folder = tmp_path_factory.mktemp("pairs")
    write_tokenizer_json(ours, folder / "tokenizer.json")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(DEFAULT / name, folder / name)
    return Case(folder, ours)


@pytest.fixture(scope="module")
def node(case: Case) -> dict:
    return in_transformers_js(case.folder, TEXTS, CHATS)


def first_difference(ours: list[list[int]], theirs: list[list[int]], of: list) -> str:
    assert len(ours) == len(theirs) == len(of)
    different = [i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b]
    return f"{len(different)} differ, such as {of[different[0]]!r}" if different else ""


def test_rust_makes_the_same_ids(case: Case) -> None:
    theirs = case.python(TEXTS, add_special_tokens=False)["input_ids"]
    assert not first_difference([case.ours.encode(text) for text in TEXTS], theirs, TEXTS)


def test_javascript_makes_the_same_ids(case: Case, node: dict) -> None:
    assert not first_difference([case.ours.encode(text) for text in TEXTS], node["ids"], TEXTS)


def test_the_shipped_file_is_what_the_export_writes(tmp_path: Path) -> None:
    write_tokenizer_json(Tokenizer.load(DEFAULT), tmp_path / "tokenizer.json")
    written = (tmp_path / "tokenizer.json").read_bytes()
    assert written == (DEFAULT / "tokenizer.json").read_bytes()


def test_a_base_models_texts_are_opened_as_by_our_engine(case: Case, tmp_path: Path) -> None:
    write_tokenizer_json(case.ours, tmp_path / "tokenizer.json", is_chat=False)
    shutil.copy(case.folder / "tokenizer_config.json", tmp_path)
    texts = TEXTS[:50]
    expected = [document_ids(text, case.ours) for text in texts]
    assert AutoTokenizer.from_pretrained(tmp_path)(texts)["input_ids"] == expected


# ------------------------------------------------------------------ conversations


def escaped(messages: list[Message]) -> list[Message]:
    """As the template writes them: a `<|` that somebody typed is broken up."""
    return [m | {"content": m["content"].replace("<|", "< |")} for m in messages]


def only_special(ids: list[int], tokenizer: Tokenizer) -> list[int]:
    special = set(tokenizer.special.values())
    return [i for i in ids if i in special]


def in_python(case: Case) -> list[list[int]]:
    options = {"add_generation_prompt": True, "return_dict": False}
    return [case.python.apply_chat_template(messages, **options) for messages in CHATS]


@pytest.mark.parametrize("engine", ["python", "javascript"])
def test_the_chat_template_makes_our_ids(case: Case, node: dict, engine: str) -> None:
    theirs = node["chats"] if engine == "javascript" else in_python(case)
    expected = [render(escaped(messages), case.ours, prompt=True) for messages in CHATS]
    assert not first_difference(expected, theirs, CHATS)
    plain = [m for m, n in zip(CHATS, map(escaped, CHATS)) if m == n]
    assert len(plain) > 50, "these are rendered as by our own chat template, without any change"


def test_a_usual_system_message_begins_the_chats_without_one(tmp_path: Path) -> None:
    usual = 'You are "Ada",\n\tan engineer\'s friend \\n: {{ kind }}, {% brief %} – 好。'
    for name in ("tokenizer.json", "special_tokens_map.json"):
        shutil.copy(DEFAULT / name, tmp_path)
    config = json.loads((DEFAULT / "tokenizer_config.json").read_text())
    config["chat_template"] = template_with_system(config["chat_template"], usual)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = tokenizer_with_system(Tokenizer.load(DEFAULT), usual)
    expected = [render(escaped(messages), ours, prompt=True) for messages in CHATS]
    assert not first_difference(expected, in_python(Case(tmp_path, ours)), CHATS)
    theirs = in_transformers_js(tmp_path, [], CHATS)["chats"]
    assert not first_difference(expected, theirs, CHATS)


@pytest.mark.parametrize("engine", ["python", "javascript"])
def test_nobody_can_type_a_special_token(case: Case, node: dict, engine: str) -> None:
    """The special ids of a conversation are those of its form, whatever its texts say."""
    theirs = node["chats"] if engine == "javascript" else in_python(case)
    for messages, ids in zip(CHATS, theirs, strict=True):
        form = [m | {"content": ""} for m in messages]
        assert only_special(ids, case.ours) == render(form, case.ours, prompt=True)
