"""What the pages show while a look at the project takes long."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from floodmark import stores
from floodmark.cli.invocation import Invocation
from floodmark.cli.pages import snapshot_of
from floodmark.errors import StoreUnreachable
from floodmark.web import pages as module
from floodmark.web.pages import Pages
from floodmark.web.snapshot import KnownProject, Snapshot


@pytest.fixture
def seen(shared_shop: Path) -> list[Snapshot]:
    """Two looks at the shop."""
    invocation = Invocation(project=shared_shop / "floodmark.yaml")
    known = KnownProject()
    return [snapshot_of(invocation, known), snapshot_of(invocation, known)]


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look is old at once."""
    monkeypatch.setattr(module, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(module, "PAUSE_FACTOR", 0.0)


def pages_over(look: object, quick_seconds: float) -> Pages:
    return Pages(look, lambda: stores.open("memory"), quick_seconds=quick_seconds)  # type: ignore[arg-type]


def test_a_quick_look_is_taken_for_every_page(seen: list[Snapshot]) -> None:
    """A small project is shown as it is now."""
    looks = list(seen)
    pages = pages_over(lambda: looks.pop(0), 60.0)
    assert [pages.snapshot(), pages.snapshot()] == seen


def test_a_page_does_not_wait_for_a_look_that_takes_long(seen: list[Snapshot]) -> None:
    """It shows what the last look saw, and the next one goes on beside it."""
    go_on, is_under_way = threading.Event(), threading.Event()

    def look() -> Snapshot:
        if pages._last is None:
            return seen[0]
        is_under_way.set()
        assert go_on.wait(30)
        return seen[1]

    pages = pages_over(look, -1.0)
    assert pages.snapshot() is seen[0]
    assert pages.snapshot() is seen[0]
    assert is_under_way.wait(30)
    assert pages.snapshot() is seen[0]
    go_on.set()
    pages.look_beside().join(30)  # waits for the one that is under way, and takes what it saw
    assert pages.snapshot() is seen[1]


def test_a_new_server_looks_and_counts_before_anybody_asks(seen: list[Snapshot]) -> None:
    """The first page, and the first question of Prometheus, need not wait for it."""
    done: list[str] = []

    def look() -> Snapshot:
        done.append("looked")
        return seen[0]

    pages = replace(pages_over(look, 60.0), metrics=lambda: (done.append("counted"), b"")[1])
    pages.prepare().join(30)
    assert done == ["looked", "counted"]


def test_a_store_that_is_gone_is_told_though_an_earlier_look_saw_it(seen: list[Snapshot]) -> None:
    """What cannot be read any more is not shown as it once was."""
    looks: list[Snapshot] = seen[:1]

    def look() -> Snapshot:
        if looks:
            return looks.pop()
        raise StoreUnreachable("sqlite:///marks.db", reason="it is gone")

    pages = pages_over(look, -1.0)
    pages.snapshot()
    pages.look_beside(pages._last).join(30)
    with pytest.raises(StoreUnreachable):
        pages.snapshot()


def test_a_second_look_reads_no_table_anew_and_sees_what_changed(shop: Path) -> None:
    """What is known of a table whose log did not grow is kept; a table that is gone is noticed."""
    invocation, known = Invocation(project=shop / "floodmark.yaml"), KnownProject()
    first = snapshot_of(invocation, known)
    again = snapshot_of(invocation, known)
    (shop / "lake/gold/revenue").rename(shop / "elsewhere")
    after = snapshot_of(invocation, known)
    assert again.lineage is first.lineage
    statuses = {node.label: node.status for node in after.graph.nodes}
    assert (statuses["lake/silver/orders"], statuses["lake/gold/revenue"]) == ("HEALTHY", "CRITICAL")
