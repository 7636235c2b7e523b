"""Where rows go, and where the mark is kept: outputs and caches of Redpanda Connect as sinks and a store."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.project.connect.configuration import Component, Configuration, assignment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from floodmark.inputs.yaml import Place
    from floodmark.project.connect.polling import Polling

MARK = re.compile(r"\s*root\.(?P<field>\w+)\s*=\s*(?P<value>(?:json\(\"(?P<json>\w+)\"\)|this\.(?P<this>\w+))\S*)\s*")
COLUMN = re.compile(r"\$\{!\s*(?:json\(\"(\w+)\"\)|this\.(\w+))\s*\}")
CONFLICT = re.compile(r"on\s+conflict\s*\((?P<key>[^)]*)\)\s*do\s+update", re.IGNORECASE)
INSERT = re.compile(r"\s*insert\s+into\s+(?P<table>[\w.\"]+)", re.IGNORECASE)
HIGHEST = ".from_all().max()"
PACE = {"max_in_flight", "batching", "timeout", "max_message_bytes", "broker_write_max_bytes", "idempotent_write"}
"""How fast a client of Connect goes; Spark and the sinks have their own pace."""
STORE = "sqlite:///state/marks.db"


@dataclass(frozen=True)
class SavedMark:
    """What an output saves as the mark: a field, made from a column, under a key of a cache."""

    cache: str
    key: str
    field: str
    column: str
    place: Place


@dataclass(frozen=True)
class Delivery:
    """The sinks in their order, and the mark that is saved beside them."""

    sinks: list[dict[str, Any]]
    mark: SavedMark | None


def delivery_of(configuration: Configuration) -> Delivery:
    """What the output does; raises ConfigError if rows would go elsewhere here."""
    found = list(_outputs(configuration, configuration.values["output"], ("output",)))
    caches = [each for each in found if each.type == "cache"]
    sinks = [_sink(configuration, each) for each in found if each.type not in ("cache", "drop")]
    if not sinks:
        raise configuration.error(("output",), "there is no output for rows", hint="stdout, kafka_franz, file, …")
    types = Counter(sink["type"] for sink in sinks)
    named = [
        {"name": f"{sink['type']}_{position}", **sink} if types[sink["type"]] > 1 else sink
        for position, sink in enumerate(sinks, 1)
    ]
    return Delivery(named, _saved_mark(configuration, caches[0]) if caches else None)


def _outputs(configuration: Configuration, value: object, place: Place) -> Iterator[Component]:
    """The outputs behind brokers, in their order."""
    output = configuration.component(value, place)
    if output.type == "broker":
        yield from _broker(configuration, output)
    elif output.type in ("retry", "reject_errored"):
        inner = output.setting("output") if output.type == "retry" else output.settings
        configuration.note(output.at(), f"{output.type}: a failed batch is tried again by `retries`, and stays open")
        yield from _outputs(configuration, inner, output.at("output"))
    elif output.type == "fallback":
        first, *others = output.settings if isinstance(output.settings, list) and output.settings else [None]
        for position, _ in enumerate(others, 1):
            configuration.note(
                output.at(position), "fallback: a failed batch waits for its sink; none stands in for it"
            )
        yield from _outputs(configuration, first, output.at(0))
    else:
        yield output


def _broker(configuration: Configuration, broker: Component) -> Iterator[Component]:
    pattern = broker.setting("pattern", "fan_out")
    if pattern not in ("fan_out", "fan_out_sequential"):
        raise configuration.error(
            broker.at("pattern"), f"{pattern} gives a row to one of the outputs", hint="fan_out gives it to all"
        )
    if pattern == "fan_out":
        configuration.note(broker.at("pattern"), "fan_out: sinks are written in their order, not all at once")
    known = {"pattern": None, "outputs": None, "copies": None, **dict.fromkeys(PACE)}
    configuration.note_settings(broker, known)
    outputs = broker.setting("outputs")
    for position, value in enumerate(outputs if isinstance(outputs, list) else [None]):
        yield from _outputs(configuration, value, broker.at("outputs", position))


def _sink(configuration: Configuration, output: Component) -> dict[str, Any]:
    makers = {
        "stdout": _console,
        "kafka": _kafka,
        "kafka_franz": _kafka,
        "redpanda": _kafka,
        "file": _files,
        "sql_insert": _table,
        "sql_raw": _table,
    }
    if output.type not in makers:
        raise configuration.error(
            output.at(),
            f"output '{output.type}' is not translated",
            hint=f"one of: {', '.join(makers)}, cache, broker; or take it out and write a sink of your own",
        )
    for processor in configuration.components(output.around.get("processors"), (*output.place, "processors")):
        configuration.note(processor.at(), f"{output.type}: its {processor.type} is left out; rows arrive as they are")
    return makers[output.type](configuration, output)


def _console(configuration: Configuration, output: Component) -> dict[str, Any]:
    configuration.note_settings(output, {"codec": None})
    return {"type": "console"}


def _files(configuration: Configuration, output: Component) -> dict[str, Any]:
    path = configuration.text(output, "path")
    if "${!" in path:
        raise configuration.error(output.at("path"), "the path is made from each row", hint="name one folder")
    configuration.note(output.at("path"), f"file: {path} is a folder here, with files for every batch")
    configuration.note_settings(output, {"path": None, "codec": None})
    return {"type": "files", "path": path, "format": "jsonl"}


def _kafka(configuration: Configuration, output: Component) -> dict[str, Any]:
    brokers = configuration.texts(output, "addresses" if output.type == "kafka" else "seed_brokers")
    topic = configuration.text(output, "topic")
    if "${!" in topic:
        raise configuration.error(output.at("topic"), "the topic is made from each row", hint="name one topic")
    options = {**_compression(output), **_security(configuration, output)}
    known = ("addresses", "seed_brokers", "topic", "key", "compression", "tls", "sasl", "allow_auto_topic_creation")
    configuration.note_settings(output, {**dict.fromkeys(known), **dict.fromkeys(PACE)})
    create = {} if output.setting("allow_auto_topic_creation", True) is False else {"create": {"partitions": 1}}
    if create:
        configuration.note(
            output.at("topic"), f"{output.type}: a topic that is not there is made with 1 partition (`create`)"
        )
    configuration.note(output.at(), f"{output.type}: messages come in transactions: consumers need read_committed")
    key = _message_key(configuration, output)
    return {"type": "kafka", "bootstrap": brokers, "topic": topic, **key, **create} | (
        {"options": options} if options else {}
    )


def _message_key(configuration: Configuration, output: Component) -> dict[str, str]:
    key = output.setting("key")
    if not key:
        return {}
    column = COLUMN.fullmatch(str(key))
    if column:
        return {"key": column[1] or column[2]}
    configuration.note(output.at("key"), f"{output.type}.key: an expression of Bloblang; write it as SQL in `key`")
    return {}


def _compression(output: Component) -> dict[str, str]:
    found = output.setting("compression")
    return {"compression.type": str(found)} if found and found != "none" else {}


def _security(configuration: Configuration, output: Component) -> dict[str, str]:
    tls, sasl = configuration.fields(output.setting("tls"), output.at("tls")), output.setting("sasl")
    account = configuration.fields((sasl or [None])[0] if isinstance(sasl, list) else sasl, output.at("sasl"))
    mechanism = str(account.get("mechanism", "none"))
    protocol = ("SASL_" if mechanism != "none" else "") + ("SSL" if tls.get("enabled") else "PLAINTEXT")
    options = {} if protocol == "PLAINTEXT" else {"security.protocol": protocol}
    if mechanism != "none":
        user = {
            "sasl.username": account.get("username") or account.get("user"),
            "sasl.password": account.get("password"),
        }
        options |= {"sasl.mechanism": mechanism, **{name: str(value) for name, value in user.items() if value}}
    if tls.get("root_cas_file"):
        options["ssl.ca.location"] = str(tls["root_cas_file"])
    for name in tls.keys() - {"enabled", "root_cas_file"}:
        configuration.note(output.at("tls", name), f"tls.{name}: give it as an option of librdkafka, as ssl.…")
    return options


def _table(configuration: Configuration, output: Component) -> dict[str, Any]:
    if configuration.text(output, "driver") != "postgres":
        raise configuration.error(
            output.at("driver"), f"rows cannot be written to {output.setting('driver')}", hint="driver: postgres"
        )
    url, table = configuration.text(output, "dsn"), _table_name(configuration, output)
    configuration.note(output.at(), f"{output.type}: all columns of the query are written to {table} under their names")
    known = ("driver", "dsn", "table", "columns", "args_mapping", "suffix", "query")
    configuration.note_settings(output, {**dict.fromkeys(known), **dict.fromkeys(PACE)})
    ending = str(output.setting("suffix" if output.type == "sql_insert" else "query") or "")
    if conflict := CONFLICT.search(ending):
        key = [column.strip() for column in conflict["key"].split(",")]
        return {"type": "postgres", "url": url, "table": table, "mode": "merge", "key": key}
    if "conflict" in ending.lower():
        configuration.note(output.at(), f"{output.type}: no row comes twice, so that none is in conflict with itself")
    return {"type": "postgres", "url": url, "table": table}


def _table_name(configuration: Configuration, output: Component) -> str:
    if output.type == "sql_insert":
        return configuration.text(output, "table")
    if found := INSERT.match(configuration.text(output, "query")):
        return found["table"]
    raise configuration.error(
        output.at("query"), "the statement inserts no row", hint="insert into orders (id) values ($1)"
    )


def _saved_mark(configuration: Configuration, output: Component) -> SavedMark:
    processors = configuration.components(output.around.get("processors"), (*output.place, "processors"))
    mappings = [each for each in processors if each.type in ("mapping", "bloblang", "mutation")]
    found = MARK.fullmatch(assignment(mappings[-1].settings)) if mappings else None
    if not found:
        raise configuration.error(
            output.place, "how the mark is made cannot be read", hint='root.seq = json("seq").from_all().max()'
        )
    if not found["value"].endswith(HIGHEST):
        configuration.note(mappings[-1].at(), "the mark is the highest value of a batch here, not that of one row")
    known = {"target": None, "key": None, "max_in_flight": None, "ttl": "a mark does not expire"}
    configuration.note_settings(output, known)
    cache, key = configuration.text(output, "target"), configuration.text(output, "key")
    return SavedMark(cache, key, found["field"], found["json"] or found["this"], output.at())


def store_of(configuration: Configuration, polling: Polling, delivery: Delivery) -> str | list[str]:
    """The cache of the mark as a store, level by level."""
    resources = configuration.components(configuration.values.get("cache_resources"), ("cache_resources",))
    caches = {str(each.around.get("label")): each for each in resources}
    levels = list(dict.fromkeys(_levels(configuration, caches, polling, polling.cache, ("pipeline", "processors"))))
    if levels == ["memory"]:
        configuration.note(
            caches[polling.cache].at(), "memory: the mark is gone when the process ends; `store: sqlite:///…` keeps it"
        )
    return levels[0] if len(levels) == 1 else levels


def _levels(
    configuration: Configuration, caches: Mapping[str, Component], polling: Polling, label: str, place: Place
) -> Iterator[str]:
    cache = caches.get(label)
    if cache is None:
        raise configuration.error(
            place, f"there is no cache '{label}'", hint=f"cache_resources has: {', '.join(caches) or 'none'}"
        )
    if cache.type == "multilevel":
        others = {name: each for name, each in caches.items() if name != label}  # a cache is no level of itself
        for inner in configuration.listed_texts(cache.settings, cache.at()):
            yield from _levels(configuration, others, polling, inner, cache.at())
    elif cache.type == "memory":
        configuration.note_settings(cache, {"compaction_interval": None, "shards": None})
        yield "memory"
    elif cache.type == "file":
        yield f"file:{configuration.text(cache, 'directory').rstrip('/')}/floodmark"
        configuration.note(cache.at("directory"), "file: the store has a folder of its own in that directory")
    elif cache.type == "sql" and cache.setting("driver") == "postgres":
        yield _database(configuration, cache, polling)
    else:
        configuration.note(cache.at(), f"{cache.type}: no store is kept there; {STORE} keeps the mark instead")
        yield STORE


def _database(configuration: Configuration, cache: Component, polling: Polling) -> str:
    table = configuration.text(cache, "table")
    configuration.note(
        cache.at("table"),
        f"sql: {table} stays as it is, and marks are in the table floodmark_marks of that database. To go on from the "
        f"mark that is there: floodmark marks import --select {polling.job_name} --from rpcn:{table}/{polling.key} "
        f"--field {polling.field}",
    )
    return configuration.text(cache, "dsn")
