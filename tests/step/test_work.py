"""Which batches are frozen before they are written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError
from floodmark.rules import Action, RuleSet
from floodmark.sinks.contract import Sink
from floodmark.sources.contract import Source
from floodmark.step.transform import Function, Identity, Sql, Transform
from floodmark.step.work import Work, option_text

if TYPE_CHECKING:
    from pyspark.sql import Column

FILES = fm.sources.Files("in")
TABLE = fm.sources.Postgres("postgresql://db/shop", table="orders", cursor="id")
DELTA, KAFKA, CONSOLE = fm.sinks.Delta("lake"), fm.sinks.Kafka("127.0.0.1:9", "orders"), fm.sinks.Console()
OTHER = fm.sinks.Delta("other", name="other")
FUNCTION = Function(lambda rows: rows)


@pytest.mark.parametrize(
    ("source", "transform", "sinks", "is_frozen"),
    [
        (FILES, Identity(), (DELTA,), False),
        (TABLE, Identity(), (DELTA,), False),
        (FILES, Identity(), (DELTA, KAFKA), False),
        (TABLE, Identity(), (DELTA, KAFKA), True),
        (FILES, Identity(), (KAFKA,), False),
        (TABLE, Identity(), (KAFKA,), True),
        (FILES, FUNCTION, (KAFKA,), True),
        (FILES, FUNCTION, (DELTA,), False),
        (FILES, Identity(), (CONSOLE,), True),
        (FILES, Sql("select upper(v) as v from source"), (KAFKA,), False),
        (FILES, Sql("select s.v, d.w from source s join lake.rates d on s.k = d.k"), (KAFKA,), True),
        (FILES, Sql("select s.v, d.w from source s join delta.`/rates` d on s.k = d.k"), (DELTA, OTHER), True),
        (FILES, Sql("select k, max_by(v, t) as v from source group by k"), (KAFKA,), True),
        (FILES, Sql("select k, max_by(v, t) as v from source group by k"), (DELTA,), False),
    ],
)
def test_a_batch_is_frozen_where_a_second_reading_might_differ_and_somebody_would_see_it(
    source: Source, transform: Transform, sinks: tuple[Sink, ...], is_frozen: bool
) -> None:
    """Several sinks see it, and one that goes on after its last piece; one that is all or nothing does not."""
    assert (Work("orders", (source,), sinks, transform).why_spooled() is not None) is is_frozen


@pytest.mark.parametrize(
    ("transform", "sinks", "rules", "is_frozen"),
    [
        (Identity(), (KAFKA,), (), False),
        (FUNCTION, (KAFKA,), (), False),
        (Identity(), (DELTA, KAFKA), (), True),
        (Identity(), (KAFKA,), (fm.rules.not_null("id", action="drop"),), True),
    ],
)
def test_a_batch_that_its_only_sink_takes_at_once_is_not_frozen(
    transform: Transform, sinks: tuple[Sink, ...], rules: tuple[fm.rules.Rule, ...], is_frozen: bool
) -> None:
    """It is all or nothing then: nobody compares two attempts."""
    work = Work("orders", (TABLE,), sinks, transform, RuleSet(rules))
    assert (work.why_spooled(at_once=True) is not None) is is_frozen


FAILING, PUT_ASIDE = fm.rules.not_null("id", action="fail"), fm.rules.not_null("id", action="quarantine")
GROUPED = Sql("select id, count(*) as n from source group by id")


@pytest.mark.parametrize(
    ("source", "transform", "sink", "rule", "reason"),
    [
        (FILES, Identity(), DELTA, FAILING, "a rule has to see all rows"),
        (FILES, Identity(), KAFKA, PUT_ASIDE, "a sink that takes a batch piece by piece"),
        (FILES, GROUPED, DELTA, PUT_ASIDE, "the transform may shuffle them"),
        (TABLE, Identity(), DELTA, PUT_ASIDE, "rows for the quarantine are read a second time"),
        (FILES, Identity(), CONSOLE, PUT_ASIDE, "sink 'console' takes only some of the rows"),
    ],
)
def test_a_batch_is_frozen_for_a_reason_that_can_be_read(
    source: Source, transform: Transform, sink: Sink, rule: fm.rules.Rule, reason: str
) -> None:
    """The step decides by it, and `lint` prints it."""
    work = Work("orders", (source,), (sink,), transform, RuleSet((rule,)), quarantine=DELTA)
    assert reason in str(work.why_spooled())


@dataclass(frozen=True)
class OwnRule:
    """A rule of a user's own kind, which may ask anything."""

    name: str = "own"
    action: Action = "drop"

    def describe(self) -> str:
        return "own"

    def holds(self) -> Column:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("rule", "sinks", "is_frozen"),
    [
        (fm.rules.check("amount > 0", action="quarantine"), (DELTA,), False),
        (fm.rules.check("amount > rand()", action="quarantine"), (DELTA,), True),
        (fm.rules.check("id in (select id from lake.known)", action="quarantine"), (DELTA,), True),
        (fm.rules.check("seen_at < now()", action="drop"), (DELTA, OTHER), True),
        (fm.rules.check("seen_at < now()", action="drop"), (DELTA,), False),
        (fm.rules.range("amount", min=0, action="drop"), (DELTA, OTHER), False),
        (OwnRule(), (DELTA, OTHER), True),
        (OwnRule(), (DELTA,), False),
    ],
)
def test_a_rule_that_may_judge_otherwise_freezes_the_batch_if_it_judges_twice(
    rule: fm.rules.Rule, sinks: tuple[Sink, ...], is_frozen: bool
) -> None:
    """For a second sink, or for the quarantine: the row would be in both, or in none."""
    work = Work("orders", (FILES,), sinks, rules=RuleSet((rule,)), quarantine=DELTA)
    assert (work.why_spooled() is not None) is is_frozen


def test_the_reason_names_the_function_that_is_not_known() -> None:
    """So that a user can write another one."""
    work = Work("orders", (FILES,), (KAFKA,), Sql("select mode(v) as v from source"))
    assert work.why_spooled() == "the transform is not known to give the same rows again: it asks mode"


@pytest.mark.parametrize(
    "options",
    [
        {"key": "uuid()"},
        {"partition": "rand() * 3"},
        {"value": "text:concat(id, current_timestamp())"},
        {"headers": {"at": "now()"}},
    ],
)
def test_a_message_that_is_another_one_each_time_is_refused(options: dict[str, Any]) -> None:
    """Half of a batch that went out by other keys cannot be told from the half that has to follow."""
    with pytest.raises(ConfigError, match="answers otherwise"):
        Work("orders", (FILES,), (fm.sinks.Kafka("127.0.0.1:9", "orders", **options),))


def test_a_message_of_the_row_alone_is_not() -> None:
    """A column may have any name."""
    sink = fm.sinks.Kafka("127.0.0.1:9", "t", key="user", value="text:upper(v)", headers={"kind": "current_date"})
    with pytest.raises(ConfigError, match="current_date"):
        Work("orders", (FILES,), (sink,))
    assert Work("orders", (FILES,), (replace(sink, headers="version"),))


WITHOUT_TIME = fm.sources.Postgres(
    "postgresql://db/shop", table="orders", cursor=fm.sources.Cursor("at", on_null="include")
)


def test_a_row_that_comes_again_once_it_has_a_cursor_needs_a_sink_that_merges() -> None:
    """An append would keep it twice: without its time, and with it."""
    merging = fm.sinks.Delta("lake", mode="merge", key=["id"])
    assert Work("orders", (WITHOUT_TIME,), (merging,)).sinks == (merging,)
    with pytest.raises(ConfigError, match="on_null: include"):
        Work("orders", (WITHOUT_TIME,), (merging, fm.sinks.Delta("other", name="other")))


def test_an_option_that_is_part_of_itself_is_shown_once() -> None:
    """A source of somebody else's may keep anything in its fields."""
    options: dict[str, object] = {"path": "in", "password": "s3cret"}
    options["more"] = [options]
    assert option_text(options) == "[('more', \"['itself']\"), ('path', 'in')]"
