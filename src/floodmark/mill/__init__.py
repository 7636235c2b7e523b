"""Typed functions over joined streams (seed 003): declare what goes together, and the mill turns it on Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.mill.brokers import Inlet, MessageBroker, Outlet, SourceMessageBroker
    from floodmark.mill.brokers.files import JsonFileMessageBroker
    from floodmark.mill.brokers.kafka import KafkaMessageBroker
    from floodmark.mill.expressions import const_expression, function_call, get_field, get_fields
    from floodmark.mill.injection import Attempt
    from floodmark.mill.join_tree import EndOfStream, JoinWith, join_streams, type_alias, window
    from floodmark.mill.progress import Progress
    from floodmark.mill.watermill import TurnPlan, WaterMill


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
    "EndOfStream": "join_tree",
    "Inlet": "brokers",
    "JoinWith": "join_tree",
    "JsonFileMessageBroker": "brokers.files",
    "KafkaMessageBroker": "brokers.kafka",
    "MessageBroker": "brokers",
    "Outlet": "brokers",
    "Progress": "progress",
    "SourceMessageBroker": "brokers",
    "TurnPlan": "watermill",
    "WaterMill": "watermill",
    "const_expression": "expressions",
    "function_call": "expressions",
    "get_field": "expressions",
    "get_fields": "expressions",
    "join_streams": "join_tree",
    "type_alias": "join_tree",
    "window": "join_tree",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
