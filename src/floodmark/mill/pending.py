"""One pass over the keys of a stream, from which a turn is planned: pieces of neighbours, faults, and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from floodmark.errors import ElementInvalid, FloodmarkError, KeyDecreased
from floodmark.hwm import Span
from floodmark.mill.brokers import OFFSET, PARTITION
from floodmark.mill.element_columns import IS_END, key_columns, with_columns
from floodmark.mill.feeds import Feed
from floodmark.mill.horizon import Keys, Piece
from floodmark.mill.mishaps import position
from floodmark.mill.plain_keys import keyed_batches
from floodmark.mill.shelf import is_within
from floodmark.mill.surveying import NOTES, Survey

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(frozen=True)
class Found:
    """What the pass met in one partition, in order; `end` is the offset of its first end message.

    `has_rest`: something follows the end. (Offsets cannot tell: transactions use some up.)
    """

    pieces: tuple[Piece, ...] = ()
    end: int | None = None
    has_rest: bool = False


def surveyed(feed: Feed, spark: SparkSession, span: Span, *, ordered: bool) -> DataFrame:
    """Every message of a span with its keys; where Python reads those, what it finds is noted beside them."""
    rows, keys = feed.messages(spark, span), feed.plain_keys
    if not keys or not feed.inlet.is_ordered:
        return feed.with_keys(rows)
    codec, types = feed.codec, feed.key_types

    def survey(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from Survey(types, ordered=ordered).noted(keyed_batches(batches, codec, keys))

    notes = Survey(types, ordered=ordered).notes_type()
    return rows.mapInArrow(survey, with_columns(rows.schema, {**key_columns(keys), NOTES: notes}))


def scout(feed: Feed, messages: DataFrame, *, ordered: bool = True) -> dict[int, Found]:
    """What these messages, as `surveyed` gives them, are, by partition.

    Raises KeyDecreased where `ordered` and keys go down, ElementInvalid for an element without a key.
    """
    if not feed.keys:
        return ends_in(messages)
    found = noted(messages) if NOTES in messages.columns else scanned(feed, messages, ordered=ordered)
    return found_in(feed, [row.asDict() for row in found.collect()], ordered=ordered)


def noted(messages: DataFrame) -> DataFrame:
    """What the pass that read the keys has found."""
    from pyspark.sql import functions as F

    return messages.where(F.col(NOTES).isNotNull()).select(F.inline(NOTES))


def scanned(feed: Feed, messages: DataFrame, *, ordered: bool) -> DataFrame:
    """The same, found in a pass of its own."""
    from pyspark.sql.types import StructType

    types = feed.key_types

    def survey(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from Survey(types, ordered=ordered).run(batches)

    told = {column.name: column.type for column in Survey(types, ordered=ordered).schema()}
    return feed.scan(messages).mapInArrow(survey, with_columns(StructType(), told))


def ends_in(messages: DataFrame) -> dict[int, Found]:
    """The same for a stream without keys, where Spark alone can tell: one piece before the first end."""
    found = {row.partition: row for row in extents(messages)}
    ends = {lane: row.end for lane, row in found.items() if row.end is not None}
    followed = {lane: (0, end) for lane, end in ends.items() if found[lane].beyond > end + 1}
    before = extents(messages.where(is_within(followed))) if followed else []
    pieces = {lane: _one_piece(row) for lane, row in found.items() if lane not in followed}
    pieces |= {row.partition: _one_piece(row) for row in before}
    return {lane: Found(pieces.get(lane, ()), ends.get(lane), lane in followed) for lane in found}


def extents(messages: DataFrame) -> list[Row]:
    """By partition: from where to where elements stand, how many they are, the first end, what lies behind it all."""
    from pyspark.sql import functions as F

    is_end, offset = F.col(IS_END), F.col(OFFSET)
    element = F.when(~is_end, offset)
    told = {"first": F.min(element), "last": F.max(element), "count": F.count(element)}
    told |= {"end": F.min(F.when(is_end, offset)), "beyond": F.max(offset) + 1}
    return messages.groupBy(PARTITION).agg(*(column.alias(name) for name, column in told.items())).collect()


def _one_piece(extent: Row) -> tuple[Piece, ...]:
    return (Piece(extent.first, extent.last + 1, extent["count"], (), ()),) if extent["count"] else ()


def found_in(feed: Feed, rows: Sequence[Mapping[str, Any]], *, ordered: bool) -> dict[int, Found]:
    """What all tasks told, by partition. Raises for the first fault of one."""
    found = {}
    for lane in dict.fromkeys(row["partition"] for row in rows):
        own = [row for row in rows if row["partition"] == lane]
        found[lane] = _before_end(feed, own)
        _require_sound(feed, lane, found[lane], own, ordered=ordered)
    return found


def _before_end(feed: Feed, rows: Sequence[Mapping[str, Any]]) -> Found:
    """The pieces of one partition up to its first end.

    Offsets tell their order, or, for a stream that was sorted by its keys, the keys do.
    """
    end = min((row["end"] for row in rows if row.get("end") is not None), default=None)
    told = [_piece(row, len(feed.keys)) for row in rows if row.get("first") is not None]
    pieces = sorted(told, key=lambda piece: piece.first if feed.inlet.is_ordered else (piece.low, piece.high))
    rest = end is not None and any((row.get("rest") or row.get("first") or -1) > end for row in rows)
    return Found(tuple(piece for piece in pieces if end is None or piece.first < end), end, rest)


def _piece(row: Mapping[str, Any], keys: int) -> Piece:
    low, high = (tuple(row[f"{end}{place}"] for place in range(keys)) for end in ("low", "high"))
    return Piece(row["first"], row["next"], row["count"], low, high, row["run"])


def _require_sound(feed: Feed, lane: int, found: Found, rows: Sequence[Mapping[str, Any]], *, ordered: bool) -> None:
    """No fault before the end; and two tasks may each have seen an order that does not hold between them."""
    faults = [row for row in rows if row.get("fault") is not None and (found.end is None or row["fault"] < found.end)]
    for fault in sorted(faults, key=lambda row: int(row["fault"]))[:1]:
        raise _told(feed, lane, fault)
    for before, after in pairwise(found.pieces) if ordered else ():
        require_order(feed, lane, after.first, before.high, after.low)


def require_order(feed: Feed, lane: int, offset: int, before: Keys, keys: Keys) -> None:
    """Raises KeyDecreased if a key is lower than the one before it."""
    for old, new in zip(before, keys, strict=True):
        if new < old:
            raise KeyDecreased(feed.name, position=position(lane, offset), key=repr(new), before=repr(old))


def _told(feed: Feed, lane: int, fault: Mapping[str, Any]) -> FloodmarkError:
    """What is wrong with an element, in the words of whoever reads its text in full."""
    place = position(lane, fault["fault"])
    if fault.get("key") is not None:
        return KeyDecreased(feed.name, position=place, key=fault["key"], before=fault["before"])
    try:
        values = feed.codec.values_from_text(fault.get("text") or "null")
        for key in feed.keys:
            key.of(values)
    except ElementInvalid as error:
        return error.at(place)
    return ElementInvalid(feed.name, field="", reason="it has no key that could be compared", position=place)
