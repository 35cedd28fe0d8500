"""One-line mistakes (mutations) of a Python source, for mutants.py.

    >>> [m.after for m in mutations("def f(a):\\n    return a < 1\\n")]
    ['return None', 'return a <= 1', 'return a >= 1', 'return a < 2']

The kinds are the customary ones (mutmut, cosmic-ray): other operators, comparisons and constants,
conditions negated, statements and keyword arguments left out, None returned. Docstrings,
type annotations, f-strings and the texts of messages stay as they are.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ("<", ["<=", ">="]),
    ast.LtE: ("<=", ["<", ">"]),
    ast.Gt: (">", [">=", "<="]),
    ast.GtE: (">=", [">", "<"]),
    ast.Eq: ("==", ["!="]),
    ast.NotEq: ("!=", ["=="]),
    ast.In: ("in", ["not in"]),
    ast.NotIn: ("not in", ["in"]),
    ast.Is: ("is", ["is not"]),
    ast.IsNot: ("is not", ["is"]),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
}
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any", "argmax": "argmin"}
MESSAGES = {"print", "write", "warn"}  # functions whose arguments are texts for people


@dataclass(frozen=True)
class Mutation:
    """A source with one mistake in it."""

    line: int  # from 1
    before: str  # that line, without its indentation
    after: str
    source: str

    @property
    def code(self) -> str:
        """The syntax tree of the mutated function, or statement outside functions, as a text.

        It has no comments, docstrings or annotations.
        """
        tree = ast.parse(self.source)
        around = [node for node in ast.walk(tree) if is_around(node, self.line)]
        functions = [node for node in around if isinstance(node, ast.FunctionDef)]
        innermost = (functions or around[:1])[-1]
        for node in ast.walk(innermost):
            for name in {"annotation", "returns"} & set(node._fields):
                setattr(node, name, None)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                node.body = [child for child in node.body if not is_docstring(child)]
        return ast.dump(innermost)


def mutations(source: str) -> list[Mutation]:
    """Return every mutation of a source, in the order of the text."""
    found, lines = [], source.splitlines()
    for start, end, text in sorted(set(Edits(source).of(ast.parse(source)))):
        changed = source[:start] + text + source[end:]
        line = source.count("\n", 0, start)
        after = changed.split("\n", line + 1)[line]
        found.append(Mutation(line + 1, lines[line].strip(), after.strip(), changed))
    return found


Edit = tuple[int, int, str]  # characters from..to of the source are replaced by the text


class Edits:
    """Finds the edits of a syntax tree; they are made in the text, so that all else stays."""

    def __init__(self, source: str):
        self.source = source
        self.lines = [0]  # the offset at which each line begins
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.texts = source.splitlines()

    def place(self, line: int, column: int) -> int:
        """A node's position, counted in characters instead of bytes of a line."""
        before = self.texts[line - 1].encode()[:column].decode()
        return self.lines[line - 1] + len(before)

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.place(node.lineno, node.col_offset),
            self.place(node.end_lineno, node.end_col_offset),
        )

    def of(self, node: ast.AST, is_message: bool = False) -> Iterator[Edit]:
        """Yield all edits in a node and the nodes below it."""
        if isinstance(node, ast.JoinedStr) or (is_message and isinstance(node, ast.Constant)):
            return
        is_message = is_message or isinstance(node, ast.Raise) or name_of(node) in MESSAGES
        if not is_message or isinstance(node, ast.stmt):
            yield from self.here(node)
        for child in mutable_children(node):
            yield from self.of(child, is_message)

    def here(self, node: ast.AST) -> Iterator[Edit]:
        """Yield the edits of this node itself."""
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for left, op, right in zip(sides, node.ops, sides[1:]):
                    old, others = COMPARISONS[type(op)]
                    yield from (self.between(left, right, old, new) for new in others)
            case ast.BoolOp():
                old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:]):
                    yield self.between(left, right, old, new)
            case ast.BinOp() if type(node.op) in ARITHMETIC and not fails_at_once(node):
                yield self.between(node.left, node.right, *ARITHMETIC[type(node.op)])
            case ast.AugAssign() if type(node.op) in ARITHMETIC:
                old, new = ARITHMETIC[type(node.op)]
                yield self.between(node.target, node.value, f"{old}=", f"{new}=")
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                start = self.span(node)[0]
                found = re.compile(r"not\s*|-").match(self.source, start)
                yield start, found.end(), ""
            case ast.Constant():
                if (text := other_constant(node.value)) is not None:
                    yield (*self.span(node), text)
            case ast.Call():
                yield from self.calls(node)
            case ast.If() | ast.IfExp() | ast.While():
                yield from self.turned(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    yield from self.turned(test)
            case ast.Return(value=ast.expr() as value) if not is_none(value):
                yield (*self.span(value), "None")
        if is_left_out(node):
            yield (*self.span(node), "pass")

    def between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> Edit:
        """Replace an operator, which stands between two nodes."""
        start, end = self.span(left)[1], self.span(right)[0]
        words = r"\s+".join(map(re.escape, old.split()))
        found = re.search(words, self.source[start:end])
        assert found, f"no {old} in {self.source[start:end]!r}"
        return start + found.start(), start + found.end(), new

    def turned(self, test: ast.expr) -> Iterator[Edit]:
        """Yield the negation of a condition that has no operator of its own."""
        if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)):
            start, end = self.span(test)
            yield start, end, f"(not ({self.source[start:end]}))"

    def calls(self, node: ast.Call) -> Iterator[Edit]:
        """Yield the opposite function, and the call without each of its keyword arguments."""
        name = name_of(node)
        if name in OPPOSITES:
            end = self.span(node.func)[1]
            yield end - len(name), end, OPPOSITES[name]
        for keyword in node.keywords:
            if keyword.arg is None:
                continue
            start, end = self.span(keyword)
            if comma := re.match(r"\s*,\s*", self.source[end:]):
                yield start, end + comma.end(), ""
            else:
                comma = re.search(r",?\s*$", self.source[:start])
                yield comma.start(), end, ""


def mutable_children(node: ast.AST) -> Iterator[ast.AST]:
    """Those that are not annotations, docstrings, imports or a Protocol's methods."""
    if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if is_docstring(child):
                continue
            if isinstance(child, ast.AST) and not isinstance(child, (ast.Import, ast.ImportFrom)):
                yield child


def is_around(node: ast.AST, line: int) -> bool:
    """Return whether a statement has this line."""
    if not isinstance(node, ast.stmt):
        return False
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return first <= line <= (node.end_lineno or first)


def is_docstring(node: object) -> bool:
    return isinstance(node, ast.Expr) and is_text(node.value)


def name_of(node: ast.AST) -> str | None:
    """Return the name of the called function or method."""
    if not isinstance(node, ast.Call):
        return None
    return getattr(node.func, "id", None) or getattr(node.func, "attr", None)


def other_constant(value: object) -> str | None:
    match value:
        case bool():
            return repr(not value)
        case int():
            return repr(value + 1)
        case float():
            return repr(value * 2 or 1.0)
        case str() if " " not in value:  # others are texts for people
            return repr(f"XX{value}")
    return None


def is_left_out(node: ast.AST) -> bool:
    """Statements that change or check something, without which the rest still runs."""
    match node:
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Continue() | ast.Break():
            return True
        case ast.Delete() | ast.AugAssign():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return False


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def fails_at_once(node: ast.BinOp) -> bool:
    """Where any other operator is a TypeError: `list | None` of a type, `folder / "name"`."""
    sides = (node.left, node.right)
    return any(is_none(s) or isinstance(s, ast.JoinedStr) or is_text(s) for s in sides)
