"""Typed functions over joined streams (seed 003): declare what goes together, and the mill turns it on Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.mill.aliases import type_alias
    from floodmark.mill.brokers import Inlet, MessageBroker, Outlet
    from floodmark.mill.eos import EndOfStream
    from floodmark.mill.expressions import const_expression, function_call, get_field, get_fields
    from floodmark.mill.file_broker import JsonFileMessageBroker
    from floodmark.mill.injection import Attempt
    from floodmark.mill.joining import JoinWith, join_streams, window
    from floodmark.mill.kafka_broker import KafkaMessageBroker
    from floodmark.mill.preview import TurnPlan
    from floodmark.mill.progress import Progress
    from floodmark.mill.source_broker import SourceMessageBroker
    from floodmark.mill.watermill import WaterMill

__all__ = [
    "Attempt",
    "EndOfStream",
    "Inlet",
    "JoinWith",
    "JsonFileMessageBroker",
    "KafkaMessageBroker",
    "MessageBroker",
    "Outlet",
    "Progress",
    "SourceMessageBroker",
    "TurnPlan",
    "WaterMill",
    "const_expression",
    "function_call",
    "get_field",
    "get_fields",
    "join_streams",
    "type_alias",
    "window",
]

HOMES = {
    "Attempt": "injection",
    "EndOfStream": "eos",
    "Inlet": "brokers",
    "JoinWith": "joining",
    "JsonFileMessageBroker": "file_broker",
    "KafkaMessageBroker": "kafka_broker",
    "MessageBroker": "brokers",
    "Outlet": "brokers",
    "Progress": "progress",
    "SourceMessageBroker": "source_broker",
    "TurnPlan": "preview",
    "WaterMill": "watermill",
    "const_expression": "expressions",
    "function_call": "expressions",
    "get_field": "expressions",
    "get_fields": "expressions",
    "join_streams": "joining",
    "type_alias": "aliases",
    "window": "joining",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
