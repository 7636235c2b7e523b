"""Marks of other systems, as they are stored there: Redpanda Connect's cache, a consumer group, onETL's files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from floodmark.hwm import HWM
    from floodmark.sources import Kafka


@dataclass(frozen=True)
class CacheTable:
    """A cache table of Redpanda Connect: columns `key` and `val`, with JSON like {"seq": 123} in the second."""

    url: str
    table: str
    key: str
    field: str | None = None

    def value(self) -> object:
        """The mark's value, exactly. Raises ConfigError if there is none or nobody can tell which field it is."""
        fields = self._fields()
        if self.field is None and len(fields) == 1:
            return next(iter(fields.values()))
        if self.field is None or self.field not in fields:
            raise ConfigError(
                f"key '{self.key}' in {self.table} has the fields {', '.join(fields) or '(none)'}.",
                hint="name the one that is the mark with --field",
            )
        return fields[self.field]

    def _fields(self) -> Mapping[str, object]:
        stored = self._stored()
        text = bytes(stored).decode() if isinstance(stored, bytes | memoryview) else stored
        try:
            fields = json.loads(text, parse_float=Decimal) if isinstance(text, str) else text
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise ConfigError(f"key '{self.key}' in {self.table} holds no JSON object.", hint='such as {"seq": 123}')
        return fields

    def _stored(self) -> object:
        from floodmark.probes.postgres import Address, connect, failing_as_unreadable

        address = Address.parse(self.url)
        with (
            failing_as_unreadable(f"table {self.table} of postgres {address}"),
            connect(address, "floodmark/import") as connection,
        ):
            row = connection.execute(f"select val from {_quoted(self.table)} where key = %s", [self.key]).fetchone()
        if row is None:
            raise ConfigError(f"{self.table} has no key '{self.key}'.", hint="rpcn:TABLE/KEY, as the cache names it")
        return row[0]


def _quoted(table: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


@dataclass(frozen=True)
class Group:
    """A consumer group of Kafka; its committed offsets are the next ones to read."""

    name: str
    source: Kafka
    bootstrap: str | None = None
    topics: Sequence[str] = ()

    def value(self, added: int = 0) -> object:
        """The next offsets of the source's topics. Raises ConfigError if the group has committed nothing there."""
        from floodmark.probes.kafka import KafkaProbe
        from floodmark.probes.kafka_client import KafkaOptions
        from floodmark.sources.kafka_mark import by_topic

        names = tuple(self.topics) or self.source.topics
        if unknown := sorted(set(names) - set(self.source.topics)):
            known = ", ".join(self.source.topics)
            raise ConfigError(f"the job does not read topic '{unknown[0]}'.", hint=f"one of: {known}")
        probe = KafkaProbe(KafkaOptions(self.bootstrap or self.source.bootstrap, self.source.options))
        committed = probe.committed(self.name, probe.topics(names).values())
        if not committed:
            raise ConfigError(f"group '{self.name}' has no offsets of {', '.join(names)}.", hint="check its name")
        nested = by_topic({place: offset + added for place, offset in committed.items()})
        return nested[names[0]] if len(self.source.topics) == 1 else nested


def yaml_marks(folder: Path) -> dict[str, HWM[Any]]:
    """The newest mark of every file that onETL's YAMLHWMStore wrote there, by the mark's name."""
    files = sorted(folder.glob("*.yml"))
    if not files:
        raise ConfigError(f"there is no .yml file in {folder}.", hint="the folder of onETL's YAMLHWMStore")
    found = [_newest(file) for file in files]
    return {mark.name: mark for mark in found}


def _newest(file: Path) -> HWM[Any]:
    import yaml

    from floodmark.hwm import deserialize

    try:
        entries = yaml.safe_load(file.read_text(encoding="utf-8"))
        return deserialize(_in_utc(max(entries, key=lambda entry: str(entry["modified_time"]))))
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{file} holds no mark that can be read: {type(error).__name__}: {error}.",
            hint="marks of onETL below 0.10 are older than this format: open them there once and save them again",
        ) from error


def _in_utc(entry: Mapping[str, Any]) -> dict[str, Any]:
    """etl-entities writes local times without a zone."""
    moment = entry["modified_time"]
    parsed = moment if isinstance(moment, datetime) else datetime.fromisoformat(str(moment))
    return {**entry, "modified_time": parsed.astimezone(timezone.utc).isoformat()}
