"""The tokenizer: what goes in comes out, and the other library yields the same ids."""

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from export.formats.hugging_face import write_tokenizer_json
from export.kit.hard_texts import FRAGMENTS
from gptcore.checks import UserError
from gptcore.system.files import file_sha256
from gptcore.text.chat_format import ChatFormat
from gptcore.text.tokenizer import FACTS_NAME, FILE_NAME, SPECIAL_TOKENS, Tokenizer

SINGLES = {bytes([byte]): byte for byte in range(256)}
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join))
PLAIN_TEXTS = TEXTS.filter(lambda text: not any(name in text for name in SPECIAL_TOKENS))
SPECIAL_TEXTS = st.lists(st.sampled_from([*SPECIAL_TOKENS, "<|", *FRAGMENTS])).map("".join)


@pytest.fixture(scope="session")
def pairs() -> Tokenizer:
    """Every two bytes make a token, so that any other split of a text gives other ids."""
    tokens = [bytes([a, b]) for a in range(256) for b in range(256)]
    random.Random(0).shuffle(tokens)
    return Tokenizer(SINGLES | {token: 256 + i for i, token in enumerate(tokens)})


@pytest.fixture(scope="session")
def third(tokenizer: Tokenizer) -> Tokenizer:
    """Every third rank of that tokenizer, and the bytes; split at white space alone."""
    kept = [r for t, r in tokenizer.ranks.items() if len(t) == 1 or r % 3 == 0]
    return Tokenizer(tokenizer.ranks, r"\s+|\S+", sorted(kept))


@pytest.fixture(scope="session")
def peers(
    tokenizer: Tokenizer, pairs: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Tokenizer, tokenizers.Tokenizer]]:
    """Each tokenizer with the one that the `tokenizers` library reads from our tokenizer.json."""
    folder = tmp_path_factory.mktemp("tokenizers")
    result = []
    for i, ours in enumerate((tokenizer, pairs)):
        write_tokenizer_json(ours, folder / f"{i}.json")
        result.append((ours, tokenizers.Tokenizer.from_file(str(folder / f"{i}.json"))))
    return result


@given(text=TEXTS | SPECIAL_TEXTS)
def test_any_text_comes_back_as_it_was(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text


@settings(max_examples=300)
@given(text=PLAIN_TEXTS)
def test_the_tokenizers_library_reads_tokenizer_json_to_the_same_ids(
    peers: list, text: str
) -> None:
    """That library finds special tokens in any text, so these have none."""
    for ours, theirs in peers:
        ids = ours.encode(text)
        assert theirs.encode(text, add_special_tokens=False).ids == ids
        assert theirs.decode(ids) == text


@pytest.mark.slow
def test_every_character_splits_alike_in_both_libraries(peers: list) -> None:
    """All but Chinese and Korean ones, between letters, digits, spaces and at the end."""
    ours, theirs = peers[1]
    points = [*range(0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x12000)]
    texts = ["a{0}b {0}{0} {0}1{0}\n{0}'".replace("{0}", chr(c)) for c in points]
    encodings = theirs.encode_batch(texts, add_special_tokens=False)
    for point, text, encoding in zip(points, texts, encodings, strict=True):
        assert encoding.ids == ours.encode(text), hex(point)


def test_the_other_library_knows_the_special_tokens_by_the_same_ids(peers: list) -> None:
    for ours, theirs in peers:
        assert {name: theirs.token_to_id(name) for name in SPECIAL_TOKENS} == ours.special
        assert theirs.get_vocab_size() == ours.vocab_size


def test_the_special_tokens_are_the_last_ids_in_their_order(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 512
    assert [tokenizer.special[name] for name in SPECIAL_TOKENS] == list(range(506, 512))


@given(text=SPECIAL_TEXTS)
def test_a_user_cannot_type_a_special_token(tokenizer: Tokenizer, text: str) -> None:
    assert not set(tokenizer.encode(text)) & set(tokenizer.special.values())


@given(ids=st.lists(st.integers(0, 511)))
def test_streamed_pieces_make_up_the_decoded_text(tokenizer: Tokenizer, ids: list[int]) -> None:
    """For any ids, also those that are no UTF-8 together."""
    stream = tokenizer.stream()
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) + stream.finish() == tokenizer.decode(ids)


@given(text=TEXTS.filter(lambda text: "\ufffd" not in text))
def test_a_character_split_over_tokens_is_streamed_whole(tokenizer: Tokenizer, text: str) -> None:
    stream = tokenizer.stream()
    pieces = [stream.push(i) for i in tokenizer.encode(text)]
    assert "".join(pieces) == text and stream.finish() == ""
    assert not any("\ufffd" in piece for piece in pieces)


def test_special_tokens_are_left_out_of_decoded_text(tokenizer: Tokenizer) -> None:
    special = list(tokenizer.special.values())
    assert tokenizer.decode([*special, *tokenizer.encode("Hi"), *special]) == "Hi"


def test_special_tokens_are_shown_by_their_names(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.special["<|user|>"], *tokenizer.encode("hé"), tokenizer.special["<|end|>"]]
    assert tokenizer.show(ids) == "<|user|>hé<|end|>"


def test_byte_lengths_are_those_of_the_tokens(tokenizer: Tokenizer) -> None:
    lengths = tokenizer.byte_lengths
    assert lengths.shape == (512,) and lengths.max() == tokenizer.max_token_bytes > 4
    text = "Grüße, my name is 日本語 🙂"
    assert lengths[tokenizer.encode(text)].sum() == len(text.encode())
    assert not lengths[list(tokenizer.special.values())].any()
    smile = Tokenizer(SINGLES | {b"\xf0\x9f": 256, "🙂".encode()[:3]: 257, "🙂".encode(): 258})
    assert smile.byte_lengths.tolist() == [1] * 256 + [2, 3, 4] + [0] * 6
    assert smile.encode("🙂") == [258]


@pytest.mark.parametrize("unit", [" ", "a", "\n", "1", "'", " a", "🙂", "\u3000"])
def test_a_million_times_the_same_is_encoded_in_good_time(tokenizer: Tokenizer, unit: str) -> None:
    text = unit * 1_000_000
    start = time.process_time()
    ids = tokenizer.encode(text)
    assert time.process_time() - start < 10
    assert len(ids) * tokenizer.max_token_bytes >= 1_000_000
    assert text.startswith(tokenizer.decode(ids[:999]).rstrip("\ufffd"))


@pytest.mark.parametrize("unit", [" ", "\n", "\u3000", " \t"])
def test_a_million_spaces_before_a_word_are_refused_and_no_panic(
    tokenizer: Tokenizer, unit: str
) -> None:
    text = "a" + unit * 1_000_000 + "b"
    with pytest.raises(UserError, match="white space in a row"):
        tokenizer.encode(text)
    assert tokenizer.encode("a" + unit * 200_000 + "b")


@pytest.mark.parametrize("place", ["nowhere", "a_file"])
def test_a_missing_file_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "a_file").write_text("not a folder")
    with pytest.raises(UserError, match=r"no tokenizer at .*tokenizer\.tiktoken"):
        Tokenizer.load(tmp_path / place)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: data.index(b"\n", len(data) // 2) - 2],  # not at the end of a line
        lambda data: data[:-30],
        lambda data: data.replace(b" 300\n", b" 301\n"),
        lambda data: data.replace(b" 300\n", b"\n"),
        lambda data: data.replace(b" 300\n", b" x\n"),
        lambda data: data.replace(b" 300\n", b" -300\n"),
        lambda data: data.replace(b"==", b"="),
        lambda data: b"\xff\xfe\x00" + data,
        lambda data: data + b"\n",
        lambda data: data + data.splitlines(keepends=True)[-1].replace(b" 505", b" 506"),
        lambda data: b"{}",
        lambda data: b"",
    ],
    ids=["half", "cut", "twice", "no-rank", "word", "negative", "base64", "bytes", "blank",
         "same-token", "json", "empty"],
)  # fmt: skip
def test_a_damaged_file_is_named(tokenizer: Tokenizer, tmp_path: Path, damage) -> None:
    tokenizer.save(tmp_path)
    path = tmp_path / FILE_NAME
    data = damage(path.read_bytes())
    assert data != path.read_bytes()
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"tokenizer\.tiktoken"):
        Tokenizer.load(tmp_path)


@given(text=TEXTS | SPECIAL_TEXTS)
def test_a_token_that_is_not_kept_becomes_its_bytes(
    tokenizer: Tokenizer, third: Tokenizer, text: str
) -> None:
    """The slow reference goes from bytes to bytes."""
    whole = Tokenizer(tokenizer.ranks, third.pattern)
    expected = []
    for token in map(whole.token_bytes, whole.encode(text)):
        is_kept = tokenizer.ranks[token] in third.kept
        expected += [token] if is_kept else [bytes([byte]) for byte in token]
    ids = third.encode(text)
    assert [third.tokens[i] for i in ids] == expected
    assert third.decode(ids) == text
    stream = third.stream()
    assert "".join(map(stream.push, ids)) + stream.finish() == text
    assert third.byte_lengths[ids].sum() == len(text.encode())


def test_the_pattern_decides_where_tokens_may_merge() -> None:
    ranks = SINGLES | {b"a b": 257, b" b": 256}
    assert Tokenizer(ranks).encode("a b") == [97, 256]
    assert Tokenizer(ranks, r"(?s).+").encode("a b") == [257]


def test_a_pattern_and_kept_ranks_are_saved_and_hashed(
    tokenizer: Tokenizer, third: Tokenizer, tmp_path: Path
) -> None:
    ranks = tokenizer.ranks
    all_of_them = [
        tokenizer, third, Tokenizer(ranks, third.pattern), Tokenizer(ranks, kept=third.kept),
        Tokenizer(ranks, kept=third.kept[:-1]), Tokenizer(ranks, kept=range(len(ranks))),
    ]  # fmt: skip
    assert len({each.sha256 for each in all_of_them}) == len(all_of_them)
    text = "Hello, how are you? I'm 日本語 🙂"
    for each in all_of_them:
        each.save(tmp_path / "a" / "b")
        loaded = Tokenizer.load(tmp_path / "a" / "b")
        assert loaded.ranks == each.ranks and loaded.pattern == each.pattern
        assert loaded.kept == each.kept and loaded.special == each.special
        assert loaded.sha256 == each.sha256
        assert loaded.encode(text) == each.encode(text)


OTHER_IDS = {name: i for i, name in enumerate(SPECIAL_TOKENS)}
OWN_IDS = {name: 256 + i for i, name in enumerate(SPECIAL_TOKENS)}


@pytest.mark.parametrize(
    ("special", "chat"), [(OTHER_IDS, ChatFormat()), (OWN_IDS, ChatFormat(trims=True))]
)
def test_our_names_with_other_ids_or_another_format_are_saved(
    special: dict[str, int], chat: ChatFormat, tmp_path: Path
) -> None:
    tokenizer = Tokenizer(SINGLES, special=special, chat=chat)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.special, again.chat, again.is_ours) == (special, chat, False)
    assert again.encode("a") == tokenizer.encode("a")
    assert Tokenizer(SINGLES, special=OWN_IDS).is_ours


def test_a_tokenizer_without_special_tokens_is_refused() -> None:
    with pytest.raises(UserError, match="no special token, so nothing could end a text"):
        Tokenizer(SINGLES, special={})


def test_an_ordinary_tokenizer_is_its_rank_file_alone(
    tokenizer: Tokenizer, third: Tokenizer, tmp_path: Path
) -> None:
    """Also in a folder where another one was."""
    third.save(tmp_path)
    assert (tmp_path / FACTS_NAME).exists() and third.facts
    tokenizer.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME] and not tokenizer.facts
    assert tokenizer.sha256 == file_sha256(tmp_path / FILE_NAME)


@pytest.mark.parametrize(
    "facts",
    [
        "", "{", "[]", "0", '"a"', "[" * 100_000, "\ud83c",
        {}, {"pattern": "a"}, {"kept": None}, {"pattern": "a", "kept": None, "more": 1},
        {"pattern": None, "kept": None}, {"pattern": ["a"], "kept": None},
        {"pattern": "(", "kept": None},
        {"pattern": "a", "kept": {}}, {"pattern": "a", "kept": 300}, {"pattern": "a", "kept": "a"},
        {"pattern": "a", "kept": [*range(256), "256"]}, {"pattern": "a", "kept": [[1], [2, 3]]},
        {"pattern": "a", "kept": None, "special": {"b": 0}, "chat": []},
        {"pattern": "a", "kept": None, "special": {}, "chat": {}},
        {"pattern": "a", "kept": None, "special": {}, "chat": {"user": 5}},
        {"pattern": "a", "kept": None, "special": {}, "chat": {"user": ["a", 5]}},
        {"pattern": "a", "kept": [*range(256), 300.5]}, {"pattern": "a", "kept": [None]},
    ],
    ids=lambda facts: str(facts)[:20],
)  # fmt: skip
def test_damaged_facts_are_named(tokenizer: Tokenizer, tmp_path: Path, facts: object) -> None:
    tokenizer.save(tmp_path)
    text = facts if isinstance(facts, str) else json.dumps(facts)
    (tmp_path / FACTS_NAME).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError, match=r"tokenizer\.facts\.json") as refusal:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ([*range(256), 300, 300], "do not ascend"),
        ([*range(256), 301, 300], "do not ascend"),
        ([-1, *range(256)], "do not ascend"),
        ([*range(256), 506], "do not ascend within 0 to 505"),
        ([*range(256), 2**63], "kept ranks"),
        ([*range(256), 2**70], "kept ranks"),
        (np.arange(256.0), "whole numbers"),
        ([], "whole numbers"),
        (np.arange(0), "lack the single bytes"),
        (range(1, 506), "lack the single bytes"),
    ],
)
def test_kept_ranks_that_leave_a_text_unwritable_or_ambiguous_are_refused(
    tokenizer: Tokenizer, kept, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Tokenizer(tokenizer.ranks, kept=kept)


@pytest.mark.parametrize(
    "ranks",
    [
        {},
        {b"a": 0},
        SINGLES | {b"ab": 257},
        SINGLES | {b"ab": 255},
        {b"x" + token: rank for token, rank in SINGLES.items()},
    ],
    ids=["none", "one", "gap", "twice", "no-bytes"],
)
def test_ranks_that_are_no_vocabulary_are_refused(ranks: dict[bytes, int]) -> None:
    with pytest.raises(UserError, match="ranks"):
        Tokenizer(ranks)


def test_a_short_text_yields_fewer_tokens_than_asked_for() -> None:
    texts = ["hello world, hello words and worlds"] * 3
    reachable = Tokenizer.train(texts, 5000).vocab_size
    assert 262 < reachable < 5000
    assert Tokenizer.train(texts, reachable).tokens == Tokenizer.train(texts, 5000).tokens


@pytest.mark.parametrize("vocab_size", [261, 0, -1])
def test_a_vocabulary_too_small_for_the_bytes_is_refused(vocab_size: int) -> None:
    with pytest.raises(UserError, match=f"vocab_size={vocab_size} is too small.*at least 262"):
        Tokenizer.train(["hello"], vocab_size)
    assert Tokenizer.train(["hello"], 262).vocab_size == 262


def test_training_twice_gives_the_same_tokenizer_and_merges_what_is_frequent() -> None:
    texts = ["low lower lowest"] * 9 + ["new newer newest"] * 5
    first, second = Tokenizer.train(texts, 272), Tokenizer.train(iter(texts), 272)
    assert first.ranks == second.ranks
    assert len(first.encode("low")) == 1 and len(first.encode("xyz")) == 3
