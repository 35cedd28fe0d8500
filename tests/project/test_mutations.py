"""The mistakes that the mutation benchmark makes: which there are, and what stays as it is."""

import ast

import pytest
from conftest import ROOT

from benchmarks.mutation.edits import mutations
from benchmarks.mutation.mutants import TESTS, draw


@pytest.mark.parametrize(
    ("line", "mutants"),
    [
        ("x = a < b", ["x = a <= b", "x = a >= b"]),
        ("x = (a)  not  in  b", ["x = (a)  in  b"]),
        ("x = a and b or c", ["x = a or b or c", "x = a and b and c"]),
        ("x = a - b * c", ["x = a + b * c", "x = a - b / c"]),
        ("x = -a[1]", ["x = a[1]", "x = -a[2]"]),
        ("x = not a", ["x = a"]),
        ("x = not (a)", ["x = (a)"]),
        ("x = True", ["x = False"]),
        ("x = 0.0, 2.5", ["x = 1.0, 2.5", "x = 0.0, 5.0"]),
        ("x = 'ü'; y = 1", ["x = 'XXü'; y = 1", "x = 'ü'; y = 2"]),
        ("x = max(a.argmax())", ["x = min(a.argmax())", "x = max(a.argmin())"]),
        ("x = a if b else c", ["x = a if (not (b)) else c"]),
        ("x = [a for a in b if a]", ["x = [a for a in b if (not (a))]"]),
        ("x = f(a=b, c=d)", ["x = f(c=d)", "x = f(a=b)"]),
        ("f(a)", ["pass"]),
        ("x += a", ["pass", "x -= a"]),
        ("x.y = a", ["pass"]),
        ("raise E(f'{a + 1}', 'text', b < 1)", ["pass"]),
        ("print('text', a + 1)", ["pass"]),
    ],
)
def test_each_kind_of_mistake_is_made(line: str, mutants: list[str]) -> None:
    assert [m.after for m in mutations(f"{line}\n")] == mutants


@pytest.mark.parametrize(
    "line",
    [
        '"""A docstring < of 1 text."""',
        "import a",
        "x = f'{a + 1}'",
        "x = 'a text for people'",
        "x: Literal[1, 'a'] | None",
        "class P(Protocol):\n    x: int = 1",
        "X = list[int] | None",
        "x = folder / f'{name}'",
    ],
)
def test_texts_and_types_stay_as_they_are(line: str) -> None:
    assert mutations(f"{line}\n") == []


def test_a_mutant_is_python_and_differs_in_the_line_that_is_named() -> None:
    for mutant in draw(30, 1):
        ast.parse(mutant.mutation.source)
        lines = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines()
        changed = mutant.mutation.source.splitlines()
        at = mutant.mutation.line - 1
        assert lines[:at] == changed[:at]
        assert (lines[at].strip(), changed[at].strip()) == (
            mutant.mutation.before,
            mutant.mutation.after,
        )
        assert lines[at] != changed[at]


def test_a_mutant_is_the_same_wherever_its_function_is_and_whatever_is_said_of_it() -> None:
    one = mutations("def f(a):\n    return a < b\n")
    other = mutations(
        'x = 1\n\n\ndef f(a: int) -> int:\n    """Text."""\n    return a < b  # why\n'
    )
    assert [m.code for m in one] == [m.code for m in other if "a" in m.before]
    assert len({m.code for m in other}) == len(other)


def test_the_draw_is_the_same_each_time_and_another_with_another_seed() -> None:
    keys = [[m.key for m in draw(50, seed)] for seed in (1, 1, 2)]
    assert keys[0] == keys[1] != keys[2] and len(set(keys[0])) == 50
    assert [m.key for m in draw(20, 1)] == keys[0][:20]


def test_the_tests_of_each_file_exist() -> None:
    for tests in TESTS.values():
        assert all((ROOT / "tests" / f"{name}.py").is_file() for name in tests.split())
