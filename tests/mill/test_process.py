"""A task's work, without Spark: batches of elements in, texts out, whatever the elements and the function are like."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from floodmark.mill.declaration import declare
from floodmark.mill.join_tree import EndOfStream
from floodmark.mill.process import ProcessTask
from floodmark.spark.faults import ElementFault


@dataclass
class Plain:
    """A class that columns can fill; not frozen."""

    k: int
    share: float = 0.5
    tags: list[str] = field(default_factory=list)


@dataclass
class ByName:
    """One that takes its second field only by name."""

    k: int
    _: KW_ONLY
    share: float = 0.5


@dataclass
class WithArgument:
    """One that takes something that is no field, in between."""

    k: int
    scale: InitVar[int] = 2
    share: float = 0.5

    def __post_init__(self, scale: int) -> None:
        self.k *= scale


SHARED, SHARED_BY_NAME = Plain(0), ByName(0)


def same(element: Plain) -> Plain:
    """Gives the same object every time, changed."""
    SHARED.k = element.k
    return SHARED


def same_by_name(element: ByName) -> Iterator[ByName]:
    """Gives the same object twice, changed in between."""
    SHARED_BY_NAME.k = element.k
    yield SHARED_BY_NAME
    SHARED_BY_NAME.k = -element.k
    yield SHARED_BY_NAME


def ending(element: ByName) -> Iterator[ByName | EndOfStream]:
    """Three elements for each, and the end of the stream behind those of the second."""
    yield from [element] * 3
    if element.k == 2:
        yield EndOfStream()


def spoiled(element: ByName) -> ByName:
    """What it gives for the second cannot be written, and for the third it fails."""
    return ByName(1 // (3 - element.k), share=float("nan") if element.k == 2 else 0.5)


def plain(element: Plain) -> Plain:
    return element


def by_name(element: ByName) -> ByName:
    return element


def with_argument(element: WithArgument) -> WithArgument:
    return element


def batch_of(*rows: dict[str, Any] | str) -> pa.RecordBatch:
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    columns = {"partition": pa.array([0] * len(rows), pa.int32()), "offset": pa.array(range(len(rows)), pa.int64())}
    element = pa.StructArray.from_arrays([*columns.values(), pa.array(texts)], [*columns, "value"])
    return pa.RecordBatch.from_arrays([element], ["element"])


def output_of(process: Callable[..., Any], *rows: dict[str, Any] | str) -> pa.RecordBatch:
    declared = declare(process)
    [batch] = ProcessTask.of(declared, declared.output, 1).run([batch_of(*rows)])
    return batch


def elements_of(process: Callable[..., Any], *rows: dict[str, Any] | str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in output_of(process, *rows).column("value").to_pylist()]


@pytest.mark.parametrize(
    ("process", "rows", "expected"),
    [
        (plain, [{"k": 1, "share": 1.5, "tags": ["a"]}] * 2, [{"k": 1, "share": 1.5, "tags": ["a"]}] * 2),
        (plain, [{"k": 1, "share": 2, "tags": []}], [{"k": 1, "share": 2.0, "tags": []}]),
        (
            plain,
            [{"k": 1}, {"k": 2, "share": 1.5}],
            [{"k": 1, "share": 0.5, "tags": []}, {"k": 2, "share": 1.5, "tags": []}],
        ),
        (by_name, [{"k": 1, "share": 1.5}], [{"k": 1, "share": 1.5}]),
        (with_argument, [{"k": 1, "share": 1.5}], [{"k": 2, "share": 1.5}]),
        (same, [{"k": 1}, {"k": 2}], [{"k": 1, "share": 0.5, "tags": []}, {"k": 2, "share": 0.5, "tags": []}]),
        (same_by_name, [{"k": 1}, {"k": 2}], [{"k": k, "share": 0.5} for k in (1, -1, 2, -2)]),
    ],
    ids=[
        "alike",
        "int for float",
        "defaults",
        "by name",
        "an argument that is no field",
        "one object",
        "one of values",
    ],
)
def test_elements_read_at_once_are_those_that_are_read_one_by_one(
    process: Callable[..., Any], rows: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    """What is quick must not be different; and output is written before the function is called again."""
    assert elements_of(process, *rows) == expected


@pytest.mark.parametrize("bad", [{"k": 1.0}, {"k": True}, {"k": "1"}, {}, "[]", "{}, {}", ""])
def test_one_bad_element_among_many_is_reported_with_its_place(bad: dict[str, Any] | str) -> None:
    """Nothing is bent, however many are read at once."""
    with pytest.raises(ElementFault, match="partition 0, offset 2"):
        elements_of(plain, {"k": 1}, {"k": 2}, bad, {"k": 3})


def test_output_is_numbered_within_its_call() -> None:
    """By element and number it has one order for ever; the end stands behind what came before it."""
    columns = output_of(ending, {"k": 1}, {"k": 2}).select(["offset", "next", "sequence", "is_end"]).to_pydict()
    assert list(zip(*columns.values(), strict=True)) == [
        (0, 1, 0, False),
        (0, 1, 1, False),
        (0, 1, 2, False),
        (1, 2, 0, False),
        (1, 2, 1, False),
        (1, 2, 2, False),
        (1, 2, 3, True),
    ]


def stopping(element: ByName) -> EndOfStream | None:
    return EndOfStream() if element.k == 2 else None


def test_a_function_without_output_can_end_the_stream() -> None:
    """Its end stands where the element did that it was given."""
    columns = output_of(stopping, {"k": 1}, {"k": 2}).select(["offset", "next", "value", "is_end"]).to_pydict()
    assert columns == {"offset": [1], "next": [2], "value": [None], "is_end": [True]}


def test_what_went_wrong_first_is_what_is_reported() -> None:
    """Texts are written when all calls are done, and still an element that has none comes before a later failure."""
    with pytest.raises(ElementFault, match=r"cannot be written.*nan.*offset 1"):
        elements_of(spoiled, {"k": 1}, {"k": 2}, {"k": 3})


def test_the_garbage_collector_is_left_as_it_was() -> None:
    """A worker goes on to other tasks."""
    before = gc.get_threshold()
    elements_of(plain, {"k": 1})
    assert gc.get_threshold() == before
