"""Conversations to ids: the template, what is learned from, and what is left out."""

import time

import jinja2
import numpy as np
import pytest
import tokenizers
from chatml import CHATML
from conftest import NANO
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from export.formats.hugging_face import CHAT_TEMPLATE, template_with_system, write_tokenizer_json
from gptcore.bundle import read_facts
from gptcore.checks import UserError
from gptcore.page.facts import view_facts
from gptcore.text.chat_template import Message, fit, loss_mask, messages_of, render
from gptcore.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from training.data.corpus import tokenizer_with_system

BYTES = Tokenizer({bytes([byte]): byte for byte in range(256)})  # a token is a byte
TEXT, PAD, SYSTEM, USER, ASSISTANT, END = range(256, 262)

CONTENTS = st.text(max_size=40) | st.lists(
    st.sampled_from([*SPECIAL_TOKENS, "<|", "|>", "<", "|", " ", "\n", "Hello", " there", "🙂"]),
    max_size=8,
).map("".join)


@st.composite
def conversations(draw: st.DrawFn, contents: st.SearchStrategy[str] = CONTENTS) -> list[Message]:
    """With or without a system message, then turns that end with the user's."""
    messages = [message("system", draw(contents))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 4))):
        messages += [message("user", draw(contents)), message("assistant", draw(contents))]
    return [*messages, message("user", draw(contents.filter(str.strip)))]


def message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def test_turns_are_the_users_and_the_assistants_in_turn() -> None:
    wanted = [message("user", "a"), message("assistant", "b"), message("user", "c")]
    assert messages_of(iter("abc")) == wanted and messages_of([]) == []


def test_a_conversation_is_rendered_as_the_module_says() -> None:
    messages = [message("system", "Be."), message("user", "Hi"), message("assistant", "é")]
    expected = [TEXT, SYSTEM, *b"Be.", END, USER, *b"Hi", END, ASSISTANT, 0xC3, 0xA9, END]
    assert render(messages, BYTES) == expected
    assert render(messages, BYTES, prompt=True) == [*expected, ASSISTANT]
    assert render([], BYTES) == [TEXT]


@given(messages=conversations())
def test_no_message_can_contain_a_special_token(tokenizer: Tokenizer, messages: list) -> None:
    special = [i for i in render(messages, tokenizer) if i in tokenizer.special.values()]
    names = ["<|endoftext|>"]
    for m in messages:
        names += [f"<|{m['role']}|>", "<|end|>"]
    assert special == [tokenizer.special[name] for name in names]


def test_a_reply_that_is_recalled_keeps_the_ids_it_was_generated_as() -> None:
    asked = []

    def recall(before: list[int], text: str) -> list[int] | None:
        asked.append((tuple(before), text))
        return [1, 2, 3] if text in ("one", "b") else [] if text == "none" else None

    messages = [message("user", "a"), message("assistant", "one"), message("user", "b")]
    messages += [message("assistant", "none"), message("user", "c")]
    turn = [TEXT, USER, *b"a", END, ASSISTANT]
    second = [*turn, 1, 2, 3, END, USER, *b"b", END, ASSISTANT]
    expected = [*second, END, USER, *b"c", END, ASSISTANT]
    assert render(messages, BYTES, prompt=True, recall=recall) == expected
    assert fit(messages, BYTES, 100, recall) == (expected, 0)
    # A user's words are read as any text is, whatever a reply was.
    assert (tuple(turn), "one") in asked and (tuple(second), "none") in asked
    assert {text for _, text in asked} == {"one", "none"}


# ------------------------------------------------------------------ what is learned from


def slow_mask(ids: list[int]) -> list[bool]:
    """The rule of loss_mask, token by token."""
    state, learned = "text", []
    for i in ids:
        speaks = state in ("text", "assistant")
        learned.append(speaks and (i < TEXT or i in (TEXT, END)))
        if i == TEXT:
            state = "text"
        elif i == ASSISTANT:
            state = "assistant"
        elif i > TEXT:
            state = "silent"
    return learned


WORDS = st.lists(st.integers(0, 255), max_size=6)
STREAMS = st.lists(st.integers(0, 255) | st.integers(TEXT, END), max_size=40)
DOCUMENTS = st.lists(
    conversations().map(lambda messages: render(messages, BYTES)) | WORDS.map(lambda w: [TEXT, *w]),
    min_size=2,
    max_size=6,
)


@given(ids=STREAMS)
def test_the_mask_of_any_tokens_is_that_of_the_slow_rule(ids: list[int]) -> None:
    mask = loss_mask(np.array(ids, np.uint16), BYTES)
    assert mask.dtype == bool and mask.tolist() == slow_mask(ids)


def test_the_assistants_words_and_their_end_are_learned_and_nothing_else() -> None:
    messages = [message("system", "S"), message("user", "U"), message("assistant", "AB")]
    ids = render(messages + messages[1:], BYTES)
    learned = [i for i, m in zip(ids, loss_mask(np.array(ids), BYTES), strict=True) if m]
    assert learned == [TEXT, *b"AB", END, *b"AB", END], "the first token is never a target"


def test_a_text_with_the_words_of_special_tokens_is_learned_whole(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.special["<|endoftext|>"], *tokenizer.encode("<|user|>Hi<|end|> there")]
    assert loss_mask(np.array(ids), tokenizer).all()


@given(documents=DOCUMENTS, cut=st.integers(0, 10**6))
def test_a_row_has_the_mask_that_it_has_in_the_whole_stream(documents: list, cut: int) -> None:
    """If it begins where a document does; its first token is never a target."""
    stream = np.concatenate(documents)
    whole = loss_mask(stream, BYTES)
    starts = np.cumsum([0, *map(len, documents)])[:-1]
    start = starts[cut % len(starts)]
    end = start + 1 + cut % (len(stream) - start)
    row = loss_mask(stream[start:end], BYTES)
    assert row.tolist()[1:] == whole[start + 1 : end].tolist()


# ------------------------------------------------------------------ what fits


@given(messages=conversations(), budget=st.integers(1, 200))
def test_as_few_of_the_oldest_turns_as_possible_are_left_out(messages: list, budget: int) -> None:
    system = [m for m in messages if m["role"] == "system"]
    turns = messages[len(system) :]
    options = []  # what is left when 0, 2, 4 ... messages are dropped
    for n_dropped in range(0, len(turns), 2):
        options.append((render(system + turns[n_dropped:], BYTES, prompt=True), n_dropped))
    fitting = [option for option in options if len(option[0]) <= budget]
    if fitting:
        assert fit(messages, BYTES, budget) == fitting[0]
    else:
        with pytest.raises(UserError, match="too long"):
            fit(messages, BYTES, budget)


def test_turns_are_left_out_from_the_oldest_and_the_system_message_stays() -> None:
    messages = [message("system", "S" * 10), message("user", "U" * 20)]
    messages += [message("assistant", "A" * 20), message("user", "V" * 5)]
    everything = 1 + 12 + 22 + 22 + 7 + 1
    ids, n_dropped = fit(messages, BYTES, everything)
    assert (len(ids), n_dropped) == (everything, 0)
    expected = [TEXT, SYSTEM, *b"S" * 10, END, USER, *b"V" * 5, END, ASSISTANT]
    assert fit(messages, BYTES, everything - 1) == (expected, 2)
    assert fit(messages, BYTES, len(expected)) == (expected, 2)
    with pytest.raises(UserError, match=rf"needs {len(expected)} tokens and 20 fit"):
        fit(messages, BYTES, 20)


def test_what_fits_is_counted_in_tokens_and_not_in_characters(tokenizer: Tokenizer) -> None:
    messages = [message("user", "What is my name?"), message("assistant", "You told me that.")] * 9
    messages.append(message("user", "What do you like?"))
    ids = render(messages, tokenizer, prompt=True)
    assert len(ids) < sum(len(m["content"]) for m in messages) / 1.5
    assert fit(messages, tokenizer, len(ids)) == (ids, 0)


@pytest.mark.parametrize("content", ["", "Hi", "a" * 400])
def test_of_a_history_of_any_length_the_end_alone_is_looked_at(
    tokenizer: Tokenizer, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [*[message("user", content)] * 100_000, message("user", "Bye")]
    encode, encoded = Tokenizer.encode, []

    def counted(self: Tokenizer, text: str) -> list[int]:
        encoded.append(len(text))
        return encode(self, text)

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode", counted)
        ids, n_dropped = fit(messages, tokenizer, 384)
    n_prompts = 10  # that are tried: every other time, half as many messages
    assert sum(encoded) <= n_prompts * (384 * tokenizer.max_token_bytes + len(content))
    assert len(ids) <= 384 < len(render(messages[n_dropped - 1 :], tokenizer, prompt=True))


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_huge_message_is_refused_without_encoding_it(tokenizer: Tokenizer, role: str) -> None:
    messages = [message(role, "a b " * 10_000_000), message("user", "Hi")]
    start = time.process_time()
    with pytest.raises(UserError, match=rf"{role} message is too long: it has 40,000,000 char"):
        fit(messages[:1] if role == "user" else messages, tokenizer, 200)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_a_huge_old_message_is_left_out_as_any_other(tokenizer: Tokenizer, position: int) -> None:
    messages = [message(role, "Hi") for role in ["user", "assistant"] * 2 + ["user"]]
    messages[position]["content"] = "a b " * 100_000
    ids, n_dropped = fit(messages, tokenizer, 200)
    assert n_dropped == 2 * (position // 2 + 1)
    assert ids == render(messages[n_dropped:], tokenizer, prompt=True)


@pytest.mark.parametrize("roles", [["system"], ["assistant"], ["user", "assistant"]])
def test_a_reply_may_follow_any_message(roles: list[str]) -> None:
    messages = [message(role, "Hi") for role in roles]
    assert fit(messages, BYTES, 100) == (render(messages, BYTES, prompt=True), 0)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "there is no message: send at least one"),
        ([message("user", "")], "the message is empty"),
        ([message("user", " \n\t")], "the message is empty"),
        ([message("robot", "Hi")], "message 0 has the unknown role 'robot': use system, user"),
        ([message("User", "Hi")], "message 0 has the unknown role 'User'"),
        ([message(None, "Hi")], "message 0 has the unknown role None"),
        ([message([], "Hi")], "unknown role"),
        ([message("user", None)], r"message 0 \(user\): its content is not text"),
        ([message("user", 7)], r"message 0 \(user\): its content is not text"),
        ([message("user", ["Hi"])], r"message 0 \(user\): its content is not text"),
        ([message("user", "a"), message("system", "b")], "message 1 has the role 'system'"),
        ([message("user", "a"), {"role": "user"}], "message 1 is not of the form"),
        ([{"role": "user", "content": "a", "name": "b"}], "message 0 is not of the form"),
        (["Hi"], "message 0 is not of the form"),
        ([None], "message 0 is not of the form"),
    ],
)
def test_messages_that_make_no_sense_are_named(messages: list, words: str) -> None:
    with pytest.raises(UserError, match=words):
        fit(messages, BYTES, 100)


# ------------------------------------------------------------------ the template of others


@pytest.fixture(scope="module")
def fast(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> tokenizers.Tokenizer:
    path = tmp_path_factory.mktemp("fast") / "tokenizer.json"
    write_tokenizer_json(tokenizer, path)
    return tokenizers.Tokenizer.from_file(str(path))


def templated(
    fast: tokenizers.Tokenizer, messages: list[Message], prompt: bool, usual: str = ""
) -> list[int]:
    """What other runtimes do: write the conversation as one text, then find the tokens in it."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # as transformers has
    template = environment.from_string(template_with_system(CHAT_TEMPLATE, usual))
    text = template.render(messages=messages, add_generation_prompt=prompt)
    return fast.encode(text, add_special_tokens=False).ids


@settings(max_examples=200)
@given(messages=conversations(), prompt=st.booleans())
def test_the_chat_template_of_others_gives_our_ids(
    tokenizer: Tokenizer, fast: tokenizers.Tokenizer, messages: list, prompt: bool
) -> None:
    """Where a message says `<|`, no special token comes of it, and the rest is the same."""
    ids = templated(fast, messages, prompt)
    escaped = [m | {"content": m["content"].replace("<|", "< |")} for m in messages]
    assert ids == render(escaped, tokenizer, prompt=prompt)
    special = set(tokenizer.special.values())
    ours = render(messages, tokenizer, prompt=prompt)
    assert [i for i in ids if i in special] == [i for i in ours if i in special]


# ------------------------------------------------------------------ a usual system message

ODD = 'You are "Ada",\n\tan engineer\'s friend \\n: {{ kind }}, {% brief %} – 好。'


@settings(max_examples=100)
@given(messages=conversations(), prompt=st.booleans(), usual=CONTENTS.filter(bool) | st.just(ODD))
def test_a_usual_system_message_begins_the_chats_without_one_here_and_elsewhere(
    tokenizer: Tokenizer, fast: tokenizers.Tokenizer, messages: list, prompt: bool, usual: str
) -> None:
    assume("<|" not in usual)
    ours = tokenizer_with_system(tokenizer, usual)
    assert ours.is_ours and ours.chat.usual_system == usual
    has_system = bool(messages) and messages[0]["role"] == "system"
    whole = messages if has_system else [message("system", usual), *messages]
    ids = render(messages, ours, prompt=prompt)
    assert ids == render(whole, tokenizer, prompt=prompt)
    if messages and not any("<|" in m["content"] for m in messages):
        assert templated(fast, messages, prompt, usual) == ids


def test_a_usual_system_message_is_kept_with_the_tokenizer(tokenizer: Tokenizer, tmp_path) -> None:
    ours = tokenizer_with_system(tokenizer, ODD)
    ours.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.chat, again.special, again.is_ours) == (ours.chat, tokenizer.special, True)
    assert view_facts(read_facts(NANO), tmp_path)["usual_system"] == ODD
    assert view_facts(read_facts(NANO), NANO)["usual_system"] == ""
    assert again.has_our_ids and again.sha256 == ours.sha256 != tokenizer.sha256
    turns = [message("user", "Hi"), message("assistant", "Hello!")]
    ids = np.array(render(turns, again))
    learned = again.decode(ids[loss_mask(ids, again)])
    assert learned == "Hello!", "nothing of the system message is"


@pytest.mark.parametrize("message", ["", "Say <|end|> at the end.", "Say <|x|>."])
def test_a_message_that_names_a_special_token_or_seems_to_is_not_kept(
    tokenizer: Tokenizer, message: str
) -> None:
    assert tokenizer_with_system(tokenizer, message) is tokenizer


def test_a_family_has_its_own_usual_system_message_until_it_learns_another() -> None:
    assert CHATML.usual_system == "Be helpful."
    kind = CHATML.with_usual_system("Be kind.")
    assert kind.opening_alone == "<|im_start|>system\nBe kind.<|im_end|>\n"
