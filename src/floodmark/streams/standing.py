"""Where a stream stands: the progress of every partition, as the record of its group keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from floodmark.hwm import HWM, Json, KeyValueIntHWM
from floodmark.probes.kafka import Place
from floodmark.stores.record import JobRecord
from floodmark.streams.outcomes import Progress

EXTRAS = "healing"


def standing_in(record: JobRecord, topics: Iterable[str]) -> dict[Place, Progress]:
    """The progress that a record holds of these topics.

    A mark that is not where healing left it was moved by a person: what was settled above the old one is forgotten.
    """
    found: dict[Place, Progress] = {}
    for topic in topics:
        marks = _offsets(record.marks.get(topic))
        kept = _kept(record, topic)
        for partition in {*marks, *kept}:
            progress, mark = kept.get(partition), marks.get(partition)
            moved = progress is None or mark not in (None, progress.mark)
            found[topic, partition] = Progress.beginning(mark) if moved and mark is not None else kept[partition]
    return found


def extras_with(record: JobRecord, standing: Mapping[Place, Progress]) -> dict[str, Json]:
    """The record's extras once its partitions stand here."""
    healing: dict[str, Json] = dict(_healing(record))
    for topic in {topic for topic, _ in standing}:
        own = {str(part): progress.serialize() for (name, part), progress in standing.items() if name == topic}
        before = healing.get(topic)
        healing[topic] = {**(before if isinstance(before, dict) else {}), **own}
    return {**record.extras, EXTRAS: healing}


def marks_with(
    record: JobRecord, before: Mapping[Place, Progress], after: Mapping[Place, Progress]
) -> dict[str, HWM[Any]]:
    """The record's marks once its partitions stand there; a partition of which nothing was passed yet has none."""
    marks: dict[str, HWM[Any]] = dict(record.marks)
    for (topic, partition), progress in sorted(after.items()):
        mark = marks.get(topic) or KeyValueIntHWM(f"{record.job}.{topic}", {}, topic=topic)
        begun = before.get((topic, partition))
        if partition in mark.value or (begun is not None and progress.mark > begun.mark):
            mark = mark.set_value({**mark.value, partition: progress.mark})
        if mark.value or topic in marks:
            marks[topic] = mark
    return marks


def _kept(record: JobRecord, topic: str) -> dict[int, Progress]:
    stored = _healing(record).get(topic)
    parts = stored if isinstance(stored, dict) else {}
    return {int(part): Progress.deserialize(found) for part, found in parts.items() if isinstance(found, dict)}


def _healing(record: JobRecord) -> Mapping[str, Json]:
    stored = record.extras.get(EXTRAS)
    return stored if isinstance(stored, dict) else {}


def _offsets(mark: HWM[Any] | None) -> dict[int, int]:
    return dict(mark.value) if mark is not None else {}
