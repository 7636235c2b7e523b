"""`floodmark deadletters`: what was given up is found, shown and dealt with, without a JVM."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.streams.elements import RecordId
from floodmark.streams.healer.dead_letters import DeadLetter, DeadLetters

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import CommandResult

LETTER = DeadLetter(
    record=RecordId("orders", 0, 17),
    key=b"customer-4",
    value=b'{"no": 3}',
    headers=(("trace", b"\xff"),),
    timestamp=1_700_000_000_123,
    step="map(plus) (step 2)",
    error="ValueError: row is bigger than 3",
    attempts=2,
    first_at=1_700_000_001.0,
    last_at=1_700_000_002.0,
)
TOMBSTONE = replace(LETTER, record=RecordId("orders", 1, 4), key=None, value=None, headers=None)
PROJECT = """
store: sqlite:///state/marks.db
jobs:
  - name: ids
    source: {type: files, path: landing, format: jsonl, schema: "id long"}
    sinks: [{type: delta, path: lake/ids}]
    dead_letters: {path: lake/dead}
    tags: [nightly]
"""
STREAM = """
from floodmark.streams import from_kafka, healing

def plus(row):
    return row[0], row[1].decode() + "!"

source = from_kafka(["orders"], {"bootstrap.servers": "localhost:1", "group.id": "billing"})
source.map(plus).map(healing, stream=source).pluck("data").sink(print)
other = from_kafka(["orders"], {"bootstrap.servers": "localhost:1", "group.id": "shipping"})
nothing = 3
"""


@pytest.fixture
def letters(folder: Path) -> DeadLetters:
    """Two letters of the stream `billing`, in the folder that a stream takes when nobody says another."""
    letters = DeadLetters(folder / ".floodmark" / "streams" / "billing" / "dead")
    letters.add([LETTER, TOMBSTONE])
    return letters


@pytest.fixture
def project(folder: Path) -> Path:
    """A project with a job that put two lines aside."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    rows = {
        "job": ["ids", "ids", "another"],
        "source": ["files"] * 3,
        "number": [2, 1, 1],
        "batch_time": ["2026-01-01T00:00:00+00:00"] * 3,
        "file": ["b.json", "a.json", "c.json"],
        "line": [1, 9, 1],
        "text": ["{no", "[]", "…"],
        "reason": ["not JSON", "no object", "…"],
    }
    write_deltalake(str(folder / "lake" / "dead"), pa.table(rows))
    return folder


def test_nothing_given_up_is_said_in_one_line(floodmark: Callable[..., CommandResult]) -> None:
    """Neither a project file nor a stream has to be there."""
    assert floodmark("deadletters", "list").out == "no dead letters\n"


def test_list_shows_the_open_letters_of_every_stream(
    floodmark: Callable[..., CommandResult], letters: DeadLetters
) -> None:
    """By topic, partition and offset, with the reason cut to a line."""
    letters.resolve(TOMBSTONE.record, "discarded", at=1_700_000_003.0)
    said = floodmark("deadletters", "list")
    assert said.out.splitlines()[1].split(maxsplit=5) == [
        "billing",
        "orders/0/17",
        "open",
        "2023-11-14T22:13:22.000+00:00",
        "2",
        "map(plus) (step 2): ValueError: row is bigger than 3",
    ]
    assert len(said.out.splitlines()) == 2


def test_list_all_shows_what_was_dealt_with_too(floodmark: Callable[..., CommandResult], letters: DeadLetters) -> None:
    """Nothing is forgotten by dealing with it."""
    letters.resolve(TOMBSTONE.record, "discarded", at=1_700_000_003.0)
    listed = json.loads(floodmark("deadletters", "list", "billing", "--all", "--json").out)["dead_letters"]
    assert [(each["letter"], each["status"]) for each in listed] == [
        ("orders/0/17", "open"),
        ("orders/1/4", "discarded"),
    ]


def test_list_finds_the_letters_of_the_jobs_of_the_project(
    floodmark: Callable[..., CommandResult], project: Path
) -> None:
    """In their Delta table, read without a JVM; those of another job in the same table are not theirs."""
    listed = json.loads(floodmark("deadletters", "list", "--json").out)["dead_letters"]
    assert [(each["of"], each["kind"], each["letter"], each["error"]) for each in listed] == [
        ("ids", "job", "1:a.json:9", "no object"),
        ("ids", "job", "2:b.json:1", "not JSON"),
    ]


def test_show_prints_a_letter_whole(floodmark: Callable[..., CommandResult], letters: DeadLetters) -> None:
    """Bytes that are no text are written as Python writes them."""
    said = floodmark("deadletters", "show", "billing", "orders/0/17", "--json")
    assert json.loads(said.out)["dead_letters"] == [
        {
            "of": "billing",
            "kind": "stream",
            "letter": "orders/0/17",
            "status": "open",
            "at": "2023-11-14T22:13:22.000+00:00",
            "attempts": 2,
            "step": "map(plus) (step 2)",
            "error": "ValueError: row is bigger than 3",
            "first_at": "2023-11-14T22:13:21.000+00:00",
            "timestamp": "2023-11-14T22:13:20.123+00:00",
            "key": "customer-4",
            "headers": [["trace", "b'\\xff'"]],
            "value": '{"no": 3}',
        }
    ]


def test_show_says_none_for_the_value_of_a_tombstone(
    floodmark: Callable[..., CommandResult], letters: DeadLetters
) -> None:
    """An empty line would be an empty value."""
    assert "     value  (none)" in floodmark("deadletters", "show", "billing", "orders/1/4").out


def test_show_prints_the_text_of_a_jobs_letter(floodmark: Callable[..., CommandResult], project: Path) -> None:
    """The line as it stood in the file."""
    listed = json.loads(floodmark("deadletters", "show", "ids", "2:b.json:1", "--json").out)["dead_letters"]
    assert (listed[0]["text"], listed[0]["file"], listed[0]["line"]) == ("{no", "b.json", 1)


def test_discard_closes_the_letters_that_were_named(
    floodmark: Callable[..., CommandResult], letters: DeadLetters
) -> None:
    """And no other."""
    said = floodmark("deadletters", "discard", "billing", "orders/0/17", "--yes")
    assert (said.code, said.out) == (0, "billing: 1 discarded\n")
    assert [each.status for each in letters.all()] == ["discarded", "open"]


def test_discard_with_dry_run_says_what_it_would_do(
    floodmark: Callable[..., CommandResult], letters: DeadLetters
) -> None:
    """And does nothing."""
    assert (
        floodmark("deadletters", "discard", "billing", "--dry-run").out == "would discard 2 dead letters of 'billing'\n"
    )
    assert len(letters.open_letters()) == 2


def test_replay_runs_letters_through_the_stream_that_gave_them_up(
    floodmark: Callable[..., CommandResult], letters: DeadLetters, folder: Path
) -> None:
    """What fails again stays open and makes the exit code 1; what follows healing gets the results."""
    (folder / "billing_stream.py").write_text(STREAM)
    said = floodmark("deadletters", "replay", "billing", "--from", "billing_stream:source", "--yes")
    assert said.out.splitlines() == [
        '{"no": 3}!',
        "billing: 1 healed, 0 dropped, 1 failed again",
        "orders/1/4: map(plus) (step 1): AttributeError: 'NoneType' object has no attribute 'decode'",
    ]
    assert said.code == 1
    assert [(each.status, each.attempts) for each in letters.all()] == [("replayed", 2), ("open", 3)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "shipping"), "no stream or job 'shipping' with dead letters. | one of: billing"),
        (("show", "billing", "orders/0/1"), "no such letter: orders/0/1. | floodmark deadletters list billing --all"),
        (("list", "--state", "nowhere"), "there is no folder nowhere. | give the `state` folder"),
        (("replay", "billing"), "are in your program. | floodmark deadletters replay billing --from MODULE:STREAM"),
        (("replay", "billing", "--from", "billing_wrong:other", "--yes"), "group 'shipping', and the letters are of"),
        (("replay", "billing", "--from", "billing_wrong:nothing", "--yes"), "is a int. | name what from_kafka"),
    ],
)
def test_a_mistake_is_told_in_two_lines(
    floodmark: Callable[..., CommandResult],
    letters: DeadLetters,
    folder: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    """What is wrong, and what to do next."""
    (folder / "billing_wrong.py").write_text(STREAM)
    said = floodmark("deadletters", *arguments)
    assert said.code == 2
    assert message in said.err.replace("\nTry: ", " | ")


def test_a_stream_has_no_quarantine_and_is_told_so_by_name(
    floodmark: Callable[..., CommandResult], project: Path
) -> None:
    """Its letters are found beside the marks of the project; a name that nothing has is another mistake."""
    DeadLetters(project / "state" / "streams" / "billing" / "dead").add([LETTER])
    refused = floodmark("quarantine", "show", "billing")
    assert (refused.code, refused.err.splitlines()) == (
        2,
        [
            "Error: 'billing' is a stream: it has no rules, and so no quarantine.",
            "Try: what it gave up is in its dead letters: floodmark deadletters list billing",
        ],
    )
    assert "billing" in floodmark("deadletters", "list", "billing").out


def test_a_letter_that_holds_no_record_cannot_be_replayed_and_the_error_says_what_can_be_done(
    floodmark: Callable[..., CommandResult], project: Path
) -> None:
    """The text of a line alone does not make a row."""
    said = floodmark("deadletters", "replay", "ids", "--yes")
    assert said.code == 2
    assert "letter 1:a.json:9 of 'ids' holds its text alone" in said.err
    assert "Try: fix it at the source" in said.err


@pytest.mark.parametrize(
    ("words", "of"),
    [
        (("list", "tag:nightly"), ["ids", "ids"]),
        (("show", "tag:nightly"), ["ids", "ids"]),
        (("list", "--select", "+ids"), ["ids", "ids"]),
        (("show", "--select", "bil*"), ["billing"]),
        (("list", "--exclude", "tag:nightly"), ["billing"]),
        (("list", "ids", "billing", "--exclude", "b*"), ["ids", "ids"]),
    ],
)
def test_streams_and_jobs_are_chosen_by_the_words_of_every_command(
    floodmark: Callable[..., CommandResult], project: Path, words: tuple[str, ...], of: list[str]
) -> None:
    """Patterns mean streams too, which have no tags."""
    DeadLetters(project / "state" / "streams" / "billing" / "dead").add([LETTER])
    listed = json.loads(floodmark("deadletters", *words, "--json").out)["dead_letters"]
    assert [each["of"] for each in listed] == of


def test_beside_select_every_argument_is_a_letter(floodmark: Callable[..., CommandResult], project: Path) -> None:
    """So one of a job that is chosen by its tag can be named."""
    said = floodmark("deadletters", "show", "--select", "tag:nightly", "2:b.json:1", "--json")
    assert [each["letter"] for each in json.loads(said.out)["dead_letters"]] == ["2:b.json:1"]


def test_several_are_asked_about_one_by_one_and_letters_belong_to_one(
    floodmark: Callable[..., CommandResult], project: Path
) -> None:
    """A letter is named within its stream or job."""
    DeadLetters(project / "state" / "streams" / "billing" / "dead").add([LETTER])
    DeadLetters(project / "state" / "streams" / "shipping" / "dead").add([LETTER, TOMBSTONE])
    asked = floodmark("deadletters", "discard", "--select", "*", "--exclude", "ids", "--dry-run")
    assert asked.out.splitlines() == [
        "would discard 1 dead letter of 'billing'",
        "would discard 2 dead letters of 'shipping'",
    ]
    refused = floodmark("deadletters", "discard", "--select", "*ing", "orders/0/17", "--yes")
    assert (refused.code, refused.err.splitlines()[0]) == (
        2,
        "Error: 2 streams and jobs are named, and this is about one: billing, shipping.",
    )
