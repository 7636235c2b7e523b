"""The fence: what is final, who is waited for, and what the record has to learn of it. No database is needed."""

from __future__ import annotations

import json

from floodmark.probes.postgres.fence import OpenTransaction, PreparedTransaction, Writers
from floodmark.sources.tables.safety import Fence, PendingFence

A, B, C = (OpenTransaction(pid, f"10:00:0{pid}") for pid in (1, 2, 3))
P, Q = PreparedTransaction("p", "700"), PreparedTransaction("q", "701")
NOBODY = Writers()


def pending(upto: int, *holders: OpenTransaction) -> PendingFence:
    return PendingFence(upto, Writers(holders))


def test_where_nobody_writes_everything_that_was_seen_is_final() -> None:
    """No transaction is open that could hold a lower value."""
    assert Fence().follow(101, NOBODY) == Fence(passed_value=101)


def test_an_open_transaction_puts_a_fence_at_the_highest_value() -> None:
    """It may hold 100, so nothing is final yet."""
    assert Fence().follow(101, Writers((A,))) == Fence(None, pending(101, A))


def test_a_fence_is_passed_when_its_holder_has_gone_however_many_younger_ones_came() -> None:
    """B and C began after 101 was seen, so they hold higher values; what came since gets a fence of its own."""
    fence = Fence().follow(101, Writers((A,)))
    assert fence.follow(105, Writers((B, C))) == Fence(101, pending(105, B, C))


def test_a_fence_stays_where_it_is_while_a_holder_lives() -> None:
    """Moving it up at every look would never let it be passed on a busy database."""
    fence = Fence(99, pending(101, A, B))
    assert fence.follow(110, Writers((B, C))) == Fence(99, pending(101, B))


def test_what_was_passed_stays_final_while_a_new_fence_is_waited_for() -> None:
    """So a run that was cut by max_rows reads on."""
    assert Fence(passed_value=50).follow(101, Writers((A,))).passed_value == 50


def test_a_session_that_began_another_transaction_is_not_the_old_holder() -> None:
    """A pool gives the same pid to every transaction."""
    again = OpenTransaction(A.pid, "10:05:00")
    assert Fence(None, pending(101, A)).follow(101, Writers((again,))) == Fence(101)


def test_a_holder_that_prepares_is_still_waited_for_by_its_id() -> None:
    """It is no longer open, and its rows may come at any time; another prepared one is not waited for."""
    holder = OpenTransaction(1, "10:00:01", xid="700")
    fence = Fence(None, pending(101, holder)).follow(101, Writers((), (P, Q)))
    assert fence == Fence(None, PendingFence(101, Writers((), (P,))))
    assert fence.follow(101, Writers((), (Q,))).passed_value == 101


def test_a_holder_without_an_id_may_be_any_transaction_that_was_prepared_since() -> None:
    """Which of them it is cannot be seen. Those that are prepared after it went are not asked."""
    fence = Fence(None, pending(101, A)).follow(101, Writers((), (P,)))
    assert fence == Fence(None, PendingFence(101, Writers((), (P,))))
    assert fence.follow(101, Writers((), (Q,))).passed_value == 101


def test_prepared_transactions_are_holders_from_the_beginning() -> None:
    """They hold their values for as long as they like."""
    fence = Fence().follow(101, Writers((), (P,)))
    assert fence.pending == PendingFence(101, Writers((), (P,)))
    assert fence.follow(102, Writers((), (P, Q))) == fence


def test_an_empty_table_has_nothing_to_fence() -> None:
    """There is no value that could be final."""
    assert Fence().follow(None, Writers((A,))) == Fence()


def test_a_fence_survives_being_stored() -> None:
    """The next process goes on from it."""
    fence = Fence(["1"], PendingFence(["5", "x"], Writers((OpenTransaction(7, "then", "9"),), (P,))))
    stored = json.loads(json.dumps(fence.serialize()))
    assert Fence.deserialize(stored) == fence
    assert Fence.deserialize(None) == Fence()


def test_the_record_learns_of_a_new_fence_once() -> None:
    """A tick that sees the same fence, or one holder less, writes nothing: that is found out again at the next look."""
    taken = Fence().follow(101, Writers((A, B)))
    assert taken.is_news_after(Fence())
    assert not taken.follow(105, Writers((A, B, C))).is_news_after(taken)
    assert not taken.follow(105, Writers((B,))).is_news_after(taken)


def test_the_record_learns_who_was_prepared_since() -> None:
    """Else every later prepared transaction might be the one that is meant."""
    taken = Fence().follow(101, Writers((A, B)))
    assert taken.follow(101, Writers((B,), (P,))).is_news_after(taken)
