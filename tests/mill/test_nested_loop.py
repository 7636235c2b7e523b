"""The table of the specification holds for the reference: what is compared with it is compared with the rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from floodmark.mill.declaration import declare
from floodmark.mill.injection import Attempt, Position
from floodmark.mill.process import caller
from tests.mill.cases import CASES, Case
from tests.mill.nested_loop import Match, calls


def pairs_of(tree_edges: int, masters: list[Match]) -> list[list[tuple[Any, list[Any]]]]:
    """The pairs of the root's edges, which are all that the table has."""
    return [
        [(found.element, [right.element for right in found.partners[edge]]) for found in masters]
        for edge in range(tree_edges)
    ]


def run(case: Case) -> list[dict[str, Any]]:
    """A whole mill in a few lines: declared as by its user, joined by loops, called as in a task."""
    declared = declare(case.process, **case.declared)
    streams = {cls: [[declared.codecs[cls].decode(raw) for raw in rows]] for cls, rows in case.streams.items()}
    output = declared.output
    assert output is not None
    with caller(declared.signature, declared.injector) as call:
        return [
            json.loads(output.texts([output.snapshot(element)])[0])
            for masters in calls(declared.tree, streams)
            for element in declared.signature.returns.elements(
                call(
                    [found.element for found in masters] if declared.tree.window is not None else masters[0].element,
                    pairs_of(len(declared.tree.edges), masters),
                    Attempt(1, Position(0, 0)),
                )
            )
        ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_table_of_the_specification(case: Case) -> None:
    """Literal streams in, literal rows out, in master order."""
    assert run(case) == case.expected
