"""Streams whose mark follows what really succeeded: sources, steps and healing. The names load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.streams.healing_step import healing, healing_batch
    from floodmark.streams.kafka import from_kafka, from_kafka_batched
    from floodmark.streams.policy import OnError, retry
    from floodmark.streams.stream import Stream


__all__ = ["OnError", "Stream", "from_kafka", "from_kafka_batched", "healing", "healing_batch", "retry"]

_HOMES = {
    "Stream": "floodmark.streams.stream",
    "OnError": "floodmark.streams.policy",
    "retry": "floodmark.streams.policy",
    "healing": "floodmark.streams.healing_step",
    "healing_batch": "floodmark.streams.healing_step",
    "from_kafka": "floodmark.streams.kafka",
    "from_kafka_batched": "floodmark.streams.kafka",
}


def __getattr__(name: str) -> object:
    """Import the module behind a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'floodmark.streams' has no attribute '{name}'")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
