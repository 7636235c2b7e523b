"""Real processes that race for a store, die in the middle of a save, or run out of disk."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from floodmark import stores
from floodmark.testing.laws.records import ME, files, record, save
from tests.stores.processes import child, next_line, remaining_lines

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.stores.contract import MarkStore

pytestmark = pytest.mark.slow

ROUNDS = 40
KILLS = 20
LOCAL = {"file": "file:{}/marks", "sqlite": "sqlite:///{}/marks.db"}


@pytest.fixture(params=[*LOCAL, pytest.param("postgres", marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The text of a store that processes can share."""
    local = LOCAL.get(request.param)
    return local.format(tmp_path) if local else str(request.getfixturevalue("database"))


def both(tmp_path: Path, first: tuple[object, ...], second: tuple[object, ...]) -> tuple[list[str], list[str]]:
    """What two children say that start at the same instant."""
    with child(*first) as one, child(*second) as two:
        assert (next_line(one), next_line(two)) == ("ready", "ready")
        (tmp_path / "go").touch()
        return remaining_lines(one), remaining_lines(two)


def test_of_two_processes_that_commit_a_number_exactly_one_wins(place: str, tmp_path: Path) -> None:
    """Every number is committed once, and by the one that was told so."""
    store = stores.open(place)
    store.take_lease("orders", ME, over=None)
    one, two = both(
        tmp_path, ("race", place, tmp_path / "go", "1", ROUNDS), ("race", place, tmp_path / "go", "2", ROUNDS)
    )
    winners = {old.number: old.extras.stored["runner"] for old in store.history("orders", limit=ROUNDS)}
    assert sorted(map(int, one + two)) == list(range(1, ROUNDS + 1))
    assert winners == {**{int(number): "1" for number in one}, **{int(number): "2" for number in two}}


def test_of_two_processes_that_take_a_lease_exactly_one_gets_it(place: str, tmp_path: Path) -> None:
    """Also when both also find that the store does not exist yet."""
    one, two = both(tmp_path, ("leases", place, tmp_path / "go", ROUNDS), ("leases", place, tmp_path / "go", ROUNDS))
    assert sorted(map(int, one + two)) == list(range(ROUNDS))


def killed_while_saving(place: str, chance: random.Random) -> int:
    """The last number that a child was told is saved, before it was killed at some instant."""
    with child("commit", place) as process:
        first = int(next_line(process))
        time.sleep(chance.uniform(0.0, 0.04))
        process.kill()
        return max([first, *map(int, remaining_lines(process))])


def assert_whole(acknowledged: int, store: MarkStore) -> None:
    """The record, its list, its history and its receipt are of one number, and that is not below the acknowledged."""
    found = store.read("orders")
    assert found is not None
    assert acknowledged <= found.number <= acknowledged + 1
    expected = record(found.number, landing=files(*(f"/in/{number:08d}" for number in range(1, found.number + 1))))
    assert (found, store.history("orders", 1)[0], store.runs("orders", 1)[0].number) == (
        expected,
        expected,
        found.number,
    )


def test_a_process_killed_in_the_middle_of_a_save_leaves_a_whole_record(place: str) -> None:
    """Twenty kills at random instants, one store: nothing acknowledged is lost, nothing is there by half."""
    chance = random.Random(7)
    for _ in range(KILLS):
        assert_whole(killed_while_saving(place, chance), stores.open(place))


@pytest.mark.parametrize("place", LOCAL, indirect=True)
def test_a_disk_that_is_full_leaves_the_old_record(place: str) -> None:
    """The commit raises, and what was there still reads."""
    store = stores.open(place)
    store.release(save(store, record(1, landing=files("/in/a"))))
    with child("full", place, 300_000) as process:
        assert remaining_lines(process) == ["unreachable"]
    assert stores.open(place).read("orders") == record(1, landing=files("/in/a"))
    save(store, record(2, landing=files("/in/a", "/in/b")))
    assert stores.open(place).read("orders") == record(2, landing=files("/in/a", "/in/b"))
