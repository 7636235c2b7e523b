"""Typed functions over joined streams: declare what goes together, and the mill turns it on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.mill.brokers import Inlet as Inlet
    from floodmark.mill.brokers import MessageBroker as MessageBroker
    from floodmark.mill.brokers import Outlet as Outlet
    from floodmark.mill.brokers import SourceMessageBroker as SourceMessageBroker
    from floodmark.mill.brokers.files import JsonFileMessageBroker as JsonFileMessageBroker
    from floodmark.mill.brokers.kafka import KafkaMessageBroker as KafkaMessageBroker
    from floodmark.mill.expressions import const_expression as const_expression
    from floodmark.mill.expressions import function_call as function_call
    from floodmark.mill.expressions import get_field as get_field
    from floodmark.mill.expressions import get_fields as get_fields
    from floodmark.mill.injection import Attempt as Attempt
    from floodmark.mill.join_tree import EndOfStream as EndOfStream
    from floodmark.mill.join_tree import JoinWith as JoinWith
    from floodmark.mill.join_tree import join_streams as join_streams
    from floodmark.mill.join_tree import type_alias as type_alias
    from floodmark.mill.join_tree import window as window
    from floodmark.mill.progress import Progress as Progress
    from floodmark.mill.watermill import TurnPlan as TurnPlan
    from floodmark.mill.watermill import WaterMill as WaterMill

export_lazily(__name__)
