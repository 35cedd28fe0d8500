"""One training at a time, made on the page: its texts, its commands, and what they said.

>>> bench = Workbench(Path("runs"), Path("models"), models.add)        # doctest: +SKIP
>>> bench.begin("train", {"name": "mine", "minutes": 10})              # doctest: +SKIP

The folder runs/.page holds the texts and the token shards made of them, which are deleted when the
training is complete or given up, and what each command said. The run and the model are where the
same commands on the command line would put them.
"""

import atexit
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from gptcore.bundle import FACTS, default_model
from gptcore.checks import UserError, shorten
from gptcore.page.train.child import Child, output_of, planned
from gptcore.page.train.progress import CONFIG, progress_of
from gptcore.page.train.settings import DEFAULTS, MINUTES, checked
from gptcore.page.train.starts import starts_in
from gptcore.system.command_line import CPU_TORCH, INTERRUPTED
from gptcore.system.files import LOCK, is_locked, remembered, write_json

INSTALL = "pip install -r requirements-train.txt"
MOST_BYTES, MOST_TEXTS = 500_000_000, 200
KINDS = ("fetch", "look", "plan", "train", "export")  # of commands
ERROR = "error: "  # begins the line of a command that failed
NOT_LOOKED: dict[str, Any] = {"unused": {}, "asking": []}  # of texts that are being looked at
RANK = "16"  # of adapters (LoRA)
SAYINGS = ("look", "plan")  # commands that only say what is or would be
STOPPED = (INTERRUPTED, -signal.SIGTERM)  # exit codes; the second before Python has begun


class Workbench:
    """The state on the disk, and at most one running command."""

    def __init__(self, runs: Path, models: Path, add: Callable[[Path], str]):
        """`add` is called with the folder of an exported model, and returns the model's name."""
        self.runs, self.models, self.add = runs, models, add
        self.folder = runs / ".page"
        self.texts, self.shards = self.folder / "texts", self.folder / "shards"
        self.facts = self.folder / "look.json"  # what a look has found
        self.child: Child | None = None
        self.doing = ""
        self.following = Thread()  # what waits for the command
        self.begun_at = 0  # the last step that was logged when the command began
        self.n_stops = 0  # how often a person has stopped a command
        self.lock = Lock()
        self.error, self.model = "", ""
        self.datasets: list[dict[str, str]] | None = None  # until list_datasets asks

    # ---------------------------------------------------------------- what there is

    def state(self) -> dict[str, Any]:
        """Return all that the view shows."""
        settings, starts = self.settings(), starts_in(self.models)
        if settings["start"] is None:
            settings["start"] = self.suggested(starts)
        run = progress_of(self.runs / settings["begun"]) if settings["begun"] else None
        step = run["step"] if run else 0
        shown = self.doing or "train"
        outputs = {kind: self.said(kind) for kind in (*SAYINGS, shown)}
        errors = [line for line in outputs["look"] if line.startswith(ERROR)]
        return {
            **settings,
            "missing": "" if find_spec("torch") else f"{CPU_TORCH}\n{INSTALL}",
            "texts": [{"name": p.name, "bytes": p.stat().st_size} for p in self.listed()],
            "datasets": self.datasets or [],
            "starts": starts,
            "bounds": MINUTES,
            "doing": self.doing,
            "is_stepping": self.doing == "train" and step > self.begun_at,
            "error": self.error,
            "look": "\n".join(line for line in outputs["look"] if line not in errors),
            "unusable": errors[0].removeprefix(ERROR) if errors else "",
            **self.looked(),
            "plan": "\n".join(planned(outputs["plan"])),
            "said": "\n".join(outputs[shown]),
            "run": run,
            "is_exported": bool(run) and is_exported(*self.places(settings["begun"])),
            "model": self.model,
        }

    def looked(self) -> dict[str, Any]:
        """Return who writes in the texts that are chats, and why texts are not used.

        Those in "asking" only wait until it is said whose words are learned.
        """
        found: dict[str, Any] = {"people": [], **NOT_LOOKED} | remembered(self.facts)
        refused = {self.own_name(name): why for name, why in found["unused"].items()}
        asking = [self.own_name(name) for name in found["asking"]]
        return {"people": found["people"], "refused": refused, "asking": asking}

    def settings(self) -> dict[str, Any]:
        return DEFAULTS | {"begun": ""} | remembered(self.folder / "settings.json")

    def listed(self) -> list[Path]:
        return sorted(p for p in self.texts.glob("*") if not p.name.startswith("."))

    def suggested(self, starts: Iterable[str]) -> str:
        """Return the model to begin with where nobody has chosen one; "": a new one."""
        shipped = default_model().name
        is_fit = remembered(self.facts).get("suits_init") and shipped in starts
        return shipped if is_fit else ""

    def places(self, name: str) -> tuple[Path, Path]:
        """Return the folders of a run and of its model."""
        return self.runs / name, self.models / name

    def output(self, kind: str) -> Path:
        return self.folder / f"{kind}.txt"

    def said(self, kind: str) -> list[str]:
        """Return the output of a command, with the texts' own names."""
        return [self.own_name(line) for line in output_of(self.output(kind))]

    def own_name(self, line: str) -> str:
        return line.replace(f"{self.texts}{os.sep}", "")

    # ---------------------------------------------------------------- texts

    def room_for(self, name: str) -> tuple[Path, int]:
        """Return where to write a text, and how many bytes it may have. Raises UserError."""
        if self.doing != "look":  # which gives way when the text has arrived
            self.check_idle()
        plain = re.sub(r"[^\w .()-]", "_", Path(name.replace("\\", "/")).name)
        own = plain.encode()[-200:].decode(errors="ignore").strip(" .")  # 255 bytes are the most
        if not own:
            raise UserError(f"{name[:50]!r} is no name of a file")
        if (self.texts / own).exists():
            raise UserError(f"{own} is among the texts already: remove that, or rename this file")
        if len(self.listed()) >= MOST_TEXTS:
            raise UserError(f"{MOST_TEXTS} texts are the most: put them into one .zip file")
        self.texts.mkdir(parents=True, exist_ok=True)
        return self.texts / own, MOST_BYTES - sum(path.stat().st_size for path in self.listed())

    def changed(self) -> None:
        """Forget what was said of the texts before."""
        self.error = ""
        for path in (self.facts, *map(self.output, SAYINGS)):
            path.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Delete a text. Raises UserError."""
        with self.after_look():
            self.check_idle()
            if name in [path.name for path in self.listed()]:
                (self.texts / name).unlink()
            self.changed()

    # ---------------------------------------------------------------- commands

    def begin(self, kind: str, asked: dict[str, Any]) -> None:
        """Start a command with what a person has chosen. Raises UserError.

        It waits for a look, which the page begins by itself, unless a person stops it meanwhile;
        a new look takes an old one's place.
        """
        n_stops = self.n_stops
        with self.after_look(stops=kind == "look"):
            if n_stops == self.n_stops:
                self.launch(kind, asked)

    @contextmanager
    def after_look(self, stops: bool = True) -> Iterator[None]:
        """Hold the lock while no look runs; one that does is stopped or waited for."""
        while True:
            with self.lock:
                if self.doing != "look":
                    yield
                    return
                if stops and (child := self.child):
                    child.stop()
                look = self.following
            look.join()

    def launch(self, kind: str, asked: dict[str, Any]) -> None:
        """Start a command now; the caller holds the lock. Raises UserError."""
        self.check_idle()
        if not find_spec("torch"):
            raise UserError(f"PyTorch is missing: {INSTALL}")
        settings = self.settings() | checked(asked)
        if settings["begun"] and (self.runs / settings["begun"] / CONFIG).exists():
            settings["name"] = settings["begun"]
        else:
            settings["begun"] = ""
        run, out = self.places(settings["name"])
        if kind == "export" and is_exported(run, out):
            self.error, self.model = "", self.add(out)
            return
        arguments = self.arguments(kind, settings, asked)
        goes_on = kind == "train" and bool(settings["begun"])
        if kind == "train":
            settings["begun"] = settings["name"]
        self.texts.mkdir(parents=True, exist_ok=True)
        if kind == "look":  # what else the last one has found stays, such as people to choose from
            write_json(self.facts, remembered(self.facts) | NOT_LOOKED)
        write_json(self.folder / "settings.json", settings)
        before = progress_of(run) if goes_on else None
        self.begun_at = before["step"] if before else 0
        self.child = Child(arguments, self.output(kind), goes_on)
        self.error, self.model, self.doing = "", "", kind
        atexit.register(self.child.end)
        self.following = Thread(target=self.follow, args=(self.child, kind, settings), daemon=True)
        self.following.start()

    def arguments(self, kind: str, settings: dict[str, Any], asked: dict[str, Any]) -> list[str]:
        """Return the command, as Python's arguments. Raises UserError if it makes no sense now."""
        training, run = ["-m", "training"], self.runs / settings["name"]
        if kind == "fetch":
            return [*training, *self.fetching(str(asked.get("dataset")))]
        if kind == "export":
            out = self.models / settings["name"]
            return ["-m", "export", str(run), "--out", str(out), "--inspect"]
        about = [f"--me={name}" for name in map(str.strip, settings["me"].split(";")) if name]
        about += [f"--columns={settings['columns']}"] if settings["columns"] else []
        if settings["begun"] and kind == "train":
            return [*training, "--out", str(run), "--resume"]
        if not self.listed():
            raise UserError("there is no text yet: drop a file first")
        texts = str(self.texts)  # of a folder, files that cannot be read are left out, and said
        if kind == "look":
            return [*training, "look", texts, *about, "--json", str(self.facts)]
        if self.looked()["asking"] and not settings["me"]:  # it would be left out of the folder
            raise UserError("a text is a chat: choose first whose words the model should learn")
        for taken in (run, self.models / run.name):
            # A training that was killed before it began has left its lock.
            if any(path.name != LOCK for path in taken.glob("*")):
                raise UserError(f"the name {run.name} is taken by {taken}: choose another name")
        plan = [f"--minutes={settings['minutes']}", "--shards", str(self.shards)]
        starts = starts_in(self.models)
        if start := self.suggested(starts) if settings["start"] is None else settings["start"]:
            if start not in starts:
                raise UserError(f"there is no model {start!r} to begin with")
            plan += ["--init", str(self.models / start)]
            # The page offers adapters only with a model that can have them.
            plan += ["--lora", RANK] if settings["adapters"] and starts[start]["adapts"] else []
        only = ["--plan"] if kind == "plan" else []
        return [*training, texts, *about, *plan, "--out", str(run), *only]

    def fetching(self, dataset: str) -> list[str]:
        if dataset not in [found["name"] for found in self.datasets or []]:
            raise UserError(f"there is no dataset {dataset[:50]!r}")
        path, _ = self.room_for(f"{dataset}.jsonl")
        return ["datasets", dataset, "--out", str(path)]

    def follow(self, child: Child, kind: str, settings: dict[str, Any]) -> None:
        """Wait for a command in a thread of its own, and do what comes after it."""
        code = child.wait()
        atexit.unregister(child.end)
        try:
            said = self.said(kind)
            line = said[-1] if said else f"exit code {code}"
            # Why nothing can be learned stands beside each text that a look has refused.
            is_shown = kind == "look" and line.startswith(ERROR) and self.looked()["refused"]
            if code and code not in STOPPED:
                self.error = "" if is_shown else line.removeprefix(ERROR)
            elif kind == "export" and not code:
                self.model = self.add(self.models / settings["name"])
            elif kind == "fetch":
                self.changed()
            elif kind == "train" and not code:
                self.delete_texts()
        except (OSError, UserError) as error:
            self.error = str(error)
        finally:
            self.child, self.doing = None, ""  # in this order: the next command may begin at once

    def stop(self) -> None:
        """Have the running command save what it has, and end; what waits for it does not start."""
        with self.lock:
            self.n_stops += 1
            if child := self.child:
                child.stop()

    def list_datasets(self) -> None:
        """Ask training for the names of its datasets, once."""
        with self.lock:
            if self.datasets is None:
                output = self.folder / "datasets.json"
                self.folder.mkdir(parents=True, exist_ok=True)
                code = Child(["-m", "training", "datasets", "--json"], output).wait()
                said = output.read_text("utf-8")
                output.unlink()
                try:
                    self.datasets = [] if code else json.loads(said)
                except ValueError:  # a warning stands before it
                    self.datasets = []
                if not self.datasets:
                    self.error = f"the datasets cannot be listed: {shorten(said)}"

    # ---------------------------------------------------------------- the end

    def clear(self, keeps: bool) -> None:
        """Begin anew; the run is kept or deleted, a model stays. Raises UserError."""
        with self.after_look():
            self.check_idle()
            begun = self.settings()["begun"]
            if begun and is_locked(self.runs / begun / LOCK):  # by a page that was killed
                raise UserError(f"{self.runs / begun} is being trained: wait until that ends")
            if begun and not keeps:
                shutil.rmtree(self.runs / begun, ignore_errors=True)
            elif begun:
                self.keep_shards()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.error, self.model = "", ""

    def keep_shards(self) -> None:
        """Move the token shards to where `python -m training --resume` looks for them, too."""
        for shards in self.shards.glob("*"):
            kept = self.runs / "shards" / shards.name
            if not kept.exists():
                kept.parent.mkdir(exist_ok=True)
                shards.rename(kept)

    def delete_texts(self) -> None:
        for folder in (self.texts, self.shards):
            shutil.rmtree(folder, ignore_errors=True)

    def check_idle(self) -> None:
        if self.doing:
            raise UserError("a command is running: stop it, or wait for its end")


def is_exported(run: Path, out: Path) -> bool:
    """Return whether a model folder is newer than all weights of its run."""
    exported = out / FACTS
    weights = [*run.glob("checkpoints/*/manifest.json"), *run.glob("summary.json")]
    newest = max((path.stat().st_mtime for path in weights), default=0)
    return exported.is_file() and exported.stat().st_mtime > newest > 0
