"""Which batches are frozen before they are written."""

from __future__ import annotations

import pytest

import floodmark as fm
from floodmark.errors import ConfigError
from floodmark.rules import RuleSet
from floodmark.sinks.contract import Sink
from floodmark.sources.contract import Source
from floodmark.step.transform import Function, Identity, Sql, Transform
from floodmark.step.work import Work

FILES = fm.sources.Files("in")
TABLE = fm.sources.Postgres("postgresql://db/shop", table="orders", cursor="id")
DELTA, KAFKA, CONSOLE = fm.sinks.Delta("lake"), fm.sinks.Kafka("127.0.0.1:9", "orders"), fm.sinks.Console()
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
    ],
)
def test_a_batch_is_frozen_where_a_second_reading_might_differ_and_somebody_would_see_it(
    source: Source, transform: Transform, sinks: tuple[Sink, ...], is_frozen: bool
) -> None:
    """Several sinks see it, and one that goes on after its last piece; one that is all or nothing does not."""
    assert (Work("orders", (source,), sinks, transform).why_spooled() is not None) is is_frozen


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


WITHOUT_TIME = fm.sources.Postgres(
    "postgresql://db/shop", table="orders", cursor=fm.sources.Cursor("at", on_null="include")
)


def test_a_row_that_comes_again_once_it_has_a_cursor_needs_a_sink_that_merges() -> None:
    """An append would keep it twice: without its time, and with it."""
    merging = fm.sinks.Delta("lake", mode="merge", key=["id"])
    assert Work("orders", (WITHOUT_TIME,), (merging,)).sinks == (merging,)
    with pytest.raises(ConfigError, match="on_null: include"):
        Work("orders", (WITHOUT_TIME,), (merging, fm.sinks.Delta("other", name="other")))
