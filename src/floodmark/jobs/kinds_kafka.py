"""What the project file may say about Kafka, as a source and as a sink."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from floodmark.jobs.kinds import Model, Name, SinkModel, Site, SourceModel, Text
from floodmark.probes.kafka_client import option_text

if TYPE_CHECKING:
    from floodmark.sinks.contract import Sink
    from floodmark.sources.contract import Source

Texts = Annotated[tuple[Text, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
OptionText = Annotated[str, BeforeValidator(lambda value: option_text(value) if not isinstance(value, str) else value)]
Options = Annotated[Mapping[str, OptionText], Field(description="any option of the clients: security.protocol, sasl.…")]
Offsets = Mapping[int, Annotated[int, Field(ge=0)]]

WORDS: Mapping[str, str] = {"json": "json", "text": "text:value"}
"""A topic that is read as text has the column `value`; written as text, it gets that column back."""


class JsonMessages(Model):
    """Values that are JSON objects."""

    format: Literal["json"]
    schema_: Text = Field(alias="schema", description="columns as Spark's DDL: id long, v string")


class KafkaSource(SourceModel):
    """Messages of a topic, or of several, each read once."""

    type: Literal["kafka"]
    name: Name = "kafka"
    bootstrap: Texts
    topic: Texts
    value: Literal["bytes", "text"] | JsonMessages = "bytes"
    key: Literal["bytes", "text"] | None = Field(default=None, description="text, and bytes where the value is bytes")
    columns: Texts | None = Field(default=None, description="which of Kafka's own columns are wanted: all")
    start: Offsets | Mapping[str, Offsets] | Text = Field(
        default="earliest", description="earliest, latest, group:<id>, or offsets: {0: 100}, or {topic: {0: 100}}"
    )
    on_gap: Literal["fail", "skip"] = "fail"
    options: Options = Field(default_factory=dict, repr=False)

    def build(self, site: Site) -> "Source":
        from floodmark.sources import Kafka
        from floodmark.sources.kafka_reading import COLUMNS

        value = self.value if isinstance(self.value, str) else {"format": "json", "schema": self.value.schema_}
        return Kafka(
            self.bootstrap,
            self.topic,
            value=value,
            key=self.key,
            start=self.start,
            on_gap=self.on_gap,
            options=dict(self.options),
            name=self.name,
            columns=COLUMNS if self.columns is None else self.columns,
        )


class NewTopic(Model):
    """How a topic is made that is not there yet."""

    partitions: int = Field(default=1, ge=1)
    replication: int = Field(default=1, ge=1)


class BytesColumn(Model):
    """The value is a column of bytes, as it is."""

    column: Text

    def spelled(self) -> str:
        """As the sink takes it."""
        return f"bytes:{self.column}"


class TextExpression(Model):
    """The value is the text of a column or expression."""

    text: Text

    def spelled(self) -> str:
        """As the sink takes it."""
        return f"text:{self.text}"


class KafkaSink(SinkModel):
    """A topic that gets each row as one message."""

    type: Literal["kafka"]
    bootstrap: Texts
    topic: Text
    key: Text | None = Field(default=None, description="the column, or expression, that is the message's key")
    headers: Mapping[str, Text] | Text | None = None
    value: Literal["json", "text"] | TextExpression | BytesColumn = Field(
        default="json", description="json: all columns; text: the column `value`; {text: expression}; {column: bytes}"
    )
    create: NewTopic | None = None
    options: Options = Field(default_factory=dict, repr=False)

    def build(self, site: Site) -> "Sink":
        from floodmark.sinks import Kafka

        return Kafka(
            self.bootstrap,
            self.topic,
            key=self.key,
            value=WORDS[self.value] if isinstance(self.value, str) else self.value.spelled(),
            headers=self.headers if self.headers is None or isinstance(self.headers, str) else dict(self.headers),
            create=self.create.model_dump() if self.create else None,
            options=dict(self.options),
            name=self.ledger_name(),
        )
