"""Makes the static page in one file, which opens by a double click, without a server or a network.

    >>> build_single_file(load_bundle("models/default"), Path("chat.html"))     # doctest: +SKIP

A page that was opened as a file may fetch nothing, not even its neighbours. So the site's files are
inside it, and export/site/single/unpack.js gives each an address in the browser.
"""

import base64
import hashlib
import html
import re
import zlib
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path, PurePosixPath
from posixpath import normpath
from string import Template

from export.folder.replace import check_outside
from export.ship.web import (
    INSIDE,
    SITE,
    SOURCES,
    check_model,
    copy_page,
    graph_on_cpus,
    site_facts,
)
from gptcore.bundle import VARIANTS, Bundle
from gptcore.checks import UserError
from gptcore.page.shell import VIEW
from gptcore.system.files import files_in, work_folder, write_json, write_whole

PAGE, UNPACK = (SOURCES / "single" / name for name in ("page.html", "unpack.js"))
GENERATOR = "python -m export web --single-file"  # what a page of ours says near its beginning
SEAL = re.compile(r'name="sha256" content="(\w{64})"')  # the hash of the page with UNSEALED there
UNSEALED = "0" * 64
HEAD = 500  # characters in which both are
MOST = 30e6  # bytes of the graphs
# WebGPU needs the fp32 graph, and a runtime of 27 MB.
UNNEEDED = ("*.webgpu.*", "*.asyncify.*", "index.html", "icon*.*", "offline.js", "README.md")
LICENCES = ("vendor/LICENSE", "view/vendor/LICENSES.txt")
STYLE = re.compile(r'rel="stylesheet" href="(.+?)"')
NEIGHBOUR = re.compile(r'"(\.{1,2}/[\w./-]+)"')  # as in unpack.js


def build_single_file(bundle: Bundle, out: Path) -> None:
    """Write the page of a model as one file; if that fails, `out` is unchanged."""
    check_model(bundle)
    graph = smallest_graph(bundle)
    check_out(out)
    with work_folder(out) as folder:
        model = copy_page(bundle, folder, [graph])
        for path in [path for pattern in UNNEEDED for path in folder.rglob(pattern)]:
            path.unlink()
        licences = [(folder / name).read_text(encoding="utf-8") for name in LICENCES]
        write_json(folder / SITE, site_facts(bundle, model, folder))
        script = UNPACK.read_text(encoding="utf-8")
        page = Template(PAGE.read_text(encoding="utf-8")).substitute(
            generator=GENERATOR,
            sha256=UNSEALED,
            title=html.escape(bundle.name),
            hash=f"sha256-{in_base64(hashlib.sha256(script.encode()).digest())}",
            icon=in_base64((VIEW / "looks" / "icon.svg").read_bytes()),
            files="\n".join(element(folder, name) for name in ordered(folder)),
            licences=html.escape("\n".join(licences)),
            script=script,
        )
        check_out(out)  # again: a person may have edited it since
        write_whole(out, page.replace(UNSEALED, sha256(page), 1))
    print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB); next: open it in a browser")


def smallest_graph(bundle: Bundle) -> str:
    """Return the graph that the page has inside.

    Raises UserError if it and the graphs of the Inspect tab are too large.
    """
    graph = graph_on_cpus(bundle)
    inside = [name for name in INSIDE if name in bundle.facts.sha256]
    size = sum((bundle.path / name).stat().st_size for name in (graph, *inside))
    if size > MOST:
        is_small = graph == VARIANTS["int8"]
        remedy = "export a smaller model" if is_small else "export it again with --quantize int8"
        raise UserError(
            f"{bundle.path} has {size / 1e6:.1f} MB in {', '.join((graph, *inside))}, and a "
            f"page in one file may have {MOST / 1e6:.0f} MB at most: {remedy}"
            f"{' and without Inspect' * bool(inside)}, or write a site, without --single-file"
        )
    return graph


def sha256(page: str) -> str:
    return hashlib.sha256(page.encode()).hexdigest()


def check_out(out: Path) -> None:
    """Raise UserError if `out` is in a model folder, or exists and is not a page as written."""
    check_outside(out)
    if out.is_dir():
        raise UserError(f"--out {out} is a folder: name a file, such as {out / 'chat.html'}")
    if not out.exists():
        return
    with open(out, encoding="utf-8", errors="replace") as file:
        head = file.read(HEAD)
        if GENERATOR not in head:
            raise UserError(f"{out} exists and is not such a page: choose another --out")
        page = head + file.read()
    seal = SEAL.search(head)  # older pages have none
    if seal and sha256(page.replace(seal[1], UNSEALED, 1)) != seal[1]:
        raise UserError(
            f"{out} was edited since this program wrote it: move it elsewhere, or choose "
            f"another --out"
        )


def ordered(folder: Path) -> list[str]:
    """Return the names of the files, each after those that it names."""
    names = sorted(files_in(folder))
    page = (SOURCES / "index.html").read_text(encoding="utf-8")
    needs = {name: sorted(neighbours(folder, name) & set(names)) for name in names}
    styles = STYLE.findall(page)
    needs |= {later: [earlier] for earlier, later in pairwise(styles)}
    return list(TopologicalSorter(needs).static_order())


def neighbours(folder: Path, name: str) -> set[str]:
    """Return the files that a module names, as unpack.js finds them."""
    if not name.endswith(".js"):
        return set()
    paths = NEIGHBOUR.findall((folder / name).read_text(encoding="utf-8"))
    return {normpath(PurePosixPath(name).parent / path) for path in paths}


def element(folder: Path, name: str) -> str:
    content = in_base64(zlib.compress((folder / name).read_bytes(), 9))
    return f'    <script type="text/plain" data-name="{name}">{content}</script>'


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
