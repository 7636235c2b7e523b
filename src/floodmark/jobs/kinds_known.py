"""Every source and sink that the project file knows, told apart by `type`."""

from typing import Annotated

from pydantic import Field

from floodmark.jobs.kinds import ConsoleSink, DeltaSink, DeltaSource, FilesSink, FilesSource, PythonSource
from floodmark.jobs.kinds_database import JdbcSource, PostgresSink, PostgresSource, SqliteSource
from floodmark.jobs.kinds_facts import FactSource
from floodmark.jobs.kinds_kafka import KafkaSink, KafkaSource

AnySource = Annotated[
    FilesSource | DeltaSource | FactSource | KafkaSource | PostgresSource | JdbcSource | SqliteSource | PythonSource,
    Field(discriminator="type"),
]
AnySink = Annotated[DeltaSink | KafkaSink | PostgresSink | FilesSink | ConsoleSink, Field(discriminator="type")]
