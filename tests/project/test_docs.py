"""README and docs: their links lead somewhere, their commands exist, their tree is the tree."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

import gptcore.api.protocol as protocol
import gptcore.gradio.guard.visitors as visitors
from gptcore.api.access import ALL_REPLIES, GUESSES, LONGEST_BODY, REPLIES
from gptcore.api.bodies import MOST_TOLD
from gptcore.engine.scheduler import MAX_WAITING
from gptcore.engine.schemas.grammar import MOST_OF_ONE, MOST_WAITING
from gptcore.engine.schemas.supported import MOST_EXPRESSIONS
from gptcore.engine.streams import REPLY_SECONDS
from gptcore.page.train.workbench import MOST_BYTES

BENCHMARKS = ROOT / "benchmarks"
SECURITY = ROOT / "SECURITY.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", SECURITY, BENCHMARKS / "README.md"]
PAGES += sorted((ROOT / "docs").glob("*.md"))
GUIDES = [page for page in PAGES if page.name not in ("log.md", "samples.md")]
CODE = ("gptcore", "training", "export")
PARTS = ("gpu_stages.py", "llama_cpp.py", "llama_server.py")  # programs that other benchmarks start


def commands(page: Path) -> list[str]:
    """The lines of a page's shell blocks, without what is said beside them."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [part.strip() for line in lines if line for part in line.split("&&")]


ALL_COMMANDS = sorted({line for page in GUIDES for line in commands(page)})


@cache
def help_of(*words: str) -> str:
    command = [sys.executable, *words, "--help"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_whoever_copies_the_readmes_block_meets_the_small_torch_first() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = [b for b in readme.split("```") if "-r requirements-train.txt\n" in b]
    small, large = block.split("pip install -r requirements-train.txt")
    [version] = re.findall(r"# pip install (torch==[\d.]+) --index-url \S+/cpu\n", small)
    assert f"{version} " in (ROOT / "requirements-train.txt").read_text(encoding="utf-8")
    assert "python -m training book.txt" in large


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)", page.read_text(encoding="utf-8"))
    for link in (link for link in links if not link.startswith("https://")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists() and (not anchor or anchor in anchors(target)), link


def anchors(page: Path) -> set[str]:
    """What leads to the headings of a page, as GitHub names them."""
    headings = re.findall("^#+ (.*)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 180


@pytest.mark.parametrize(
    "line", [c for c in ALL_COMMANDS if re.search(r"-m (training|export)|^python app|^gptcore ", c)]
)
def test_every_command_in_the_docs_has_the_options_that_it_uses(line: str) -> None:
    module, *words = re.split(" -m |^python (?=app)|^(?=gptcore )", line, maxsplit=1)[1].split()
    start = [module] if module == "app.py" else ["-m", module]
    start += [words[0]] if words and words[0].isalpha() else []
    for option in re.findall(r"(?<!\S)--[\w-]+", " ".join(words)):
        assert re.search(rf"{option}\b(?!-)", help_of(*start)), f"{line}: there is no {option}"


def test_every_benchmark_is_in_their_readme() -> None:
    readme = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"`python benchmarks/(\S+\.py)", readme)
    files = [path for path in BENCHMARKS.rglob("*.py") if path.name not in PARTS]
    own = [path for path in files if "__main__" in path.read_text(encoding="utf-8")]
    assert sorted(told) == sorted(path.relative_to(BENCHMARKS).as_posix() for path in own)


def test_every_test_that_the_page_on_security_names_is_there() -> None:
    text = SECURITY.read_text(encoding="utf-8")
    paths = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert len(paths) > 5 and all((ROOT / path).is_file() for path in paths), paths
    files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    name, n_found = "", 0
    for file, test in re.findall(r"`(test_\w+\.py)?::(test_\w+)`", text):
        name = file or name
        assert f"def {test}(" in files[name].read_text(encoding="utf-8"), f"{name}::{test}"
        n_found += 1
    assert n_found > 15


def test_continuous_integration_runs_the_readmes_test_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = [line for line in script.splitlines() if not line.startswith("#")]
    ran = [part.strip() for line in lines for part in line.split("&&")]
    quick, slow = (line for line in commands(ROOT / "README.md") if "pytest" in line)
    assert quick in ran and any(part.startswith(slow) for part in ran)


@pytest.mark.parametrize(
    ("page", "words", "limits"),
    [
        ("SECURITY.md", "no body of more than {} MiB", [LONGEST_BODY / 2**20]),
        ("SECURITY.md", "may guess wrong {} times a minute", [GUESSES]),
        ("SECURITY.md", "and {} MB at most", [MOST_BYTES / 10**6]),
        ("SECURITY.md", "at most {} requests of the page", [visitors.EVENTS]),
        ("SECURITY.md", "{} of the API, {} streams", [REPLIES, visitors.STREAMS]),
        ("SECURITY.md", "and {} sessions a minute", [visitors.SESSIONS]),
        ("SECURITY.md", "nobody reads is given up after {} seconds", [visitors.UNREAD_SECONDS]),
        ("SECURITY.md", "a reply after {} minutes", [REPLY_SECONDS / 60]),
        ("SECURITY.md", "without a request is closed after {} seconds", [protocol.HEADER_SECONDS]),
        ("SECURITY.md", "is not read on after {} minutes", [protocol.READ_SECONDS / 60]),
        ("SECURITY.md", "one address has {} connections at most", [protocol.MOST_OPEN]),
        ("SECURITY.md", "at most {} chunks", [protocol.MOST_SMALL]),
        ("SECURITY.md", "of less than {} bytes", [protocol.SMALL_CHUNK]),
        ("SECURITY.md", "same limits: {} MiB, {} replies of", [LONGEST_BODY / 2**20, REPLIES]),
        ("SECURITY.md", "{} of all addresses, {} minutes", [ALL_REPLIES, REPLY_SECONDS / 60]),
        ("SECURITY.md", "{} waiting replies", [MAX_WAITING]),
        ("docs/serving.md", "A call may take {} MiB", [LONGEST_BODY / 2**20]),
        ("docs/serving.md", "{} minutes and {} replies", [REPLY_SECONDS / 60, REPLIES]),
        ("docs/serving.md", "one address may wait for {} replies", [REPLIES]),
        ("docs/serving.md", "at most {} probabilities", [MOST_TOLD]),
        ("docs/serving.md", "for {} replies, or {} replies wait", [ALL_REPLIES, MAX_WAITING]),
        (
            "docs/serving.md",
            "Where {} schemas wait to be compiled, or {}",
            [MOST_WAITING, MOST_OF_ONE],
        ),
        ("docs/serving.md", "more than {} patterns and formats", [MOST_EXPRESSIONS]),
    ],
)
def test_a_limit_is_the_one_that_the_code_has(page: str, words: str, limits: list[float]) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    spelled = {5: "five", 10: "ten", 20: "twenty"}
    told = words.format(*(spelled.get(n, f"{n:,g}") for n in limits))
    assert re.search(rf"(?<![\w,]){re.escape(told)}", text), told


def test_the_models_figures_are_the_same_wherever_they_are_told() -> None:
    pages = ("README.md", "docs/evaluation.md", "models/default/README.md")
    readme, evaluation, card = ((ROOT / page).read_text(encoding="utf-8") for page in pages)
    n, *figures = re.search(r"\| all \| (\d+) \| (.+)% \| (.+)% \| (.+)% \|", card).groups()
    greedy, sampled, _ = figures
    assert f"{n} short conversations" in readme and f"| greedy | {greedy} % |" in readme
    assert f"mean of five seeds | {sampled} % |" in readme
    assert " | ".join(f"{figure} %" for figure in figures) in evaluation
    (good,) = re.findall(r"call (\d+ %) of 120", card)
    assert f"called **{good}** of 120" in readme and f"They call **{good}**" in evaluation


def test_the_architectures_tree_names_every_file_of_the_code() -> None:
    tree = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("```")[1]
    named, folders = set(), []
    for line in tree.strip().splitlines():
        indent = len(line) - len(line.lstrip())
        names = re.split(r"\s{2,}", line.strip())[0].split()
        folders = folders[: indent // 2]
        for name in names:
            path = Path(*folders, name)
            assert (ROOT / path).exists(), f"the tree names {path}"
            named.add(path)
        folders.append(names[0].rstrip("/"))
    code = {p.relative_to(ROOT) for room in CODE for p in (ROOT / room).rglob("*.py")}
    code = {p for p in code if not p.name.startswith("__")}
    assert code <= named, f"the tree lacks {sorted(map(str, code - named))}"
