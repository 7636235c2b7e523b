"""What a campaign has proved: tests say it in a sentence each, the run prints it, and `docs/guarantees.md` keeps it.

Its table of kills is made of the tests themselves: of the points that each of them is run with.

`FLOODMARK_PROOFS=docs/guarantees.md` has the table there written anew: rows of tests that ran and passed are replaced,
those of tests that did not run stay, so that a part of the campaign forgets nothing of the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

VARIABLE = "FLOODMARK_PROOFS"
BEGIN, END = "<!-- faults that were tried -->", "<!-- end of faults -->"
HEAD = "| what breaks | what the run says | what is there in the end | shown by |\n|---|---|---|---|\n"
LONGEST = 200
CRASH = Path(__file__).parent / "crash"
CHANGING = {
    r"^\d{4}-\d\d-\d\dT\S+ ": "",
    r"/(?:[\w.@=+-]+/)+": "…/",
    r"127\.0\.0\.1:\d+": "127.0.0.1:…",
    r"\b\d+\.\d+ s\b": "… s",
    r"(?<![0-9A-Za-z])(?:[0-9a-f]{8,}|\d{5,})(?![0-9A-Za-z])": "…",
}
KILLS = ("<!-- kills that are tried -->", "<!-- end of kills -->")
KILLS_HEAD = ["| killed at | with | what holds | shown by |", "|---|---|---|---|"]
Prove = Callable[[str, str, str], None]


@dataclass(frozen=True)
class Proof:
    """One fault: what broke, what the run said about it, and what was found afterwards."""

    test: str
    fault: str
    message: str
    found: str

    def row(self) -> str:
        """As the table has it."""
        return f"| {self.fault} | {quotable(self.message)} | {self.found} | `{self.test}` |"


PROOFS = pytest.StashKey[list[Proof]]()


@pytest.fixture
def prove(request: pytest.FixtureRequest) -> Prove:
    """Say what a test has shown, once it has: what broke, what the run said, and what was there in the end."""

    def say(fault: str, message: str, found: str) -> None:
        proofs = request.config.stash.setdefault(PROOFS, [])
        proofs.append(Proof(request.node.name.partition("[")[0], fault, message, found))

    return say


def quotable(message: str) -> str:
    """The message in one line, without what is another one in every run: ports, folders, processes, counts of bytes."""
    text = " ".join(message.replace("|", "¦").split())
    for pattern, instead in CHANGING.items():
        text = re.sub(pattern, instead, text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def summarise(config: pytest.Config, write_line: Callable[[str], None]) -> None:
    """Print what was proved, and bring the page up to date where that is asked for."""
    proofs = config.stash.get(PROOFS, [])
    for line in dict.fromkeys(f"{proof.fault}: {proof.found}" for proof in proofs):
        write_line(line)
    page = os.environ.get(VARIABLE)
    if page and proofs:
        file = config.rootpath / page
        file.write_text(with_table(file.read_text(), proofs))


def with_table(text: str, proofs: list[Proof]) -> str:
    """The page with these rows among those that it has."""
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    tests = {f"`{proof.test}` |" for proof in proofs}
    kept = [row for row in table.splitlines()[3:] if row and not row.endswith(tuple(tests))]
    rows = sorted({*kept, *(proof.row() for proof in proofs)})
    return f"{before}{BEGIN}\n{HEAD}" + "".join(f"{row}\n" for row in rows) + f"{END}{after}"


def kills() -> list[str]:
    """A line for each test that is run with points to die at, and how often it is run."""
    modules = [import_module(f"tests.crash.{path.stem}") for path in sorted(CRASH.glob("test_*.py"))]
    tests = [test for module in modules for test in vars(module).values() if "point" in _parameters(test)]
    return [*KILLS_HEAD, *map(_kill_row, tests)]


def _kill_row(test: Callable[..., None]) -> str:
    found = _parameters(test)
    times = len(list(product(*found.values())))
    points = _by_stem(found.pop("point"))
    others = "; ".join(f"{name} {', '.join(values)}" for name, values in found.items()) or "–"
    sentence = str(test.__doc__).splitlines()[0].rstrip(".").replace("|", "¦")
    return f"| {points} | {others} | {sentence} | `{test.__name__}` ({times} times) |"


def _by_stem(points: list[str]) -> str:
    """Each point once; of those of several sinks, the sinks' places behind it."""
    places: dict[str, list[str]] = {}
    for point in points:
        stem, colon, place = point.partition(":")
        places.setdefault(stem, []).extend([place] if colon else [])
    return ", ".join(f"`{stem}{f':{each[0]}' if each else ''}`{_and(each[1:])}" for stem, each in places.items())


def _and(places: list[str]) -> str:
    return "".join(f", `:{place}`" for place in places)


def _parameters(test: object) -> dict[str, list[str]]:
    """What a test is run with, by the name of the parameter; of parameters that go together, none."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    return {mark.args[0]: [_value(each) for each in mark.args[1]] for mark in marks if isinstance(mark.args[0], str)}


def _value(each: object) -> str:
    return str(each.values[0] if isinstance(each, ParameterSet) else each)
