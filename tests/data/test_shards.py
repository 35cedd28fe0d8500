"""Documents to token shards: what is in them, when they are made again, and how they split."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise, product
from pathlib import Path

import numpy as np
import pytest
import tiktoken

import training.data.shards.folder
import training.data.shards.shard
from gptcore.checks import UserError
from gptcore.text.chat_template import messages_of
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import Corpus, Document, read_documents
from training.data.encodings import compact
from training.data.shards.folder import Shards, load_shards, prepare, sample_texts
from training.data.shards.shard import ShardWriter
from training.data.shards.tokenising import tokenise
from training.data.sources import finished_shards, run_data_of
from training.data.survey import survey
from training.formats.places import find_files
from training.run.facts import FEW_HELD_OUT

BYTES = Tokenizer({bytes([b]): b for b in range(256)})


@pytest.fixture(scope="module")
def corpus(chats: Path) -> Corpus:
    """Conversations, and some plain texts between them."""
    found = list(islice(read_documents(find_files([chats])), 150))
    found[::10] = [f"Plain text number {i}, Grüße 🌍.\n" for i in range(15)]
    return lambda: iter(found)


@pytest.fixture
def shards(corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer) -> Shards:
    return prepare(corpus, tmp_path, 512, tokenizer)


def words_of(document: Document) -> str:
    texts = [document] if isinstance(document, str) else [m["content"] for m in document]
    return "".join(texts)


def documents_in(shards: Shards, split: str) -> list[list[int]]:
    return [
        shard[start:end].tolist()
        for shard in shards.split(split)
        for start, end in pairwise([*shard.starts.tolist(), len(shard)])
    ]


def snapshot(folder: Path) -> dict[Path, tuple[int, int]]:
    """When each file was last changed, and which file it is."""
    found = ((p, p.stat()) for p in folder.rglob("*"))
    return {path: (stat.st_mtime_ns, stat.st_ino) for path, stat in found}


def contents(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_decoding_the_shards_gives_back_the_corpus_in_order(shards: Shards, corpus: Corpus) -> None:
    found = survey(corpus)
    held_out = [words_of(d) for d in corpus() if found.is_validation(d)]
    others = [words_of(d) for d in corpus() if not found.is_validation(d)]
    for split, expected in (("train", others + held_out), ("val", held_out)):  # which are few
        ids = documents_in(shards, split)
        assert [shards.tokenizer.decode(document) for document in ids] == expected
        assert {document[0] for document in ids} == {shards.tokenizer.special["<|endoftext|>"]}
        n_tokens = shards.manifest["splits"][split]["n_tokens"]
        assert n_tokens == sum(map(len, ids)) > 0


def test_the_manifest_counts_the_corpus(shards: Shards, corpus: Corpus) -> None:
    found = survey(corpus)
    assert shards.manifest["n_documents"] == 150
    assert shards.manifest["n_chats"] == 135
    assert shards.manifest["n_bytes"] == found.n_bytes
    assert shards.manifest["corpus_sha256"] == found.sha256
    assert shards.is_chat


def test_without_a_tokenizer_one_of_the_wanted_size_is_trained(
    corpus: Corpus, tmp_path: Path
) -> None:
    shards = prepare(corpus, tmp_path, 300)
    assert shards.tokenizer.vocab_size == 300
    ids = np.concatenate([shard[:] for shard in shards.split("train")])
    assert 256 < ids.max() < 300


def test_no_held_out_text_trains_the_tokenizer(corpus: Corpus) -> None:
    found = survey(corpus)
    texts = set(sample_texts(corpus, found))
    kept = [d for d in corpus() if isinstance(d, str)]
    assert texts & set(kept) == {d for d in kept if not found.is_validation(d)}
    assert len(texts) < found.n_documents


def test_a_large_corpus_is_sampled_for_the_tokenizer(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = survey(corpus)
    monkeypatch.setattr(training.data.shards.folder, "TOKENIZER_BYTES", found.n_bytes // 4)
    sampled = sum(len(text.encode()) for text in sample_texts(corpus, found))
    assert 0.1 * found.n_bytes < sampled < 0.4 * found.n_bytes


def test_a_second_call_finds_the_shards_and_does_no_work(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(corpus, tmp_path, 300)
    before = snapshot(tmp_path)
    monkeypatch.setattr(Tokenizer, "train", None)
    monkeypatch.setattr(training.data.shards.folder, "write_shards", None)
    second = prepare(corpus, tmp_path, 300)
    assert second.path == first.path and second.manifest == first.manifest
    assert snapshot(tmp_path) == before


def test_another_text_vocabulary_or_tokenizer_makes_other_shards(
    corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    def shorter() -> Iterable[Document]:
        return islice(corpus(), 149)

    made = [
        prepare(text, tmp_path, size, given)
        for text, (size, given) in product(
            (corpus, shorter), ((300, None), (301, None), (512, tokenizer), (512, BYTES))
        )
    ]
    assert len({shards.path for shards in made}) == 8


def test_shards_that_two_want_at_once_are_made_once(
    corpus: Corpus, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ThreadPoolExecutor(2) as both:
        made = [both.submit(prepare, corpus, tmp_path, 512, tokenizer) for _ in range(2)]
        first, second = (shards.result() for shards in made)
    assert first.path == second.path and contents(first.path)
    assert capsys.readouterr().out.count("tokenising 150 documents") == 1


@pytest.mark.parametrize("damage", ["flip", "truncate", "no file", "no manifest", "{", "[]"])
def test_damaged_shards_are_made_again(
    shards: Shards,
    corpus: Corpus,
    tokenizer: Tokenizer,
    damage: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sound = contents(shards.path)
    ids, starts = shards.path / "train-00000.bin", shards.path / "val-00000.starts.npy"
    match damage:
        case "flip":
            data = bytearray(sound[ids])
            data[1001] ^= 4
            ids.write_bytes(data)
        case "truncate":
            ids.write_bytes(sound[ids][:-2])
        case "no file":
            starts.unlink()
        case "no manifest":
            (shards.path / "manifest.json").unlink()
        case manifest:
            (shards.path / "manifest.json").write_text(manifest)
    with pytest.raises(UserError, match=r"are (damaged|missing)"):
        load_shards(shards.path)
    capsys.readouterr()
    prepare(corpus, shards.path.parent, 512, tokenizer)
    assert contents(shards.path) == sound
    assert "writing them again" in capsys.readouterr().out


def test_small_shards_hold_whole_documents_and_together_all_of_them(
    shards: Shards,
    corpus: Corpus,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training.data.shards.shard, "SHARD_TOKENS", 1000)
    small = prepare(corpus, tmp_path / "small", 512, tokenizer)
    parts = small.split("train")
    assert len(parts) > 5
    endoftext = tokenizer.special["<|endoftext|>"]
    for shard in parts:
        assert shard.starts.tolist() == np.flatnonzero(shard[:] == endoftext).tolist()
        assert shard.starts[0] == 0 and 0 < len(shard) <= 1000
    for split in ("train", "val"):
        assert documents_in(small, split) == documents_in(shards, split)


@pytest.mark.parametrize("n_words", [900, 1100])
def test_what_is_held_out_is_learned_if_it_is_too_little_to_measure_on(
    tokenizer: Tokenizer, tmp_path: Path, n_words: int
) -> None:
    texts = [f"{i} " + "word " * n_words for i in range(4)]
    n_tokens = len(tokenizer.encode(texts[0]))
    texts = [text[: len(text) * n_words // n_tokens] for text in texts]  # a word is some tokens
    shards = prepare(lambda: texts, tmp_path, 0, tokenizer)
    [held_out], learned = documents_in(shards, "val"), documents_in(shards, "train")
    assert (len(held_out) < FEW_HELD_OUT) == (held_out in learned) == (n_words == 900)
    assert len(learned) == 3 + (n_words == 900)


def test_of_a_table_the_tokens_with_a_loss_decide_whether_what_is_held_out_is_learned(
    tmp_path: Path,
) -> None:
    """Its questions are no tokens to measure on."""
    table = [
        messages_of([f"What is the number {i} called? " * 4, f"It is {i}."]) for i in range(99)
    ]
    shards = prepare(lambda: table, tmp_path, 0, BYTES, held_out=0.1)
    held_out, learned = documents_in(shards, "val"), documents_in(shards, "train")
    assert sum(map(len, held_out)) > FEW_HELD_OUT, "with the questions"
    assert run_data_of(shards, "a table").few_held_out
    assert len(learned) == 99 and all(document in learned for document in held_out)


def test_ids_over_65535_are_written_in_four_bytes(tmp_path: Path) -> None:
    pairs = [bytes(pair) for pair in product(range(256), repeat=2)]
    large = Tokenizer({t: i for i, t in enumerate([bytes([b]) for b in range(256)] + pairs)})
    texts = [f"Text number {i}" for i in range(40)]
    shards = prepare(lambda: texts, tmp_path, 0, large)
    assert shards.manifest["dtype"] == "uint32"
    ids = documents_in(shards, "train")
    assert max(map(max, ids)) == large.special["<|endoftext|>"] == 65_792
    assert sorted(map(large.decode, ids)) == sorted(texts)


def test_ids_of_a_usual_vocabulary_are_written_in_two_bytes(shards: Shards) -> None:
    n_tokens = shards.manifest["splits"]["train"]["n_tokens"]
    assert (shards.path / "train-00000.bin").stat().st_size == 2 * n_tokens


def test_documents_keep_their_order_on_all_cores(tokenizer: Tokenizer) -> None:
    lengths = [1 + 997 * i % 400 for i in range(3000)]
    texts = [f"{i} " * n for i, n in enumerate(lengths)]
    made = list(tokenise(iter(texts), tokenizer, "uint16"))
    assert [tokens.document for tokens in made] == texts
    endoftext = tokenizer.special["<|endoftext|>"]
    expected = [[endoftext, *tokenizer.encode(tokens.document)] for tokens in made[::50]]
    assert [tokens.ids.tolist() for tokens in made[::50]] == expected


def test_processes_and_threads_encode_alike(
    corpus: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.data.shards.tokenising, "CHUNK_CHARACTERS", 500)
    by_threads, by_processes = [
        [(made.document, made.ids.tolist(), made.unlearned) for made in found]
        for few in (10**9, 1)
        if not monkeypatch.setattr(training.data.shards.tokenising, "FEW_CHUNKS", few)
        for found in [tokenise(corpus(), tokenizer, "uint16")]
    ]
    assert by_threads == by_processes and len(by_threads) == 150


def test_a_corpus_that_breaks_off_leaves_no_shards(tmp_path: Path) -> None:
    n_passes = 0

    def corpus() -> Iterable[Document]:
        nonlocal n_passes
        n_passes += 1
        yield from (f"Text number {i}" for i in range(40))
        if n_passes == 2:
            raise UserError("the disk is gone")

    with pytest.raises(UserError, match="the disk is gone"):
        prepare(corpus, tmp_path, 0, BYTES)
    assert n_passes == 2 and [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_texts_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    passes = iter([40, 40, 41])

    def corpus() -> Iterable[Document]:
        yield from (f"Text number {i}" for i in range(next(passes)))

    with pytest.raises(UserError, match="changed while they were read: run the command"):
        prepare(corpus, tmp_path, 300)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_shards_of_a_published_tokenizer_are_taken_with_and_without_its_name(
    corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though they keep only the ids that their text uses."""
    for name, published in (("cl100k_base", tokenizer), ("r50k_base", BYTES)):
        encoding = tiktoken.Encoding(
            name, pat_str=published.pattern, mergeable_ranks=published.ranks, special_tokens={}
        )
        monkeypatch.setitem(tiktoken.registry.ENCODINGS, name, encoding)
    made = prepare(corpus, tmp_path, 0, compact(tokenizer, range(300)))
    for name in ("cl100k_base", None):
        assert finished_shards(made.location, tmp_path, name).manifest == made.manifest
    with pytest.raises(UserError, match="have another tokenizer than r50k_base"):
        finished_shards(made.location, tmp_path, "r50k_base")


def test_the_system_message_of_nearly_all_chats_begins_those_without_one(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be kind."}
    chats = [messages_of([f"What is {n}?", f"It is {n}."]) for n in range(20)]
    documents: list[Document] = [chats[0], *([system, *chat] for chat in chats[1:])]
    made = prepare(lambda: documents, tmp_path / "made", 0, BYTES)
    assert made.tokenizer.chat.usual_system == "Be kind."
    ids = made.split("train")[0][:]
    n_written = made.tokenizer.show(ids).count("<|system|>")
    assert n_written == len(made.split("train")[0].starts) == 20
    BYTES.save(tmp_path / "model")  # whose tokenizer is told no system message
    assert finished_shards(made.location, tmp_path, str(tmp_path / "model")).path == made.path
    plain = prepare(lambda: chats, tmp_path / "plain", 0, BYTES)
    made.tokenizer.save(tmp_path / "kind")  # and one that is told another than the shards'
    assert finished_shards(plain.location, tmp_path, str(tmp_path / "kind")).path == plain.path


@pytest.mark.parametrize("texts", [[], ["a single document " * 9], ["equal", "equal"]])
def test_a_corpus_without_two_documents_is_refused(tmp_path: Path, texts: list[str]) -> None:
    with pytest.raises(UserError, match=r"too short: \d+ bytes in \d documents?;"):
        prepare(lambda: texts, tmp_path, 0, BYTES)
    assert list(tmp_path.iterdir()) == []


def test_a_shard_reads_any_part_of_its_ids(shards: Shards) -> None:
    [shard] = shards.split("train")
    ids = np.fromfile(shards.path / "train-00000.bin", np.uint16)
    for part in (slice(None), slice(7, 40), slice(len(ids) - 3, None), slice(5, 5), slice(9, 2)):
        assert shard[part].tolist() == ids[part].tolist()


def test_a_shard_that_is_cut_short_while_in_use_is_an_error(shards: Shards) -> None:
    [shard] = shards.split("train")
    (shards.path / "train-00000.bin").write_bytes(b"\0" * 20)
    assert shard[:10].tolist() == [0] * 10
    with pytest.raises(UserError, match="was cut short while it was in use"):
        shard[5:15]


def test_the_manifest_notes_the_size_of_every_file(shards: Shards) -> None:
    noted = json.loads((shards.path / "manifest.json").read_text())["bytes"]
    files = {p.relative_to(shards.path).as_posix(): p for p in shards.path.rglob("*.*")}
    assert noted == {n: p.stat().st_size for n, p in files.items() if n != "manifest.json"}


def test_a_shard_that_is_written_again_keeps_nothing_of_what_was_not_learned(
    tmp_path: Path,
) -> None:
    for unlearned in ([(1, 3)], []):
        writer = ShardWriter(tmp_path, "train")
        writer.add(np.arange(5, dtype=np.uint16), unlearned)
        writer.finish()
    assert not (tmp_path / "train-00000.unlearned.npy").exists()
