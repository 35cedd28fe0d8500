"""Published encodings: fetched from a real server, kept, refused; and compact vocabularies."""

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiktoken.load
import tiktoken.registry
from conftest import SECONDS
from served import Quiet, served

from gptcore.checks import UserError
from gptcore.text.chat_template import loss_mask, messages_of, render
from gptcore.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from training.data import encodings
from training.data.encodings import NAMES, compact, count_ids, named_encoding

# Of tiktoken's r50k_base: a pattern other than ours.
R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CORPUS = ["Hello! How are you today?\n\n", "I'm fine, thank you.", "", "Hello  again, 日本!"]


@pytest.fixture(scope="session")
def full(tokenizer: Tokenizer) -> Tokenizer:
    """Stands for a published encoding: other ranks than bytes first, and another pattern."""
    n = len(tokenizer.ranks)
    return Tokenizer({token: n - 1 - rank for token, rank in tokenizer.ranks.items()}, R50K)


@pytest.fixture(scope="session")
def small(full: Tokenizer) -> Tokenizer:
    return compact(full, np.flatnonzero(count_ids(CORPUS, full)).tolist())


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """tiktoken as in a new process, with an empty cache folder; call it to begin again."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")

    def forget() -> None:
        monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})

    forget()
    return forget


@pytest.fixture
def server(
    full: Tokenizer, forgotten: Callable, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    """Publishes `full` as r50k_base, its hash known to tiktoken, and counts how often it is got."""
    server = SimpleNamespace(content=full.to_bytes(), n_requests=0)
    sha256 = hashlib.sha256(server.content).hexdigest()

    class Handler(Quiet):
        def do_GET(self) -> None:
            server.n_requests += 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(server.content)

    def published() -> dict[str, object]:
        ranks = tiktoken.load.load_tiktoken_bpe(server.url, sha256)
        special = {"<|endoftext|>": len(ranks)}
        return {
            "name": "r50k_base", "pat_str": R50K, "mergeable_ranks": ranks,
            "special_tokens": special,
        }  # fmt: skip

    assert set(NAMES) <= set(tiktoken.list_encoding_names())
    monkeypatch.setitem(tiktoken.registry.ENCODING_CONSTRUCTORS, "r50k_base", published)
    with served(Handler) as address:
        server.url = f"{address}/small.tiktoken"
        yield server


def test_an_encoding_is_fetched_once_and_then_read_from_the_cache(
    server: SimpleNamespace, full: Tokenizer, forgotten: Callable, tmp_path: Path
) -> None:
    for _ in range(2):
        fetched = named_encoding("r50k_base")
        assert fetched.ranks == full.ranks and fetched.pattern == R50K and fetched.kept is None
        assert fetched.sha256 == full.sha256
        forgotten()
    assert server.n_requests == 1
    (file,) = (tmp_path / "cache").iterdir()
    assert file.name == hashlib.sha1(server.url.encode()).hexdigest()


def test_a_damaged_cache_is_fetched_again(
    server: SimpleNamespace, full: Tokenizer, forgotten: Callable, tmp_path: Path
) -> None:
    named_encoding("r50k_base")
    forgotten()
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:-30])
    assert named_encoding("r50k_base").sha256 == full.sha256
    assert server.n_requests == 2


def test_a_file_with_another_hash_is_refused(server: SimpleNamespace, tmp_path: Path) -> None:
    server.content = server.content[:-30]
    with pytest.raises(UserError, match=r"r50k_base .*Hash mismatch"):
        named_encoding("r50k_base")
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_named(server: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"TIKTOKEN_CACHE_DIR is .*cache"):
        named_encoding("r50k_base")


@pytest.mark.parametrize("name", NAMES)
def test_without_cache_and_network_the_remedy_is_named(
    forgotten: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    with socket.socket() as closed:  # a port at which nothing listens
        closed.bind(("127.0.0.1", 0))
        use_proxy(monkeypatch, closed)
        with pytest.raises(UserError, match=rf"{name} .*set TIKTOKEN_CACHE_DIR to") as refusal:
            named_encoding(name)
    assert str(tmp_path / "cache") in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_network_that_never_answers_is_given_up(
    forgotten: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encodings, "TIMEOUT", 0.5)
    threads = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        use_proxy(monkeypatch, silent)
        with pytest.raises(UserError, match=r"no answer in 0\.5 seconds"):
            named_encoding("cl100k_base")
        (waiting,) = set(threading.enumerate()) - threads
        assert waiting.daemon
    waiting.join(SECONDS)  # tiktoken holds a lock until the connection breaks
    assert not waiting.is_alive()


def use_proxy(monkeypatch: pytest.MonkeyPatch, listener: socket.socket) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'cl100k'.*did you mean 'cl100k_base'.*r50k_base"):
        named_encoding("cl100k")


def test_the_tokens_of_texts_are_counted(full: Tokenizer) -> None:
    ids = [i for text in CORPUS for i in full.encode(text)]
    counts = count_ids(iter(CORPUS), full)
    assert counts.tolist() == [ids.count(i) for i in range(full.vocab_size)] and counts.max() > 1
    assert not count_ids([""], full).any()


def test_a_compact_vocabulary_splits_its_corpus_as_the_full_one_does(
    full: Tokenizer, small: Tokenizer
) -> None:
    assert 262 < small.vocab_size < full.vocab_size
    for text in CORPUS:
        assert [small.kept[i] for i in small.encode(text)] == full.encode(text)


def test_a_compact_vocabulary_has_the_used_ids_and_the_bytes(
    full: Tokenizer, small: Tokenizer
) -> None:
    singles = {full.ranks[bytes([byte])] for byte in range(256)}
    used = {i for text in CORPUS for i in full.encode(text)}
    assert set(small.kept) == used | singles
    assert small.pattern == full.pattern


def test_kept_ranks_have_ids_in_their_order_and_the_special_tokens_follow(
    full: Tokenizer, small: Tokenizer
) -> None:
    n = len(small.kept)
    assert 256 < n < len(full.ranks) == len(full.tokens)
    assert [small.ranks[token] for token in small.tokens] == small.kept == sorted(small.kept)
    assert list(small.special) == list(SPECIAL_TOKENS)
    assert list(small.special.values()) == list(range(n, n + 6)) and small.vocab_size == n + 6
    assert all(small.token_bytes(i) == b"" for i in small.special.values())
    assert small.byte_lengths.shape == (n + 6,)
    assert small.max_token_bytes == small.byte_lengths.max()


def test_conversations_are_rendered_and_masked_with_kept_ranks(small: Tokenizer) -> None:
    ids = render(messages_of(["Hello 🙂", "Hé!"]), small)
    learned = np.array(ids)[loss_mask(np.array(ids), small)].tolist()
    begin, end = small.special["<|endoftext|>"], small.special["<|end|>"]
    assert learned == [begin, *small.encode("Hé!"), end]
    assert small.decode(ids) == "Hello 🙂Hé!"
    assert {i for i in ids if i >= len(small.kept)} <= set(small.special.values())
