"""A configuration of Redpanda Connect becomes a project: every part that has a counterpart, and a note for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floodmark.errors import ConfigError
from floodmark.project.connect import Translation, translate

ROOT = Path(__file__).parents[2]
SEED = ROOT / "examples" / "seed_002" / "connect.yaml"


def changed(tmp_path: Path, *replacements: tuple[str, str]) -> Translation:
    """The configuration with some of its text replaced."""
    text = SEED.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    return translate(file)


def job(translation: Translation) -> Any:  # noqa: ANN401  (what YAML holds)
    return yaml.safe_load(translation.text())["jobs"][0]


def notes(translation: Translation) -> str:
    return "\n".join(map(str, translation.notes))


def test_the_documented_configuration_becomes_a_project() -> None:
    """Verbatim: the interval, the mark in two levels, the table, and both outputs in their order."""
    translation = translate(SEED)
    database = "postgres://root:secret@localhost:5432/root?sslmode=disable"
    assert yaml.safe_load(translation.text()) == {
        "store": ["memory", database],
        "jobs": [
            {
                "name": "table_cursor",
                "source": {
                    "type": "postgres",
                    "url": database,
                    "table": "cms.content_notification_status",
                    "cursor": {"column": "seq", "start": "earliest"},
                },
                "sinks": [
                    {"type": "console"},
                    {
                        "type": "kafka",
                        "bootstrap": ["localhost:19092", "localhost:29092", "localhost:39092"],
                        "topic": "content_delta",
                        "create": {"partitions": 1},
                    },
                ],
                "every": "5s",
            }
        ],
    }


def test_every_note_is_a_comment_with_the_line_it_is_about() -> None:
    """A reader of the project file sees what the person saw who made it."""
    translation = translate(SEED)
    log = "connect.yaml:16: log: the log tells at every batch what was read and where the mark stands"
    assert log in notes(translation)
    assert f"# - {log}\n" in translation.text()
    taken_over = "floodmark marks import --select table_cursor --from rpcn:rpcn_connect_state/table_cursor --field seq"
    assert taken_over in translation.text()


@pytest.mark.parametrize(
    ("interval", "every"),
    [("@every 5s", "5s"), ("1m30s", "90s"), ("250ms", "250ms"), ("1h", "3600s")],
)
def test_an_interval_of_go_is_a_duration(interval: str, every: str, tmp_path: Path) -> None:
    """As `run --loop` takes it."""
    assert job(changed(tmp_path, ("@every 5s", interval)))["every"] == every


def test_a_schedule_has_no_counterpart(tmp_path: Path) -> None:
    """The job runs when it is told to."""
    translation = changed(tmp_path, ("@every 5s", "0 */5 * * * *"))
    assert "every" not in job(translation)
    assert "pipeline.yaml:3: interval '0 */5 * * * *': a schedule is not taken over" in notes(translation)


@pytest.mark.parametrize(
    ("value", "start"), [("-1", "earliest"), ("99", 100), ('"2024-01-01"', "2024-01-01")], ids=["all", "number", "text"]
)
def test_what_stands_in_for_a_mark_is_the_start(value: str, start: object, tmp_path: Path) -> None:
    """There rows above it are read, here those at it too: the next number is the same place."""
    assert job(changed(tmp_path, ("root.seq = -1", f"root.seq = {value}")))["source"]["cursor"]["start"] == start


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select * from orders where $1 < seq", {"table": "orders", "cursor": {"column": "seq"}}),
        ("select * from orders where seq > $1 order by seq", {"table": "orders", "cursor": {"column": "seq"}}),
        (
            "select * from orders where seq > $1 order by seq limit 500",
            {"table": "orders", "cursor": {"column": "seq"}, "read": {"max_rows": 500}},
        ),
        (
            "select o.seq, c.name from orders o join customers c on c.id = o.customer where o.seq > $1 and tier = 'a?'",
            {
                "query": "SELECT o.seq, c.name FROM orders AS o JOIN customers AS c ON c.id = o.customer "
                "WHERE tier = 'a?'",
                "cursor": {"column": "seq", "unique": True},
            },
        ),
    ],
)
def test_the_comparison_with_the_mark_is_taken_out_of_the_query(
    query: str, expected: dict[str, object], tmp_path: Path
) -> None:
    """A run puts its own bounds in; what is left is a table, or a query."""
    seed = "'select * from cms.content_notification_status where seq > $1'"
    source = job(changed(tmp_path, (seed, f'"{query}"')))["source"]
    source["cursor"].pop("start")
    assert {name: value for name, value in source.items() if name not in ("type", "url")} == expected


def test_a_constant_argument_is_put_into_the_query(tmp_path: Path) -> None:
    """Only the mark changes from look to look."""
    translation = changed(
        tmp_path,
        ("where seq > $1'", "where seq > $2 and tier = $1'"),
        ("root = [ this.seq ]", 'root = [ "gold", this.seq ]'),
    )
    assert job(translation)["source"]["table"] == "cms.content_notification_status"
    assert job(translation)["transform"] == {"sql": "SELECT * FROM source WHERE tier = 'gold'"}


def test_a_field_may_be_assigned_with_its_whole_object(tmp_path: Path) -> None:
    """The other way to write the two mappings of the mark."""
    translation = changed(
        tmp_path,
        ("'root.seq = -1'", "'root = {\"seq\": 99}'"),
        ('root.seq = json("seq").from_all().max()', 'root = { "seq": json("seq").from_all().max() }'),
    )
    assert job(translation)["source"]["cursor"] == {"column": "seq", "start": 100}


@pytest.mark.parametrize(
    ("query", "transform"),
    [
        ("select seq, o.name from shop.o where seq > $1", "SELECT seq, name FROM source"),
        ("select * from shop.o where seq > $1 and n >= -5 and not b", "SELECT * FROM source WHERE n >= -5 AND NOT b"),
        ("select * from shop.o where seq > $1 and t in ('a', 'b')", "SELECT * FROM source WHERE t IN ('a', 'b')"),
    ],
)
def test_a_query_of_one_table_is_that_table_and_a_transform(query: str, transform: str, tmp_path: Path) -> None:
    """So that the catalog tells which rows share a value of the cursor, and none of them is missed."""
    seed = "'select * from cms.content_notification_status where seq > $1'"
    translated = job(changed(tmp_path, (seed, f'"{query}"')))
    assert (translated["source"]["table"], translated["transform"]) == ("shop.o", {"sql": transform})
    assert "unique" not in translated["source"]["cursor"]


@pytest.mark.parametrize(
    "rest",
    [
        "and name > 'm'",
        "and day = '2026-01-31'",
        "and name like 'a%'",
        "and lower(name) = 'a'",
        "and id in (select id from b)",
        "group by 1",
    ],
)
def test_what_a_database_may_see_in_another_way_than_spark_stays_its_query(rest: str, tmp_path: Path) -> None:
    """Texts have a collation and times a zone; what a query then cannot promise is said."""
    seed = "'select * from cms.content_notification_status where seq > $1'"
    translation = changed(tmp_path, (seed, f'"select seq from o where seq > $1 {rest}"'))
    assert job(translation)["source"]["cursor"]["unique"] is True
    assert "if two rows can share a value, name more columns, `cursor: [seq, id]`" in notes(translation)


def test_sql_select_is_read_as_its_query(tmp_path: Path) -> None:
    """Its placeholders are question marks with every driver."""
    file = tmp_path / "pipeline.yaml"
    before, _, rest = SEED.read_text().partition("    - sql_raw:")
    _, _, after = rest.partition("args_mapping: root = [ this.seq ]")
    select = """    - sql_select:
        driver: sqlite
        dsn: file:shop.db?mode=ro
        table: orders
        columns: [ '*' ]
        where: seq > ?
        args_mapping: root = [ this.seq ]"""
    file.write_text(before + select + after)
    assert job(translate(file))["source"] == {
        "type": "sqlite",
        "path": "shop.db",
        "table": "orders",
        "cursor": {"column": "seq", "start": "earliest"},
    }


OUTPUTS = """output:
  broker:
    pattern: fan_out
    outputs:
      - kafka:
          addresses: [ "${BROKERS}" ]
          topic: orders
          key: ${! json("seq") }
          compression: zstd
          ack_replicas: true
          tls: { enabled: true, root_cas_file: ca.pem }
          sasl: { mechanism: SCRAM-SHA-256, user: etl, password: "${PASSWORD}" }
      - kafka_franz:
          seed_brokers: [ "${BROKERS}" ]
          topic: copies
          allow_auto_topic_creation: false
      - file:
          path: out/orders.jsonl
          codec: lines
      - sql_insert:
          driver: postgres
          dsn: ${PG_URL}
          table: mart.orders
          columns: [ seq, content ]
          args_mapping: root = [ this.seq, this.content ]
          suffix: ON CONFLICT (seq) DO UPDATE SET content = excluded.content
      - sql_raw:
          driver: postgres
          dsn: ${PG_URL}
          query: INSERT INTO audit.orders (seq) VALUES ($1) ON CONFLICT DO NOTHING
          args_mapping: root = [ this.seq ]
      - drop: {}
"""


def with_outputs(tmp_path: Path, outputs: str) -> Translation:
    before, _, rest = SEED.read_text().partition("output:\n")
    file = tmp_path / "pipeline.yaml"
    file.write_text(before + outputs + "cache_resources:" + rest.partition("cache_resources:")[2])
    return translate(file)


def test_every_kind_of_output_becomes_a_sink(tmp_path: Path) -> None:
    """Two of one type get names; variables stay variables."""
    translation = with_outputs(tmp_path, OUTPUTS)
    assert job(translation)["sinks"] == [
        {
            "name": "kafka_1",
            "type": "kafka",
            "bootstrap": ["${BROKERS}"],
            "topic": "orders",
            "key": "seq",
            "create": {"partitions": 1},
            "options": {
                "compression.type": "zstd",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "etl",
                "sasl.password": "${PASSWORD}",
                "ssl.ca.location": "ca.pem",
            },
        },
        {"name": "kafka_2", "type": "kafka", "bootstrap": ["${BROKERS}"], "topic": "copies"},
        {"type": "files", "path": "out/orders.jsonl", "format": "jsonl"},
        {
            "name": "postgres_4",
            "type": "postgres",
            "url": "${PG_URL}",
            "table": "mart.orders",
            "mode": "merge",
            "key": ["seq"],
        },
        {"name": "postgres_5", "type": "postgres", "url": "${PG_URL}", "table": "audit.orders"},
    ]


def test_what_outputs_have_and_sinks_have_not_is_noted(tmp_path: Path) -> None:
    """Each with its line; also that nobody saved the mark."""
    said = notes(with_outputs(tmp_path, OUTPUTS))
    assert "fan_out: sinks are written in their order" in said
    assert "kafka.ack_replicas: it has no counterpart and is left out" in said
    assert "out/orders.jsonl is a folder here" in said
    assert "sql_insert: all columns of the query are written to mart.orders under their names" in said
    assert "no output saves the mark 'table_cursor'" in said


CACHES = {
    "memory": ("memory: {}", "memory"),
    "file": ("file: { directory: state/ }", "file:state/floodmark"),
    "sql": ("sql: { driver: postgres, dsn: '${PG_URL}', table: t }", "${PG_URL}"),
    "redis": ("redis: { url: 'redis://localhost' }", "sqlite:///state/marks.db"),
}


@pytest.mark.parametrize("kind", CACHES)
def test_every_kind_of_cache_becomes_a_store(kind: str, tmp_path: Path) -> None:
    """One that Floodmark keeps no marks in is replaced by the default, and noted."""
    cache, store = CACHES[kind]
    text = SEED.read_text().partition("cache_resources:")[0]
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"{text}cache_resources:\n  - label: cached_pgstate\n    {cache}\n")
    translation = translate(file)
    assert translation.values["store"] == store
    assert f": {kind}: " in notes(translation)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("operator: get", "operator: set", "pipeline.yaml:7: there has to be one cache with `operator: get`"),
        ("generate:", "kafka:", "pipeline.yaml:2: the input is 'kafka'"),
        ("where seq > $1", "where seq > $2", "the query has an argument 2, and args_mapping has not"),
        ("where seq > $1", "where seq < $1", "pipeline.yaml:23: the query reads below the mark"),
        ("where seq > $1", "", "the query does not compare one column with the mark"),
        ("select * from", "select from where", "pipeline.yaml:23: the query cannot be read"),
        ("select * from", "delete from", "the query is no plain select"),
        ('json("seq")', 'json("other")', "compares the column 'seq', and the mark is taken from 'other'"),
        ("root.seq = json", "root.other = json", "the field 'other' is saved"),
        ("root.seq = -1", "root.other = -1", "without a mark the field 'other' is set"),
        ("target: cached_pgstate", "target: inmem", "and saved to inmem/table_cursor"),
        ("fan_out_sequential", "round_robin", "pipeline.yaml:32: round_robin gives a row to one of the outputs"),
        ("stdout: {}", "amqp_1: {}", "pipeline.yaml:34: output 'amqp_1' is not translated"),
        ("topic: content_delta", "topic: ${! this.kind }", "the topic is made from each row"),
        ("topic: content_delta", "partition: 1", "kafka_franz has no 'topic'"),
        ("- label: inmem", "- label: other", "there is no cache 'inmem'"),
        ("format: json_array", "format: csv", "taken apart as something else than json_array"),
        ("root = [ this.seq ]", "root = this", "args_mapping is no plain list"),
        ("input:", "inputs:", "pipeline.yaml has no input and output"),
        ("operator: get", "operator: [get", "is not YAML"),
    ],
)
def test_what_would_change_the_rows_is_refused_with_its_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    """Two lines and exit 2 on the command line, never a traceback."""
    with pytest.raises(ConfigError) as raised:
        changed(tmp_path, (old, new))
    assert message in raised.value.message
    assert raised.value.hint


def test_a_mapping_of_rows_is_noted_with_where_it_belongs(tmp_path: Path) -> None:
    """Bloblang is not SQL; the rows arrive, and the note says what is missing."""
    mapping = "format: json_array\n\n    - mapping: 'root.big = this.content.uppercase()'"
    said = notes(changed(tmp_path, ("format: json_array", mapping)))
    assert "mapping: rows arrive as the query gives them: write it as `transform: {sql: select … from source}`" in said


def places(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where every value of a document stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield from ([place] if place else [])
    for name, each in inner:
        yield from places(each, (*place, name))


def sinks_or_hint(file: Path) -> Any:  # noqa: ANN401  (what YAML holds)
    """Where the rows of a translated file go, or what its user is told to do about it."""
    try:
        return job(translate(file))["sinks"]
    except ConfigError as refusal:
        return refusal.hint


WHOLE = {**yaml.safe_load(SEED.read_text()), **yaml.safe_load(OUTPUTS)}
WRONG = (None, "", "x", 5, -1.5, True, [], {}, [1], [[]], {"a": {}}, "${! this.x }")


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(sorted(places(WHOLE), key=str)), wrong=st.sampled_from(WRONG))
def test_whatever_stands_anywhere_is_translated_or_refused(
    place: tuple[str | int, ...], wrong: object, tmp_path: Path
) -> None:
    """Nobody who has a strange file sees a traceback."""
    document: Any = deepcopy(WHOLE)
    reduce(getitem, place[:-1], document)[place[-1]] = wrong
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document))
    assert sinks_or_hint(tmp_path / "pipeline.yaml")
