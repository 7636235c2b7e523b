"""Small changes of a module's functions, each of which a test should notice: `scripts/mutants.py` tries them."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
OPPOSITES = {"max": "min", "min": "max", "any": "all", "all": "any"}
WORDS_ONLY = ("log", "self.log_mark", "log_rules", "reach", "write")
"""Calls that say something and do nothing: a mutant without them is as good."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module: the text of the whole module with it, and the function that it is in."""

    module: str
    line: int
    function: str
    change: str
    key: str
    text: str


@dataclass
class Change:
    """Where a change is made: `apply` makes it in the tree and gives back how it is undone."""

    line: int
    words: str
    apply: Callable[[], Callable[[], None]]


def set_field(node: ast.AST, name: str, value: object) -> Callable[[], Callable[[], None]]:
    """Another value of a field of a node."""

    def apply() -> Callable[[], None]:
        before = getattr(node, name)
        setattr(node, name, value)
        return lambda: setattr(node, name, before)

    return apply


def set_item(items: list[ast.stmt], place: int, value: list[ast.stmt]) -> Callable[[], Callable[[], None]]:
    """Other nodes in the place of one."""

    def apply() -> Callable[[], None]:
        before = list(items)
        items[place : place + 1] = value
        return lambda: items.__setitem__(slice(None), before)

    return apply


def changes_of(function: ast.FunctionDef) -> Iterator[Change]:
    """Everything that is tried in one function; functions inside it are part of it."""
    if isinstance(function.returns, ast.Constant) and function.returns.value is None and len(function.body) > 2:
        yield Change(function.lineno, "does nothing at all", set_field(function, "body", [ast.Pass()]))
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, ast.Compare):
            yield Change(node.lineno, f"not: {first(node.test)}", set_field(node, "test", negation(node.test)))
        if isinstance(node, ast.comprehension):
            for place, test in enumerate(node.ifs):
                yield Change(test.lineno, f"not: {first(test)}", set_item(node.ifs, place, [negation(test)]))  # type: ignore[arg-type,list-item]
        yield from expression_changes(node)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(getattr(node, name, None), list):
                yield from statement_changes(getattr(node, name))


def expression_changes(node: ast.AST) -> Iterator[Change]:
    """Operators and their neighbours."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        yield Change(
            node.lineno, f"other comparison: {first(node)}", set_field(node, "ops", [SWAPS[type(node.ops[0])]()])
        )
    if isinstance(node, ast.BoolOp):
        yield Change(node.lineno, f"and for or: {first(node)}", set_field(node, "op", SWAPS[type(node.op)]()))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OPPOSITES:
        opposite = ast.Name(OPPOSITES[node.func.id], ast.Load())
        yield Change(node.lineno, f"{opposite.id}: {first(node)}", set_field(node, "func", opposite))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and is_one(node.right):
        yield Change(node.lineno, f"without the one: {first(node)}", set_field(node, "right", ast.Constant(0)))
    if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
        yield Change(
            node.value.lineno,
            f"not: {node.arg}={node.value.value}",
            set_field(node.value, "value", not node.value.value),
        )


def statement_changes(body: list[ast.stmt]) -> Iterator[Change]:
    """Statements that are left out."""
    for place, statement in enumerate(body):
        if (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and does_something(statement.value)
        ):
            yield Change(statement.lineno, f"without: {first(statement)}", set_item(body, place, [ast.Pass()]))
        if isinstance(statement, ast.Raise):
            yield Change(statement.lineno, f"without: {first(statement)}", set_item(body, place, [ast.Pass()]))
        if isinstance(statement, ast.With) and not any(item.optional_vars for item in statement.items):
            words = f"without: with {', '.join(first(item.context_expr) for item in statement.items)}"
            yield Change(statement.lineno, words, set_item(body, place, statement.body))


def negation(test: ast.expr) -> ast.expr:
    """The opposite of a condition."""
    return ast.UnaryOp(ast.Not(), test)


def is_one(node: ast.expr) -> bool:
    """Whether it is the number one."""
    return isinstance(node, ast.Constant) and node.value == 1 and not isinstance(node.value, bool)


def does_something(call: ast.Call) -> bool:
    """Whether a call is more than a line of a log, or a point where a test may kill."""
    name = ast.unparse(call.func)
    return name not in WORDS_ONLY and not name.startswith("log.")


def first(node: ast.AST) -> str:
    """The code in one short line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:69]}…"


def mutants_of(module: str, text: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree, tried = ast.parse(text), set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        if function.name.startswith("__") or function.name in ("describe", "serialize"):
            continue
        unchanged = hashed(ast.unparse(function))
        for change in list(changes_of(function)):
            key = hashed(module, function.name, unchanged, change.words, str(change.line - function.lineno))
            if (change.line, change.words) not in tried:  # a function inside another one is walked twice
                tried.add((change.line, change.words))
                undo = change.apply()
                changed = ast.unparse(ast.fix_missing_locations(tree))
                undo()
                yield Mutant(module, change.line, function.name, change.words, key, changed)


def hashed(*texts: str) -> str:
    """A short name for texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
