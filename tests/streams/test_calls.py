"""A user's function called for every record of a batch: rows, drops, failures, and what does not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from floodmark.streams import retry
from floodmark.streams.calls import FAILURE, CallResult, call, call_on_batch, fail_misfits
from floodmark.streams.policy import stop

SCHEMA = pa.schema([("id", pa.int64()), ("total", pa.decimal128(10, 2))])


def parse(record: Any) -> dict[str, int]:  # noqa: ANN401 (a record is what its source says)
    return {"id": int(record["v"])}


def test_a_record_that_gives_none_is_dropped_and_one_that_gives_dicts_becomes_several_rows() -> None:
    """As in a stream."""
    assert call(lambda record: None, {"v": "1"}, stop) == CallResult()
    assert call(lambda record: [{"id": 1}, {"id": 2}], {"v": "1"}, stop) == CallResult(({"id": 1}, {"id": 2}))


def test_a_record_is_tried_again_with_growing_pauses_and_then_failed() -> None:
    """The pauses are those of the policy."""
    pauses: list[float] = []
    outcome = call(parse, {"v": "x"}, retry(2, "1s"), pauses.append)
    assert outcome.failure == "ValueError: invalid literal for int() with base 10: 'x'"
    assert pauses == [1.0, 2.0]


def test_a_function_that_returns_no_dict_fails_its_record() -> None:
    """A text is a sequence too, of letters."""
    assert "returned a str" in (call(lambda record: "no", {"v": "x"}, stop).failure or "")


def test_a_row_that_does_not_fit_the_schema_fails_its_record_alone() -> None:
    """Its neighbours in the batch are none the worse for it; a field that nobody declared is not lost in silence."""
    fine, wrong, strange = CallResult(({"id": 1},)), CallResult(({"id": "one"},)), CallResult(({"idd": 1},))
    results = fail_misfits([fine, wrong, strange], SCHEMA)
    assert results[0] == fine
    assert "does not fit the schema" in (results[1].failure or "")
    assert results[2].failure == "the function returned a field 'idd' that the schema does not have"


def test_a_record_of_which_one_row_does_not_fit_gives_no_row_at_all() -> None:
    """Half a record would be written, and the whole of it again by the retry."""
    [result] = fail_misfits([CallResult(({"id": 1}, {"id": "two"}))], SCHEMA)
    assert (result.rows, result.failure is None) == ((), False)


def test_a_batch_holds_the_rows_with_their_places_and_then_the_failures() -> None:
    """The place is the source's own; the function does not see it. A failure has the record as it came."""
    batch = pa.RecordBatch.from_pydict({"v": ["1", "x", "3"], "_fm_position": [7, 8, 9]})
    seen: list[object] = []
    healed = call_on_batch(batch, lambda record: (seen.append(record), parse(record))[1], stop, SCHEMA)
    assert seen[0] == {"v": "1"}
    reason = "ValueError: invalid literal for int() with base 10: 'x'"
    assert [(row["id"], row["_fm_position"], row[FAILURE]) for row in healed.to_pylist()] == [
        (1, 7, None),
        (3, 9, None),
        (None, 8, {"text": '{"v": "x"}', "reason": reason, "record": {"v": "x"}}),
    ]
