"""What a record keeps of a stream beside its mark, and what becomes of it when the tree changes."""

from __future__ import annotations

import json
from decimal import Decimal

from floodmark.mill.horizon import NOTHING, at
from floodmark.mill.pending import StreamMemory

STORED = StreamMemory(
    last={0: (Decimal("1.5"), 7, 7)},
    next_unseen={0: 12, 1: 3},
    ends={1: 3},
    done_level=at(Decimal("1.5")),
    promised_level=at(9),
    has_rest=True,
    expressions=("price", "k", "k"),
)


def test_a_memory_comes_out_of_a_record_as_it_went_in() -> None:
    """Through JSON, Decimals with all their digits."""
    assert StreamMemory.from_json(json.loads(json.dumps(STORED.to_json()))) == STORED


def test_a_stream_that_is_new_to_the_record_has_an_empty_memory() -> None:
    """No mark is a state of its own."""
    assert StreamMemory.from_json({}) == StreamMemory(done_level=NOTHING)


def test_the_highest_keys_follow_their_expressions_when_a_node_leaves_the_tree() -> None:
    """One edge less asks for the key k once less."""
    fewer = STORED.in_terms_of(("price", "k"))
    assert (fewer.last, fewer.expressions, fewer.next_unseen) == (
        {0: (Decimal("1.5"), 7)},
        ("price", "k"),
        STORED.next_unseen,
    )


def test_the_highest_keys_follow_their_expressions_when_a_node_comes_into_the_tree() -> None:
    """One edge more asks for it once more."""
    assert STORED.in_terms_of(("price", "k", "k", "k")).last == {0: (Decimal("1.5"), 7, 7, 7)}


def test_what_was_promised_does_not_bind_the_run_after_an_end() -> None:
    """Partitions that ended begin anew behind their end, perhaps at lower keys."""
    assert STORED.for_next_run().promised_level == NOTHING
