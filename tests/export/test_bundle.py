"""The model folder: whatever is missing, damaged or changed is named before anything runs."""

import errno
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnx
import pytest
from conftest import NANO, ROOT, Refused
from trained import without_serving

from export.folder.replace import check_model_folder, replacing
from gptcore import bundle as bundle_module
from gptcore.__main__ import main as app_main
from gptcore.bundle import (
    CARD,
    FACTS,
    INSPECT,
    ONNX,
    SERVING,
    SOURCE_TOKENIZER,
    VARIANTS,
    WEIGHTS,
    add_files,
    data_file,
    load_bundle,
    read_facts,
    say_if_large,
    write_facts,
)
from gptcore.checks import UserError
from gptcore.config import PRESETS
from gptcore.facts import ModelFacts
from gptcore.model import load_model
from gptcore.system.files import (
    exchange,
    file_sha256,
    files_in,
    flush_to_disk,
    new_file,
    new_folder,
    write_whole,
)
from gptcore.text.tokenizer import FACTS_NAME, FILE_NAME, Tokenizer


@pytest.fixture
def folder(model_folder: Path, tmp_path: Path) -> Path:
    """A copy of the exported model, to be spoiled."""
    return Path(shutil.copytree(model_folder, tmp_path / "model"))


def change_facts(folder: Path, change: Callable[[dict], Any]) -> None:
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    result = change(facts)
    (folder / FACTS).write_text(json.dumps(facts if result is None else result), encoding="utf-8")


def listed(folder: Path) -> list[str]:
    return list(json.loads((folder / FACTS).read_text(encoding="utf-8"))["sha256"])


def test_a_sound_folder_says_what_it_holds(model_folder: Path) -> None:
    bundle = load_bundle(str(model_folder))
    assert bundle.config == PRESETS["tiny"] and bundle.is_chat and bundle.name == "tiny"
    assert bundle.tokenizer.vocab_size == 512
    assert bundle.variants == {"fp32": model_folder / "onnx" / "model.onnx"}


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../secret", "onnx/../../secret", "C:secret", "onnx\\..\\secret"]
)
def test_a_file_that_is_not_inside_the_folder_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("secret")
    change_facts(folder, lambda facts: facts["sha256"].update({name: "0" * 64}))
    with pytest.raises(UserError, match="is outside the folder"):
        load_bundle(folder)


def test_a_name_of_several_lines_is_refused(folder: Path) -> None:
    """It would add lines of its own to the entry of a desktop's menu."""
    change_facts(folder, lambda facts: facts.update(name="nano\nExec=evil"))
    with pytest.raises(UserError, match="holds a line break, another control character"):
        load_bundle(folder)


def test_a_link_may_lead_elsewhere_in_the_folder_or_to_the_hubs_blobs_alone(
    folder: Path, tmp_path: Path
) -> None:
    card = folder / "README.md"
    card.rename(folder / "onnx" / "card.md")
    card.symlink_to(Path("onnx") / "card.md")
    assert load_bundle(folder)
    card.unlink()
    (tmp_path / "outside.md").write_bytes((folder / "onnx" / "card.md").read_bytes())
    card.symlink_to(tmp_path / "outside.md")
    with pytest.raises(UserError, match="is a link that leads out of"):
        load_bundle(folder)
    hub = tmp_path / "models--me--mine"
    (hub / "blobs").mkdir(parents=True)
    shutil.move(tmp_path / "outside.md", hub / "blobs" / "0123")
    snapshot = shutil.copytree(folder, hub / "snapshots" / "abc", symlinks=True)
    (snapshot / "README.md").unlink()
    (snapshot / "README.md").symlink_to(Path("..", "..", "blobs", "0123"))
    assert load_bundle(snapshot)


def test_a_changed_byte_in_any_file_is_named(folder: Path) -> None:
    names = listed(folder)
    assert len(names) >= 10
    for i, name in enumerate(name for name in names if name != CARD):
        path = folder / name
        data = path.read_bytes()
        changed = bytearray(data)
        changed[random.Random(i).randrange(len(data))] ^= 1
        path.write_bytes(changed)
        with pytest.raises(UserError) as error:
            load_bundle(folder)
        assert f"{path} is damaged or changed" in str(error.value)
        path.write_bytes(data)
    load_bundle(folder)


def test_an_edited_card_is_its_owners_and_stays(folder: Path) -> None:
    card = folder / CARD
    card.write_text("# Mine\n", encoding="utf-8")
    load_bundle(folder)
    (folder / "more.txt").write_text("made")
    add_files(folder, ["more.txt"])
    with pytest.raises(UserError, match=rf"{card} was edited since .*: move it elsewhere"):
        check_model_folder(folder)
    card.unlink()
    check_model_folder(folder)


def test_line_ends_that_git_changed_are_told_from_damage(folder: Path) -> None:
    path, card = folder / "tokenizer.json", folder / CARD
    for file in (path, card):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(UserError, match=rf"{path} has other line ends .*core\.autocrlf=false"):
        load_bundle(folder)
    check_model_folder(folder)
    change_facts(folder, lambda facts: facts["sha256"].update({path.name: file_sha256(path)}))
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))  # as written on Windows before
    with pytest.raises(UserError, match=rf"{path} has other line ends"):
        load_bundle(folder)


def test_a_pointer_of_git_lfs_is_told_from_damage(folder: Path) -> None:
    (folder / ONNX).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(UserError, match=r"model\.onnx stands for a file .* `git lfs pull` there"):
        load_bundle(folder)


def test_git_leaves_the_bytes_of_model_folders_on_every_system() -> None:
    files = ["models/nano/tokenizer.json", "models/default/README.md", "app.py", "new.sh"]
    words = ["git", "check-attr", "text", "eol", "--", *files]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.count("text: unset") == told.count("text: auto") == 2
    assert told.count("eol: lf") == 4


def test_weights_are_compared_where_they_are_opened(tmp_path: Path) -> None:
    folder = shutil.copytree(NANO, tmp_path / "nano")
    damaged = [VARIANTS["fp32"], WEIGHTS]
    for name in damaged:
        with open(folder / name, "ab") as file:
            file.write(b"!")
    assert load_model(folder, variant="q8").variant == "q8"
    with pytest.raises(UserError, match=r"model\.onnx is damaged or changed"):
        load_model(folder, variant="fp32")
    with pytest.raises(UserError, match="is damaged or changed"):
        load_bundle(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    for name in listed(folder):
        (folder / name).rename(folder / "elsewhere")
        with pytest.raises(UserError) as error:
            load_bundle(folder)
        assert f"{folder / name} is missing" in str(error.value)
        (folder / "elsewhere").rename(folder / name)


@pytest.mark.parametrize("name", ["nowhere", "a_file"])
def test_a_path_that_is_no_folder_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "a_file").write_text("not a folder")
    with pytest.raises(UserError, match=f"no model folder at .*{name}: name one that"):
        load_bundle(tmp_path / name)


def test_a_folder_without_gptcore_json_is_no_model_folder(folder: Path) -> None:
    (folder / FACTS).unlink()
    with pytest.raises(UserError, match=r"is not a model folder, gptcore\.json is missing"):
        load_bundle(folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "null",
        lambda text: '"facts"',
        lambda text: "\x00" * 100,
        lambda text: text.replace('"sha256"', '"sha257"'),
        lambda text: text.replace('"config"', '"konfig"'),
    ],
    ids=["empty", "cut", "list", "null", "string", "zeros", "no-hashes", "no-config"],
)
def test_a_damaged_gptcore_json_is_named(folder: Path, damage: Callable[[str], str]) -> None:
    path = folder / FACTS
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(UserError, match=r"gptcore\.json"):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sha256", []),
        ("sha256", None),
        ("sha256", {"onnx/model.onnx": 1}),
        ("sha256", {"": "0"}),
        ("config", []),
        ("config", None),
        ("config", "tiny"),
        ("config", {"n_layer": "2"}),
        ("config", {"n_layers": 2}),
        ("config", {"n_layer": 2, "n_head": 3}),
    ],
    ids=str,
)
def test_facts_of_a_wrong_kind_are_refused(folder: Path, key: str, value: Any) -> None:
    change_facts(folder, lambda facts: facts.update({key: value}))
    with pytest.raises(UserError):
        load_bundle(folder)


def test_any_changed_byte_of_gptcore_json_gives_a_sound_bundle_or_a_clear_error(
    folder: Path,
) -> None:
    path, rng = folder / FACTS, random.Random(4)
    data = path.read_bytes()
    refused = 0
    for _ in range(150):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] = rng.choice(b'0123456789abc{}[]",: \xff')
        path.write_bytes(changed)
        try:
            load_bundle(folder)
        except UserError:
            refused += 1
    assert refused > 20


def test_a_graph_that_is_not_listed_is_not_run(folder: Path) -> None:
    change_facts(folder, lambda facts: facts["sha256"].pop(ONNX.as_posix()) and None)
    with pytest.raises(UserError, match=r"gptcore\.json does not list onnx/model\.onnx"):
        load_bundle(folder)


@pytest.mark.parametrize(
    "name",
    [FILE_NAME, FACTS_NAME, f"{SOURCE_TOKENIZER}/{FILE_NAME}", data_file(ONNX).as_posix()],
)
def test_a_file_that_is_read_and_not_listed_is_refused(folder: Path, name: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    change_facts(folder, lambda facts: facts["sha256"].pop(name, None) and None)
    with pytest.raises(UserError, match=r"is not listed in gptcore.json: delete it") as refused:
        load_bundle(folder)
    assert str(path) in str(refused.value)


def test_a_folder_that_an_export_cannot_replace_is_to_be_deleted(folder: Path) -> None:
    for damage, said in (("{", "damaged: it is not valid JSON"), ("{}", "or make it again")):
        (folder / FACTS).write_text(damage)
        with pytest.raises(UserError, match=f"{said}; delete {folder} first, or choose another"):
            check_model_folder(folder)


def test_nothing_is_written_into_a_model_folder(folder: Path) -> None:
    said = f"site is inside the model folder {folder}: choose another --out"
    before = files_in(folder)
    for out in (folder / "site", folder / "new" / "site"):
        with pytest.raises(UserError, match=said), replacing(out, "site", "README.md"):
            raise AssertionError("nothing is begun")
        with pytest.raises(UserError, match=said):
            check_model_folder(out)
    assert files_in(folder) == before
    check_model_folder(folder.with_name("beside"))


def test_a_tokenizer_of_another_export_is_refused(folder: Path) -> None:
    Tokenizer({bytes([byte]): byte for byte in range(256)}).save(folder)
    write_facts(folder, read_facts(folder))
    with pytest.raises(UserError, match="the tokenizer has 262 tokens and the model 512"):
        load_bundle(folder)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"not an onnx file", bytes(range(256)) * 100, None],
    ids=["empty", "text", "bytes", "half"],
)
@pytest.mark.parametrize(
    ("is_served", "damaged"),
    [(False, ONNX.as_posix()), (True, ONNX.as_posix()), (True, SERVING["fp32"])],
    ids=["portable", "weights of the serving graph", "serving graph"],
)
def test_a_graph_that_onnx_runtime_cannot_read_is_named(
    folder: Path, garbage: bytes | None, is_served: bool, damaged: str
) -> None:
    """Though its hash is the one that is listed."""
    data = (folder / damaged).read_bytes()
    (folder / damaged).write_bytes(data[: len(data) // 2] if garbage is None else garbage)
    if not is_served:
        (folder / SERVING["fp32"]).unlink()
    write_facts(folder, read_facts(folder))
    load_bundle(folder)
    opened = folder / (SERVING["fp32"] if is_served else ONNX)
    for threads in (1, None):
        with pytest.raises(UserError, match=f"ONNX Runtime cannot load {opened}"):
            load_model(folder, threads=threads, device="cpu")


def rewritten(folder: Path, out: Path, change: str) -> Path:
    """A folder with another portable graph alone, whose hashes are right again."""
    without_serving(folder, out)
    path = out / VARIANTS["fp32"]
    proto = onnx.load(path)
    if change == "opset":
        proto.opset_import[0].version = 40
    elif change == "ir":
        proto.ir_version = 30
    else:
        onnx.save(
            proto, path, save_as_external_data=True, location="weights.bin", size_threshold=1000
        )
        proto = onnx.load(path, load_external_data=False)
        (path.parent / "weights.bin").rename(out.parent / "weights.bin")
        for tensor in proto.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = "../../weights.bin" if change == "relative" else "/etc/passwd"
    path.write_bytes(proto.SerializeToString())
    write_facts(out, read_facts(out))
    return out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("opset", "needs a newer version than"),
        ("ir", "needs a newer version than"),
        ("relative", "outside its folder"),
        ("absolute", "outside its folder"),
    ],
)
def test_a_graph_that_cannot_run_here_is_explained(
    model_folder: Path, tmp_path: Path, refused: Refused, change: str, said: str
) -> None:
    out = rewritten(model_folder, tmp_path / "changed", change)
    with pytest.raises(UserError, match=said):
        load_model(out)
    assert said in refused(app_main, "--port", 0, "--model", out)


def test_hashes_are_written_for_what_is_there_now(folder: Path) -> None:
    (folder / "extra").mkdir()
    (folder / "extra" / "ä.txt").write_text("new", encoding="utf-8")
    (folder / "README.md").unlink()
    write_facts(folder, ModelFacts("ü", chat=False, parameters=1, config=PRESETS["tiny"]))
    bundle = load_bundle(folder)
    assert bundle.name == "ü" and not bundle.is_chat
    assert "extra/ä.txt" in listed(folder) and "README.md" not in listed(folder)
    assert FILE_NAME in listed(folder) and FACTS not in listed(folder)


# ------------------------------------------------------------------ folders written as a whole


def test_a_new_folder_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "models" / "mine"
    with new_folder(path) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "a.txt").write_text("a")
        assert not path.exists()
    assert (path / "sub" / "a.txt").read_text() == "a"
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    with pytest.raises(RuntimeError), new_folder(path) as folder:
        (folder / "a.txt").write_text("a")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    path.mkdir()
    (path / "old.txt").write_text("old")
    with pytest.raises(RuntimeError), new_folder(path) as folder:
        (folder / "a.txt").write_text("a")
        raise RuntimeError
    assert list(tmp_path.rglob("*")) == [path, path / "old.txt"]


def test_a_new_folder_replaces_an_old_one_and_what_a_crash_left(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.mkdir()
    (path / "old.txt").write_text("old")
    (tmp_path / ".mine.tmp").mkdir()
    (tmp_path / ".mine.tmp" / "half.txt").write_text("half")
    with new_folder(path) as folder:
        (folder / "new.txt").write_text("new")
    assert list(tmp_path.rglob("*")) == [path, path / "new.txt"]


def test_a_file_that_may_not_be_written_is_flushed() -> None:
    flush_to_disk(Path(sys.executable).resolve())  # not even root may write to what runs


def test_a_network_drive_that_cannot_flush_folders_is_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refusing)
    with new_folder(tmp_path / "mine") as folder:
        (folder / "new.txt").write_text("new")
    assert (tmp_path / "mine" / "new.txt").exists()


def test_a_persons_folders_beside_a_new_one_stay(tmp_path: Path) -> None:
    for name in ("mine.old", "mine.tmp"):  # such as a backup
        (tmp_path / name).mkdir()
    for _ in range(2):
        with new_folder(tmp_path / "mine"):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.old", "mine.tmp"]


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    with new_folder(path) as folder:
        (folder / "first.txt").write_text("first")
        program = f"from gptcore.system.files import *\nwith new_folder(Path({str(path)!r})): pass"
        second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert ".mine.tmp is being written by another process" in second.stderr
    assert list(tmp_path.rglob("*")) == [path, path / "first.txt"]


def test_of_two_that_find_what_a_third_has_left_one_writes_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one begins while the first deletes it, which is the worst moment."""
    path, delete = tmp_path / "mine", shutil.rmtree
    (tmp_path / ".mine.tmp" / "of one that was killed").mkdir(parents=True)
    with ExitStack() as other, monkeypatch.context() as changed:

        def deleting(folder: Path) -> None:
            delete(folder)
            changed.setattr(shutil, "rmtree", delete)
            (other.enter_context(new_folder(path)) / "theirs.txt").write_text("theirs")

        changed.setattr(shutil, "rmtree", deleting)
        said = "is being written by another process"
        with pytest.raises(UserError, match=said), new_folder(path):
            pass
    assert list(tmp_path.rglob("*")) == [path, path / "theirs.txt"]


def test_two_that_write_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    program = "import sys; from gptcore.system.files import *; write_whole(Path(sys.argv[1]), 'b')"
    with ThreadPoolExecutor(1) as other, new_file(path) as temporary:
        temporary.write_text("a" * 9)
        subprocess.run([sys.executable, "-c", program, path], check=True)
        assert path.read_text() == "b" and temporary.read_text() == "a" * 9
        other.submit(write_whole, path, "c").result()
        assert path.read_text() == "c" and temporary.read_text() == "a" * 9
    assert path.read_text() == "a" * 9 and [*tmp_path.iterdir()] == [path]


def test_a_new_folder_replaces_that_to_which_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "disk" / "models").mkdir(parents=True)
    link = tmp_path / "models"
    link.symlink_to(tmp_path / "disk" / "models")
    with new_folder(link) as folder:
        (folder / "new.txt").write_text("new")
    assert link.is_symlink() and (tmp_path / "disk" / "models" / "new.txt").exists()


def test_an_old_folder_stays_where_the_new_one_cannot_have_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine"
    path.mkdir()
    (path / "old.txt").write_text("old")
    rename = Path.rename

    def refusing(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise PermissionError("in use")
        return rename(self, target)

    with monkeypatch.context() as changed, pytest.raises(PermissionError):
        changed.setattr(Path, "rename", refusing)
        with new_folder(path) as folder:
            (folder / "new.txt").write_text("new")
    assert list(tmp_path.rglob("*")) == [path, path / "old.txt"]
    path.rename(tmp_path / ".mine.old")  # as if a process had ended between two renames
    with pytest.raises(RuntimeError), new_folder(path):
        raise RuntimeError
    assert list(tmp_path.rglob("*")) == [path, path / "old.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="it has no locks of folders")
def test_who_finds_a_folder_between_two_renames_leaves_it_to_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rename = tmp_path / "mine", Path.rename
    path.mkdir()
    (path / "old.txt").write_text("old")

    def meanwhile(self: Path, target: Path) -> Path:
        renamed = rename(self, target)
        if self == path:
            with pytest.raises(UserError, match="another process"), new_folder(path):
                raise AssertionError
        return renamed

    monkeypatch.setattr(Path, "rename", meanwhile)
    with new_folder(path) as folder:
        (folder / "new.txt").write_text("new")
    assert list(tmp_path.rglob("*")) == [path, path / "new.txt"]


def test_what_another_process_begins_once_a_folder_is_renamed_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / ".mine.tmp" / "begun.txt"

    def renamed(*names: Path) -> None:
        exchange(*names)
        begun.parent.mkdir()
        begun.write_text("theirs")

    monkeypatch.setattr("gptcore.system.files.exchange", renamed)
    with new_folder(tmp_path / "mine"):
        pass
    assert begun.read_text() == "theirs"


@pytest.mark.parametrize("name", ["mine.txt", "README.md"])
def test_what_is_put_or_edited_there_while_a_folder_is_written_stays(
    tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        with replacing(out, "site", "README.md") as new:
            (new / "README.md").write_text("ours")
    with pytest.raises(UserError, match=name), replacing(out, "site", "README.md") as new:
        (out / name).write_text("mine")
    assert (out / name).read_text() == "mine"


def test_what_a_person_has_put_there_stays_the_persons(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    (folder / "more.txt").write_text("made")
    add_files(folder, ["more.txt"])
    assert "more.txt" in read_facts(folder).sha256
    with pytest.raises(UserError, match=r"contains files of yours \(notes\.txt\)"):
        check_model_folder(folder)
    load_bundle(folder)
    (folder / "notes.txt").unlink()
    for name in (".DS_Store", "onnx/Thumbs.db", f"{INSPECT}.12.tmp"):  # which nobody put there
        (folder / name).touch()
    check_model_folder(folder)


def test_checking_large_files_is_said_before_the_wait(
    model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say_if_large(model_folder)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(bundle_module, "LARGE_BYTES", 1000)
    say_if_large(model_folder)
    assert f"checking and opening {model_folder} ..." in capsys.readouterr().out
