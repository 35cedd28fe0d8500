"""The models that one process serves: opened when they are asked for, within a bound in bytes.

>>> models = Models(load_model("models/default"), [Path("models/nano")])  # doctest: +SKIP
>>> await models.get("gptcore nano")                                      # doctest: +SKIP
>>> await models.get("gptcore nano@int8")                                 # doctest: +SKIP

A name may be followed by one of the model's number formats. The first model stays. The others make
room for each other: the one unused for longest is closed first, but never one that is writing a
reply. A model whose folder was exported again is reopened; if the new export is damaged or cannot
be opened, the model opened before keeps answering, unless --memory has too little room for both.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from gptcore.bundle import (
    FACTS,
    VARIANTS,
    find_models,
    graph_bytes,
    load_bundle,
    read_facts,
    say_if_large,
)
from gptcore.checks import Busy, UserError, brief
from gptcore.config import Seq2SeqConfig
from gptcore.engine.inputs import usual_sampling
from gptcore.facts import ModelFacts
from gptcore.model import OnnxModel, cache_bytes, device_line, load_model

GB = 10**9
MODELS = Path("models")  # the folder whose models are offered where none is named
Version = tuple[int, int, int]  # of a file: its time, its place on the disk, its size


class NotHere(UserError):
    """A model of this name is not served."""


class NotOpened(UserError):
    """A model cannot be opened now; the message tells strangers no path."""


class Offer(NamedTuple):
    """A model that may be asked for, as its folder was last read."""

    folder: Path  # resolved
    facts: ModelFacts
    version: Version | None


class Models:
    """Models by name. One that is open is had at once; others are opened one after the other."""

    def __init__(
        self,
        first: OnnxModel,
        folders: Sequence[Path] = (),
        memory: float = 4 * GB,
        within: Path | None = None,
        variant: str | None = None,
        version: Version | None = None,
    ):
        """`memory`: most bytes for the weights and caches of all models that are open.

        `within`: the folder in which `look` finds models that are exported later. `variant`: the
        number format that was chosen for the first model; None: the fastest. `version`: of the
        first model's folder when it was opened; None: the present one.
        """
        self.memory, self.within, self.variant = memory, within, variant
        self.adding = Lock()
        self.told: set[str] = set()  # why folders are not offered
        name = first.bundle.name
        self.open = {name: first}
        self.used: dict[str, float] = {}  # when a model was last asked for
        self.waited: Counter[str] = Counter()  # callers that have not received it yet
        self.loader = ThreadPoolExecutor(1, "loader")
        version = version or version_of(first.bundle.path)
        # It is replaced, never changed: another thread may go through the old one.
        self.offers = {name: Offer(first.bundle.path.resolve(), first.bundle.facts, version)}
        self.failed: dict[str, ModelFacts] = {}  # of exports that could not take a model's place
        self.offer(folders)

    def look(self) -> None:
        """Offer the models that were exported into `within` since it was last looked at."""
        if self.within and self.within.is_dir():
            self.offer(find_models(self.within)[0])

    def offer(self, folders: Sequence[Path]) -> None:
        """Offer models; a damaged one is left out, or stays as it is open, and reported once."""
        for folder in folders:
            try:
                self.add(folder)
            except UserError as error:
                served = "served as before" if self.is_open(folder.resolve()) else "not served"
                told = f"{served}: {folder}: {error}"
                if told not in self.told:
                    print(told, file=sys.stderr, flush=True)
                self.told.add(told)

    def add(self, folder: Path) -> str:
        """Offer a model, and return its name; what is known of its folder is read if it is new.

        Raises UserError if it is damaged, but only once if it was sound before and is open.
        """
        folder = folder.resolve()
        with self.adding:
            known = next((n for n, offer in self.offers.items() if offer.folder == folder), None)
            version = version_of(folder)
            if known is not None and self.offers[known].version == version:
                return known
            if known is not None and self.is_open(folder):
                self.offers = self.offers | {known: self.offers[known]._replace(version=version)}
                facts = load_bundle(folder).facts
            else:
                facts = read_facts(folder)
            if isinstance(facts.config, Seq2SeqConfig):
                raise UserError(f"{folder} is a translation model now")
            usual_sampling(facts)  # raises what the page would meet later
            name = self.unused_name(folder, facts) if known is None else known
            self.offers = self.offers | {name: Offer(folder, facts, version)}
            return name

    def is_open(self, folder: Path) -> bool:
        return any(model.bundle.path.resolve() == folder for model in self.open.values())

    def unused_name(self, folder: Path, facts: ModelFacts) -> str:
        numbered = (f"{folder.name}-{number}" for number in count(2))
        wanted = chain((facts.name, folder.name), numbered)
        return next(name for name in wanted if name not in self.offered)

    @property
    def names(self) -> list[str]:
        """The names of all models, the first of which answers where no name is given."""
        return [*self.offers]

    def check(self, name: object) -> str:
        """Return the name of the model that is meant, by default of the first; raises NotHere.

        The name of a model's folder means that model, unless another one is called so. It may be
        followed by a format, too.
        """
        if name is None:
            return self.names[0]
        offered = self.offered
        if isinstance(name, str) and name not in offered:
            by_folder = {o.folder.name: own for own, o in reversed(self.offers.items())}
            base, at, variant = name.rpartition("@")
            name = by_folder.get(name) or by_folder.get(base, base) + at + variant
        if not (isinstance(name, str) and name in offered):
            here = ", ".join(map(repr, self.names))
            raise NotHere(f"the model {brief(name)} is not here, only {here}")
        return name

    async def find(self, name: object) -> str:
        """Return what `check` does, after a look for a model that was exported lately."""
        try:
            return self.check(name)
        except NotHere:
            await asyncio.to_thread(self.look)
            return self.check(name)

    @property
    def offered(self) -> dict[str, tuple[Offer, str | None]]:
        """What may be asked for, by name: a model, and its format; None: the fastest.

        First come the models' own names, then NAME@FORMAT of those that have several formats.
        """
        offers = self.offers
        found: dict[str, tuple[Offer, str | None]] = {n: (o, None) for n, o in offers.items()}
        first = next(iter(offers))
        found[first] = offers[first], self.variant
        for name, offer in offers.items():
            variants = [v for v, file in VARIANTS.items() if file in offer.facts.sha256]
            for variant in variants if len(variants) > 1 else []:
                found.setdefault(f"{name}@{variant}", (offer, variant))
        return found

    def asked(self, name: str) -> tuple[Offer, str | None]:
        """Return the model that a name means, and its format; raises NotHere."""
        return self.offered[self.check(name)]

    async def get(self, name: str) -> OnnxModel:
        """Return a model, which may have to be opened; raises Busy or NotOpened."""
        (offer, _), model = self.asked(name), self.open.get(name)
        # If the folder is gone, the open model keeps answering.
        version = version_of(offer.folder)
        is_old = version not in (None, offer.version)
        if model is None or is_old or not self.is_newest(name, model):
            self.waited[name] += 1
            try:
                model = await asyncio.wrap_future(self.loader.submit(self.open_model, name))
            finally:
                self.waited[name] -= 1
        self.used[name] = time.monotonic()
        return model

    def is_newest(self, name: str, model: OnnxModel) -> bool:
        """Return whether no later export of a model can be opened."""
        return self.asked(name)[0].facts in (model.bundle.facts, self.failed.get(name))

    # ---------------------------------------------------------- in the loader's thread

    def open_model(self, name: str) -> OnnxModel:
        try:
            with without_paths(name):
                self.add(self.asked(name)[0].folder)
        except NotOpened:
            if name not in self.open:
                raise
        (folder, facts, _), variant = self.asked(name)
        if name in self.open and self.is_newest(name, self.open[name]):
            return self.open[name]
        needed = needed_bytes(folder, facts, variant)
        if self.n_held + needed > self.memory:  # too little for two exports at once
            self.close(name)  # the replies of the earlier one go on to their end
            self.make_room(name, needed)
        try:
            with without_paths(name):
                model = load_model(folder, variant=variant)
        except NotOpened:
            if name not in self.open:
                raise
            self.failed[name] = facts
            return self.open[name]
        self.open = self.open | {name: model}
        return model

    def make_room(self, name: str, needed: int) -> None:
        """Close idle models until `needed` bytes are free; the first model is not bound."""
        first = self.names[0]
        kept = self.open[first].n_bytes if first in self.open else 0
        if name != first and kept + needed > self.memory:
            raise NotOpened(
                f"{name} needs {needed / GB:.2f} GB beside the {kept / GB:.2f} of "
                f"{first}, and --memory allows {self.memory / GB:.2f}"
            )
        while self.n_held + needed > self.memory:
            idle = [
                n
                for n, model in self.open.items()
                if n != first and not model.engine.n_running and not self.waited[n]
            ]
            if not idle and name == first:
                return
            if not idle:
                raise Busy("the memory is full of models that are writing: try again in a while")
            self.close(min(idle, key=lambda n: self.used.get(n, 0.0)))

    def close(self, name: str) -> None:
        self.open = {other: model for other, model in self.open.items() if other != name}

    @property
    def n_held(self) -> int:
        """The bytes of all models that are open."""
        return sum(model.n_bytes for model in self.open.values())


def load_models(options: argparse.Namespace, is_shared: bool = False) -> Models:
    """Load --model, which answers where no other is named, and find those of --models.

    Without --models, those of `models/` are offered, too, but not by a server that is shared with
    others: one of them may have learned what is private. Raises UserError.
    """
    if not options.memory >= 0:  # nan is not, either
        raise UserError(f"--memory {options.memory:g}: choose a number of GB")
    default = MODELS if MODELS.is_dir() and not is_shared else None
    folder = options.models or default
    folders, others = find_models(folder) if folder else ([], [])
    say_if_large(options.model)
    version = version_of(options.model)  # an export may end while the model is opened
    first = load_model(options.model, variant=options.variant)
    print(f"{first.bundle.name}: {device_line(first)}")
    models = Models(first, folders, options.memory * GB, folder, options.variant, version)
    for line in (*others, *(f"{name}: opened when asked for" for name in models.names[1:])):
        print(line)
    return models


def version_of(folder: Path) -> Version | None:
    """Return what distinguishes a folder's gptcore.json from a later one; None if it has none."""
    try:
        found = (folder / FACTS).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


@contextmanager
def without_paths(name: str) -> Iterator[None]:
    """Print why a model's folder cannot be opened, and raise NotOpened, which names no path."""
    try:
        yield
    except UserError as error:
        print(f"{name} cannot be opened: {error}", file=sys.stderr, flush=True)
        raise NotOpened(f"{name} cannot be opened now: the server's output says why") from None


def needed_bytes(folder: Path, facts: ModelFacts, variant: str | None = None) -> int:
    """Return the bytes of a model's variant, by default of its largest, and of its full cache."""
    assert not isinstance(facts.config, Seq2SeqConfig)
    files = [VARIANTS[variant]] if variant else VARIANTS.values()
    sizes = [graph_bytes(path) for file in files if (path := folder / file).is_file()]
    return max(sizes, default=0) + cache_bytes(facts.config)
