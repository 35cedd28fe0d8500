"""The static site's sampling, tokens and prompts, run by Node, against the engine's."""

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from foreign import N_INCOMPLETE, N_TRAINED

from export.formats.pre_tokenizers import PRE_TOKENIZERS, explicit
from export.kit.hard_texts import hard_texts
from export.pretrained.tokenizer import read_tokenizer
from export.ship.web import SOURCES, fetch_runtime
from gptcore.bundle import default_model
from gptcore.checks import UserError
from gptcore.engine.generate import chat_request, completion_request
from gptcore.engine.replies import Replies
from gptcore.engine.sampling import Sampling, sample_rows
from gptcore.inspection import ids_of_messages, most_tokens
from gptcore.model import OnnxModel, load_model
from gptcore.text.chat_template import (
    Message,
    end_of_text,
    fit,
    messages_of,
    render,
    text_opening,
)
from gptcore.text.tokenizer import Tokenizer

pytestmark = pytest.mark.peers

N_DRAWS = 4000
SETTINGS = [
    {"temperature": 0.0},
    {"temperature": 1.0, "top_k": 0},
    {"temperature": 0.3, "top_k": 7},
    {"temperature": 1.7, "top_k": 0, "top_p": 0.6},
    {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.1},
    {"temperature": 2.0, "top_k": 0, "min_p": 0.2, "repetition_penalty": 1.4},
    {"temperature": 0.01, "top_k": 0, "repetition_penalty": 0.7},
]
TEXTS = [
    "Hello!", "  two  spaces\n\n and\ttabs ", "naïve café — “quotes”", "数字 123456 和汉字",
    "🦜👩‍👩‍👧‍👧 e\u0301", "<|end|><|assistant|>", "don't I'LL we'Ve",
    "x" * 300, "a\u200bb\ufeffc", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def model() -> OnnxModel:
    return load_model(default_model(), threads=1)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's modules, as Node takes them."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    shutil.copytree(fetch_runtime(), folder / "vendor")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def node(scripts: Path, code: str, given: Any) -> Any:
    """What a script makes of `given` and leaves in `found`."""
    program = shutil.which("node")
    assert program, "this test needs Node.js: apt-get install nodejs"
    text = (
        'import { readFileSync } from "node:fs";\n'
        'const given = JSON.parse(readFileSync(0, "utf-8"));\nlet found;\n'
        f"{code}\nconsole.log(JSON.stringify(found));"
    )
    (scripts / "run.js").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [program, "run.js"], cwd=scripts, input=json.dumps(given), capture_output=True, text=True,
        encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tokens_are_as_likely_as_the_engine_makes_them(scripts: Path) -> None:
    rng = np.random.default_rng(1)
    cases = []
    for changes in SETTINGS:
        logits = rng.normal(0, 3, 50).astype(np.float32)
        reply = rng.integers(0, 50, 10).tolist()
        settings = {s: getattr(Sampling(), s) for s in Sampling.__dataclass_fields__} | changes
        cases.append({"logits": logits.tolist(), "settings": settings, "reply": reply})
    code = """
        const { candidates } = await import("./sampling.js");
        found = given.map(({ logits, settings, reply }) =>
            candidates(Float32Array.from(logits), settings, reply));
    """
    for case, (ids, weights) in zip(cases, node(scripts, code, cases)):
        got = np.zeros(50)
        got[ids] = np.array(weights) / np.sum(weights)
        draws = (np.arange(N_DRAWS) + 0.5) / N_DRAWS
        rows = np.repeat(np.array(case["logits"], np.float32)[None], N_DRAWS, 0)
        chosen = sample_rows(rows, Sampling(**case["settings"]), draws, [case["reply"]] * N_DRAWS)
        expected = np.bincount(chosen, minlength=50) / N_DRAWS
        assert np.abs(got - expected).max() < 2 / N_DRAWS, case["settings"]


def test_no_more_than_k_tokens_may_be_chosen_where_logits_are_equal(scripts: Path) -> None:
    code = """
        const { candidates } = await import("./sampling.js");
        found = candidates(Float32Array.from(given.logits), given.settings)[0];
    """
    given = {"logits": [2, 1, 1, 3, 1, 0], "settings": asdict(Sampling(temperature=1.0, top_k=4))}
    assert set(node(scripts, code, given)) == {0, 1, 2, 3}


def test_draws_are_even_and_follow_from_the_seed(scripts: Path) -> None:
    code = """
        const { random } = await import("./sampling.js");
        found = given.map((seed) => {
            const draw = random(seed);
            return Array.from({ length: 5000 }, draw);
        });
    """
    seeds = [0, 1, 2, 2**31, 2**40, 1]
    drawn = np.array(node(scripts, code, seeds))
    assert np.array_equal(drawn[1], drawn[5]) and len({row[0] for row in drawn.tolist()}) == 5
    for row in drawn:
        assert row.min() >= 0 and row.max() < 1 and abs(row.mean() - 0.5) < 0.02
        counts = np.histogram(row, 10, (0, 1))[0]
        assert ((counts - 500) ** 2 / 500).sum() < 30  # chi squared, 9 degrees of freedom


def facts(model: OnnxModel) -> dict[str, Any]:
    path = model.bundle.path
    read = {
        n: json.loads((path / f"{n}.json").read_text()) for n in ("tokenizer", "tokenizer_config")
    }
    return {
        **read,
        "special": model.tokenizer.special,
        "site": {
            "block_size": model.config.block_size,
            "chat_format": asdict(model.tokenizer.chat),
            "max_token_bytes": model.tokenizer.max_token_bytes,
        },
    }


OPEN = """
    const { Tokens } = await import("./tokens.mjs");
    const { Tokenizer } = await import("./vendor/tokenizers.min.mjs");
    const { Prompts } = await import("./prompts.js");
    const tokens = new Tokens(Tokenizer, given.tokenizer, given.tokenizer_config, given.special);
    const prompts = new Prompts(given.site, tokens);
"""


BOTH_WAYS = f"""{OPEN}
    found = given.texts.map((text) => {{
        const ids = tokens.encode(text);
        const decode = tokens.stream();
        return [ids, [...ids.map((id) => decode(id)), decode()]];
    }});
"""


def test_texts_become_our_ids_and_come_back(scripts: Path, model: OnnxModel) -> None:
    found = node(scripts, BOTH_WAYS, {**facts(model), "texts": TEXTS})
    for text, (ids, pieces) in zip(TEXTS, found):
        assert ids == model.tokenizer.encode(text), text
        assert "".join(pieces) == text and "\ufffd" not in "".join(pieces)


def test_a_vocabulary_of_a_large_models_size_is_opened(scripts: Path, model: OnnxModel) -> None:
    """Llama 3 has 128,256 tokens and Qwen 151,936, more than a call takes as arguments."""
    known = facts(model)
    vocabulary = known["tokenizer"]["model"]["vocab"]
    vocabulary |= {"a" * 20 + byte_words(i): len(vocabulary) + i for i in range(150_000)}
    code = f"{OPEN}\nfound = given.texts.map((text) => tokens.encode(text));"
    found = node(scripts, code, {**known, "texts": TEXTS})
    assert found == list(map(model.tokenizer.encode, TEXTS))


def byte_words(number: int) -> str:
    """A number in letters, which all stand for bytes."""
    return str(number).translate({48 + i: 65 + i for i in range(10)})


def test_missing_bytes_are_lost_as_in_python(scripts: Path, incomplete: Path) -> None:
    ours = read_tokenizer(incomplete, N_INCOMPLETE)
    content = json.loads((incomplete / "tokenizer.json").read_text())
    code = f"{OPEN}\nfound = given.texts.map((text) => tokens.encode(text));"
    texts = ["!\x04!", "a\x04ab", " \x04 \n", "\u65f8x", "\U00045678", "1\x041", "~", *TEXTS]
    found = node(scripts, code, {**made_elsewhere(content, ours), "texts": texts})
    assert found == list(map(ours.encode, texts))


def made_elsewhere(content: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """What OPEN needs of a tokenizer alone."""
    known = {"tokenizer": content, "special": tokenizer.special}
    return {**known, "tokenizer_config": {}, "site": {}}


@pytest.mark.parametrize("kind", PRE_TOKENIZERS)
def test_tokenizers_made_elsewhere_give_the_ids_of_python(
    kind: str, scripts: Path, trained_elsewhere: dict[str, Path]
) -> None:
    """With NFC, and with added tokens that are ordinary text, which come back."""
    ours = read_tokenizer(trained_elsewhere[kind], N_TRAINED)
    content = json.loads((trained_elsewhere[kind] / "tokenizer.json").read_text())
    content["pre_tokenizer"] = explicit(content["pre_tokenizer"])  # as the export writes it
    texts = [
        "e\u0301 <end>\u0338",
        "end|>!! 12  345 a\n \n",
        "we'LL <|stop|>",
        *TEXTS,
        *hard_texts(300),
    ]
    found = node(scripts, BOTH_WAYS, {**made_elsewhere(content, ours), "texts": texts})
    told = [[ids, "".join(pieces)] for ids, pieces in found]
    assert told == [[ids, ours.decode(ids)] for ids in map(ours.encode, texts)]


def test_conversations_become_our_prompts(scripts: Path, model: OnnxModel) -> None:
    """With a system message, cut where the context is full, with special tokens typed."""
    rng = np.random.default_rng(2)
    cases: list[list[Message]] = []
    for n in (1, 3, 9, 61):
        turns = [{"role": ("user", "assistant")[i % 2], "content": TEXTS[rng.integers(0, 7)]}
                 for i in range(n)]  # fmt: skip
        cases += [turns, [{"role": "system", "content": "Be kind. "}, *turns]]
        cases += [[*turns, {"role": "assistant", "content": "A long reply. " * 160}]]
    cases += [[{"role": "user", "content": "word " * 150_000}, cases[2][-1], *cases[0]]]
    code = f"""{OPEN}
        const chats = given.prompts.map((messages) => prompts.chat(messages, given.most));
        const wholes = given.cases.map((messages) => prompts.whole(messages, given.seen));
        found = [...chats, ...wholes];
        found.push(prompts.text("Once upon a time <|end|>"), prompts.text("word ".repeat(2000)));
        found.push(prompts.end(prompts.text("word ".repeat(2000)), 9));
    """
    for most in (16, 400):
        asked = [messages for messages in cases if messages[-1]["role"] == "user"]
        seen = most_tokens(model.bundle)
        more = {"prompts": asked, "cases": cases, "most": most, "seen": seen}
        *found, short, long, half = node(scripts, code, {**facts(model), **more})
        budget = model.config.block_size - min(most, model.config.block_size // 4)
        expected: list[tuple] = [fit(messages, model.tokenizer, budget) for messages in asked]
        expected += [ids_of_messages(model.bundle, messages) for messages in cases]
        got = [[one[key] for key in ("ids", "dropped", "cut") if key in one] for one in found]
        assert got == [list(one) for one in expected]
        assert {bool(n_cut) for _, _, n_cut in expected[len(asked) :]} == {False, True}
        opening = text_opening(model.tokenizer)
        assert short == [*opening, *model.tokenizer.encode("Once upon a time <|end|>")]
        request = completion_request(model, "word " * 2000, Sampling(), 9)
        assert long == request.ids and len(long) == model.config.block_size
        assert half == end_of_text(request.ids, opening, 9) == [*opening, *long[-8:]]


def test_a_reply_is_known_by_the_64_ids_before_it(scripts: Path, model: OnnxModel) -> None:
    """Which stand there too when older messages have been left out. It was generated as 5, 6."""
    asked = messages_of(["Hello!", "Hi!", "Tell me a story about a cat. " * 9])
    cases = [asked, asked[2:], [*asked[:2], asked[0]]]
    code = f"""{OPEN}
        const asked = (messages) => [...messages, {{ role: "assistant", content: "Once." }}];
        prompts.remember(prompts.render(given.cases[0]), [5, 6], "Once.");
        found = given.cases.map((messages) => prompts.render(asked(messages), false));
    """
    found = node(scripts, code, {**facts(model), "cases": cases})
    replies, before = Replies(), render(asked, model.tokenizer, prompt=True)
    replies.ids[replies.key(before, "Once.")] = np.array([5, 6])
    reply = {"role": "assistant", "content": "Once."}
    expected = [render([*case, reply], model.tokenizer, recall=replies.recall) for case in cases]
    assert found == expected and [ids[-3:-1] == [5, 6] for ids in found] == [True, True, False]


@pytest.mark.parametrize("content", ["", "Hi", "a" * 400])
def test_of_a_history_of_any_length_the_end_alone_is_encoded(
    content: str, scripts: Path, model: OnnxModel
) -> None:
    code = f"""{OPEN}
        const {{ encode }} = tokens;
        let n = 0;
        tokens.encode = (text) => {{
            n += text.length;
            return encode.call(tokens, text);
        }};
        const old = Array(100_000).fill({{ role: "user", content: given.content }});
        const {{ ids, dropped }} = prompts.cut([...old, {{ role: "user", content: "Bye" }}], 384);
        found = [n, ids, dropped];
    """
    n, ids, n_dropped = node(scripts, code, {**facts(model), "content": content})
    n_prompts = 10  # that are tried: every other time, half as many messages
    assert n <= n_prompts * (384 * model.tokenizer.max_token_bytes + len(content))
    messages = [*messages_of([content]) * 100_000, *messages_of(["Bye"])]
    assert (ids, n_dropped) == fit(messages, model.tokenizer, 384)


def test_white_space_around_a_message_is_what_python_takes_for_it(
    scripts: Path, model: OnnxModel
) -> None:
    texts = [f"{chr(i)}a {chr(i)}b{chr(i)}" for i in range(0x10000) if not 0xD800 <= i < 0xE000]
    code = f"""{OPEN}
        prompts.site.chat_format = {{ ...given.site.chat_format, trims: true }};
        tokens.encode = (text) => [text];
        found = given.texts.map((content) => prompts.render([{{ role: "user", content }}], false));
    """
    found = node(scripts, code, {**facts(model), "texts": ["", " \n", *texts]})
    inner = ["".join(part for part in ids if isinstance(part, str)) for ids in found]
    assert inner == ["", "", *(text.strip() for text in texts)]


def test_a_kit_trims_messages_as_python_does(scripts: Path) -> None:
    form = {"opening_alone": [], "user": [[], []], "reply": [], "trims": True}
    texts = ["\ufeff a \ufeff", "\x1c\x85 a\x1f ", "", " \n"]
    code = """
        const { Kit } = await import(given.kit);
        const kit = Object.assign(new Kit(), { contract: { chat: given.form } });
        kit.tokens = { encode: (text) => [text] };
        found = given.texts.map((content) => kit.prompt([{ role: "user", content }]));
    """
    kit = (ROOT / "examples" / "embed" / "kit.mjs").as_uri()
    found = node(scripts, code, {"kit": kit, "form": form, "texts": texts})
    assert found == [[text.strip()] for text in texts]


def test_an_empty_text_is_no_beginning_for_a_model_without_an_opening(
    scripts: Path, model: OnnxModel
) -> None:
    code = f"""{OPEN}
        found = [prompts.text("").length];
        prompts.site.chat_format.text = "";
        try {{ prompts.text(""); }} catch ({{ key }}) {{ found.push(key); }}
    """
    opening = text_opening(model.tokenizer)
    assert node(scripts, code, facts(model)) == [len(opening), "inspect.empty"]


def test_a_begun_reply_goes_on_from_our_prompt(scripts: Path, model: OnnxModel) -> None:
    messages = messages_of(["My name is Ada.", "Hello, Ada! " * 20, "Hello! " * 30] * 3)
    size = model.config.block_size
    code = f"""{OPEN}
        found = given.begun.map((n) => {{
            try {{
                return prompts.chat(given.messages, given.most, n);
            }} catch ({{ key, values }}) {{
                return {{ key, ...values }};
            }}
        }});
    """
    for most in (16, 400):
        begun, n_most = [0, 60, size // 4, size // 2, size - 100], size - 60
        given = {"messages": messages, "most": most, "begun": [*begun, n_most]}
        *found, refused = node(scripts, code, {**facts(model), **given})
        requests = [chat_request(model, messages, Sampling(), most, [5] * n) for n in begun]
        assert found == [{"ids": one.ids, "dropped": one.n_dropped} for one in requests]
        assert len({one["dropped"] for one in found}) > 2
        assert (refused["key"], refused["has"], refused["size"]) == ("told.begun", n_most, size)
        with pytest.raises(UserError, match=f"{n_most} tokens and the prompt {refused['needed']};"):
            chat_request(model, messages, Sampling(), most, [5] * n_most)
