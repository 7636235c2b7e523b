"""Streams whose mark follows what really succeeded: sources, steps and healing. The names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.streams.healing_step import UuidLost as UuidLost
    from floodmark.streams.healing_step import healing as healing
    from floodmark.streams.healing_step import healing_batch as healing_batch
    from floodmark.streams.kafka import from_kafka as from_kafka
    from floodmark.streams.kafka import from_kafka_batched as from_kafka_batched
    from floodmark.streams.policy import OnError as OnError
    from floodmark.streams.policy import retry as retry
    from floodmark.streams.stream import Stream as Stream

export_lazily(__name__)
