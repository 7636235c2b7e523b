"""Where rows go; a sink's module is loaded only when it is asked for, and none of them loads pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.sinks.console import Console as Console
    from floodmark.sinks.delta import Delta as Delta
    from floodmark.sinks.delta import DeltaDates as DeltaDates
    from floodmark.sinks.files import Files as Files
    from floodmark.sinks.kafka import Kafka as Kafka
    from floodmark.sinks.postgres import Postgres as Postgres
    from floodmark.sinks.scd import Scd1 as Scd1
    from floodmark.sinks.scd import Scd2 as Scd2

export_lazily(__name__)
