"""What a job has to know about a topic: how long its messages are there, and how near that comes to the mark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.probes.kafka import KafkaProbe
from floodmark.probes.kafka_client import KafkaOptions
from floodmark.probes.kafka_settings import keeping_of
from floodmark.sources.kafka_mark import offsets_in

if TYPE_CHECKING:
    from floodmark.hwm import HWM
    from floodmark.jobs.findings import Said
    from floodmark.sources import Kafka


def kafka_findings(source: Kafka, mark: HWM[object] | None) -> Said:
    """Retention against the mark, and what compaction takes away."""
    options = KafkaOptions(source.bootstrap, source.options)
    for topic, keeping in keeping_of(options, source.topics).items():
        yield "", f"{topic} keeps messages {keeping}", ""
        if keeping.is_compacted:
            said = f"{topic} is compacted: of several messages of a key that wait, only the last may be left"
            yield "FM506", said, "run often enough, or do not count on every version"
    probe = KafkaProbe(options)
    bounds = probe.bounds(probe.topics(source.topics).values())
    for place, at in sorted(offsets_in(mark, source.topics).items()):
        seen = bounds.get(place)
        if seen is not None and seen.earliest > 0 and seen.stable - at > at - seen.earliest:
            said = (
                f"{place[0]}/{place[1]}: the mark {at} is nearer to the oldest message {seen.earliest} than to the end"
            )
            yield "FM505", f"{said} {seen.stable}: retention may pass it", "run the job, or keep messages longer"
