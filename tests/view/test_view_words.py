"""The words of the view: every language has all that the view and the static site say."""

import ast
import re

import pytest
from conftest import ROOT

VIEW, SITE = ROOT / "gptcore" / "page" / "view", ROOT / "export" / "site"
LANGUAGES = [path.stem for path in sorted((VIEW / "words").glob("*.js"))]
# Keys of which a part is put in while the page runs.
DRAWN = (
    "attention.",
    "picture.",
    "weights.",
    "told.",
    "role.",
    "set.",
    "help.",
    "preset.",
    "finish.",
    "key.",
    "theme.",
    "room.",
    "import.",
    "doing.",
    "curve.",
)


def words(language: str) -> dict[str, str]:
    text = (VIEW / "words" / f"{language}.js").read_text(encoding="utf-8")
    return dict(re.findall(r'^  "?([a-z_.]+)"?: "(.*)",$', text, re.MULTILINE))


def modules() -> str:
    paths = [*VIEW.rglob("*.js"), *SITE.glob("*.js")]
    paths = [path for path in paths if path.parent.name not in ("vendor", "words")]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_every_key_once_with_the_same_values(language: str) -> None:
    english, other = words("en"), words(language)
    assert set(other) == set(english)
    for key, text in other.items():
        # "one|many" is about a number that one of the two may leave out
        assert set(re.findall(r"\{\w+\}", text)) <= set(re.findall(r"\{\w+\}", english[key])), key
        assert text.strip(), key


def test_what_the_view_says_has_words_and_no_word_is_left_over() -> None:
    known, text = set(words("en")), modules()
    said = set(re.findall(r'say\("([a-z_.]+)"', text))
    assert len(said) > 60 and said <= known
    written = set(re.findall(r'"([a-z_.]+)"', text))
    assert {key for key in known - written if not key.startswith(DRAWN)} == set()


def said_by_the_server() -> set[str]:
    """The texts in the runtime's code, in small letters, with a 1 for each value in them."""

    def text(node: ast.expr) -> str:
        if isinstance(node, ast.JoinedStr):
            return "".join(map(text, node.values))
        return str(node.value) if isinstance(node, ast.Constant) else "1"

    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.glob("gptcore/**/*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {text(n).lower() for n in nodes if isinstance(n, ast.Constant | ast.JoinedStr)}


def test_what_is_found_by_its_english_words_is_said_so_by_the_server() -> None:
    said = "\n".join(said_by_the_server())
    known = {key: text for key, text in words("en").items() if key.startswith("told.")}
    patterns = {k: re.sub(r"\\{\w+\\}", ".+", re.escape(t.lower())) for k, t in known.items()}
    unsaid = {k for k, p in patterns.items() if not re.search(f"^{p}$", said, re.MULTILINE)}
    # These two are put together of parts, and held by test_mistakes_are_told_in_chinese.
    assert unsaid == {"told.line", "told.sentence"}
