"""What a training reads: the project's own dialogues if nothing is named, never by a mistake."""

from argparse import Namespace
from contextlib import chdir
from pathlib import Path

import pytest
from chatml import FOREIGN
from conftest import Refused
from token_shards import BYTES

import training.data.sources
from gptcore.config import PRESETS
from gptcore.text.chat_template import messages_of
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main
from training.commands.train import stored_bytes
from training.data.corpus import tokenizer_with_system
from training.data.shards.folder import MANIFEST, prepare
from training.data.sources import OWN, finished_shards, name_of, run_data_of
from training.data.survey import survey
from training.formats.places import find_files
from training.jobs.options import Text, read_text, tokenised
from training.run.settings import fixed_options


def test_without_a_text_the_dialogues_are_read_and_the_run_knows_it(
    tmp_path: Path,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(training.data.sources, "N_DIALOGUES", 60)
    options = Namespace(text=[], shards=None, full_vocabulary=False, tokenizer=None)
    text = read_text(options, seed=1)
    assert "no text is named, so 60 made-up dialogues are read" in capsys.readouterr().out
    tokenizer.save(tmp_path / "tokenizer")
    shards = tokenised(options, text, tmp_path, PRESETS["tiny"], str(tmp_path / "tokenizer"))
    data = run_data_of(shards, text.source, text.datasets)
    assert data.source == "60 made-up dialogues" and data.datasets == {"dialogues": 1.0}


def test_shards_for_a_model_made_elsewhere_have_its_whole_tokenizer(tmp_path: Path) -> None:
    """Without its chat format they would have another one than --init of that model."""
    FOREIGN.save(tmp_path / "theirs")
    (tmp_path / "text.txt").write_text("A line of a text.\n" * 300)
    words = ["shards", "text.txt", "--tokenizer", "theirs", "--shards", "made"]
    with chdir(tmp_path):
        assert main(words) == 0
        [manifest] = Path("made").rglob(MANIFEST)
        shards = finished_shards(str(manifest.parent), tmp_path, "theirs")
    assert shards.tokenizer.special == FOREIGN.special and not shards.tokenizer.is_ours
    options = Namespace(text=[], shards=str(tmp_path / manifest.parent))
    assert stored_bytes(options) == 300 * len("A line of a text.\n"), "which choose the preset"


def test_of_held_out_conversations_the_replies_are_counted(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    chats = [messages_of([f"{n} is a number. " * 20 + "Is it even?", "Yes."]) for n in range(60)]
    shards = prepare(lambda: iter(chats), tmp_path, 512, tokenizer, held_out=0.5)
    n_chats = sum(len(shard.starts) for shard in shards.split("val"))
    data = run_data_of(shards, "chats")
    assert data.held_out_tokens == n_chats * len([*tokenizer.encode("Yes."), "<|end|>"])
    assert data.held_out_bytes == n_chats * len("Yes.")
    assert data.few_held_out and shards.manifest["splits"]["val"]["n_tokens"] > 2000


@pytest.mark.parametrize("name", [None, "tokenizer"])  # which is to be trained, or given
@pytest.mark.parametrize(("letters", "is_kept"), [(42, True), (43, False)])
def test_a_system_message_of_more_than_a_third_of_the_context_is_not_kept(
    letters: int,
    is_kept: bool,
    name: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    system = {"role": "system", "content": ("ж" if name else "жжж") * letters}  # two bytes each
    chats = [[system, *messages_of([f"What is {n}?", f"It is {n}."])] for n in range(20)]
    text = Text(lambda: chats, "chats", survey(lambda: chats), seconds=0.0)
    place = str(tmp_path / name) if name else None
    options = Namespace(text=["chats"], shards=None, full_vocabulary=False, tokenizer=place)
    tokenizer_with_system(BYTES, "Be old.").save(tmp_path / "tokenizer")  # another model's
    shards = tokenised(options, text, tmp_path, PRESETS["tiny"], place or OWN)
    assert shards.tokenizer.chat.usual_system == is_kept * system["content"]
    note = "note: the chats' system message is too long to be kept in a context of 256 tokens: "
    assert (note in capsys.readouterr().out) is not is_kept


@pytest.mark.parametrize("command", [[], ["shards"]], ids=["train", "shards"])
def test_shards_that_are_not_there_are_not_made_of_other_texts(
    command: list[str], tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "made").mkdir()
    out = [] if command else ["--out", tmp_path / "run"]
    for name in ("mode", "made"):  # mistyped; and a folder of shards that are not joined
        said = refused(main, *command, "--shards", tmp_path / name, *out)
        if command:
            assert f"{name}: name the texts, too" in said
        else:
            assert f"{name} holds no finished token shards: name the folder that" in said
            assert ("did you mean" in said) == (name == "mode")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_run_records_names_as_it_did_when_there_was_one() -> None:
    assert fixed_options(Namespace(me=["Ben"], columns=None, out="run")) == {"me": "Ben"}
    assert fixed_options(Namespace(me=["Ben", "B."])) == {"me": "Ben; B."}


def test_of_a_run_on_many_files_the_first_are_named(tmp_path: Path) -> None:
    for i in range(1022):
        (tmp_path / f"{i:04}.txt").touch()
    name = name_of(find_files([tmp_path]))
    assert name.startswith("0000.txt, 0001.txt, ") and name.endswith("19.txt, 1,002 more files")
