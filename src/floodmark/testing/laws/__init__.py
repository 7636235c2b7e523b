"""The laws of a mark store as one suite: subclass `MarkStoreLaws`, give its fixtures, and pytest tries your store."""

# ruff: noqa: S101 - assert is how a law speaks

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import LeaseHeld, LeaseLost, MarkInvalid, MarkMoved, MarkUnreadable
from floodmark.hwm import KeyValueIntHWM, Span
from floodmark.stores.extras import RecordExtras
from floodmark.stores.record import Intent, JobRecord
from floodmark.testing.laws.records import (
    ME,
    NOON,
    OTHER,
    OpenStore,
    PruningLaws,
    files,
    mark,
    receipt,
    record,
    save,
    with_open_intent,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class MarkStoreLaws(PruningLaws):
    """What holds for every store. A fixture that is missing fails every law: nothing is skipped.

    >>> class TestRedisMarkStore(MarkStoreLaws): ...  # with its fixtures `open_store`, `stored_bytes` and `spoil`
    """

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """Opens the same store again, as a new process would."""
        raise NotImplementedError("give the fixture open_store")

    @pytest.fixture
    def stored_bytes(self) -> Callable[[str], bytes]:
        """The bytes that the store keeps as the record of a job."""
        raise NotImplementedError("give the fixture stored_bytes")

    @pytest.fixture
    def spoil(self) -> Callable[[str], None]:
        """Damages the stored record of a job, as a failing disk would."""
        raise NotImplementedError("give the fixture spoil")

    def test_a_missing_mark_reads_as_none(self, open_store: OpenStore) -> None:
        """No mark is a state of its own, and not an error."""
        store = open_store()
        assert (store.read("orders"), store.lease("orders"), store.last_looked("orders")) == (None, None, None)
        assert (list(store.jobs()), list(store.history("orders")), list(store.runs())) == ([], [], [])

    def test_what_was_saved_reads_back_equal_in_a_new_process(self, open_store: OpenStore) -> None:
        """Marks, fingerprints, extras, number, origin and time: all of it, exactly."""
        offsets = KeyValueIntHWM("events", {0: 2**60, 1: 5}, topic="events", modified_time=NOON)
        whole = replace(
            record(1, landing=files("/in/a", "/in/ü b")),
            extras=RecordExtras({"big": 2**70, "none": None}),
            origin="import",
        )
        whole = replace(whole, marks={**whole.marks, "events": offsets})
        save(open_store(), whole)
        assert open_store().read("orders") == whole

    def test_an_open_intent_reads_back_equal_in_a_new_process(self, open_store: OpenStore) -> None:
        """After a crash the same batch must be finished: same span, same number."""
        lease = save(open_store(), record(1))
        open_store().intend(with_open_intent(record(1)), expected=1, lease=lease)
        assert open_store().read("orders") == with_open_intent(record(1))

    def test_the_first_intent_needs_no_record_before_it(self, open_store: OpenStore) -> None:
        """A job that crashes in its first batch has an intent and no mark."""
        store, blank = open_store(), JobRecord("orders")
        begun = replace(with_open_intent(blank), modified_time=NOON)
        store.intend(begun, expected=0, lease=store.take_lease("orders", ME, over=None))
        assert open_store().read("orders") == begun

    def test_a_record_that_did_not_change_is_the_very_object_known(self, open_store: OpenStore) -> None:
        """A look must not parse again what it has seen."""
        store = open_store()
        save(store, record(1))
        known = store.read("orders")
        assert known is not None
        assert store.read("orders", known) is known

    def test_the_record_that_was_committed_is_known_to_its_own_store(self, open_store: OpenStore) -> None:
        """The batch after this one starts from the object that was just saved."""
        store, first = open_store(), record(1)
        save(store, first)
        assert store.read("orders", first) is first

    def test_a_change_from_outside_is_seen_at_the_next_read(self, open_store: OpenStore) -> None:
        """Another process sets the mark while this one holds an older object."""
        store = open_store()
        save(store, record(1))
        known = store.read("orders")
        save(open_store(), record(2))
        assert store.read("orders", known) == record(2)

    def test_changing_the_object_after_saving_changes_nothing_stored(self, open_store: OpenStore) -> None:
        """What is stored is text, not the caller's object."""
        extras: dict[str, Any] = {"ties": [1, 2]}
        store = open_store()
        save(store, replace(record(1), extras=RecordExtras(extras)))
        extras["ties"].append(3)
        assert (store.read("orders"), open_store().read("orders")) == (record(1), record(1))

    def test_a_stale_commit_changes_nothing(self, open_store: OpenStore) -> None:
        """The number is compared when it is saved, not when it was read."""
        lease = save(open_store(), record(1), record(2))
        with pytest.raises(MarkMoved) as moved:
            open_store().commit(record(3), expected=1, lease=lease, receipt=receipt(3))
        assert (moved.value.stored, moved.value.expected) == (2, 1)
        assert open_store().read("orders") == record(2)
        assert [run.number for run in open_store().runs("orders")] == [2, 1]

    def test_a_stale_intent_changes_nothing(self, open_store: OpenStore) -> None:
        """An intent is compared as a commit is."""
        lease = save(open_store(), record(1), record(2))
        with pytest.raises(MarkMoved):
            open_store().intend(with_open_intent(record(1)), expected=1, lease=lease)
        assert open_store().read("orders") == record(2)

    def test_a_commit_has_to_raise_the_number(self, open_store: OpenStore) -> None:
        """The number is the fence of every sink: it only grows, also where the mark goes back."""
        lease = save(open_store(), record(1), record(2))
        with pytest.raises(MarkInvalid):
            open_store().commit(record(2), expected=2, lease=lease)
        assert open_store().read("orders") == record(2)

    def test_an_intent_may_not_move_a_mark(self, open_store: OpenStore) -> None:
        """The mark moves last, by the commit alone."""
        lease = save(open_store(), record(1))
        with pytest.raises(MarkInvalid):
            open_store().intend(replace(record(2), number=1), expected=1, lease=lease)
        assert open_store().read("orders") == record(1)

    def test_set_may_lower_a_mark_under_a_higher_number(self, open_store: OpenStore) -> None:
        """Going back is a person's decision, and it is seen in the history as such."""
        lowered = replace(record(3), marks={"table": mark(5)}, origin="set")
        save(open_store(), record(2), lowered)
        assert open_store().read("orders") == lowered
        assert [(old.number, old.origin) for old in open_store().history("orders")] == [(3, "set"), (2, "commit")]

    def test_history_is_newest_first_and_bounded(self, open_store: OpenStore) -> None:
        """Committed records only, as they were."""
        save(open_store(keep_history=3), record(1), record(2), record(3), record(4), record(5))
        assert list(open_store(keep_history=3).history("orders")) == [record(5), record(4), record(3)]
        assert list(open_store(keep_history=3).history("orders", limit=1)) == [record(5)]

    def test_history_has_no_intents(self, open_store: OpenStore) -> None:
        """What was only begun is not history."""
        lease = save(open_store(), record(1))
        open_store().intend(with_open_intent(record(1)), expected=1, lease=lease)
        assert list(open_store().history("orders")) == [record(1)]

    def test_receipts_come_with_their_commits_newest_first_and_bounded(self, open_store: OpenStore) -> None:
        """A receipt is saved in the same piece as its commit."""
        save(open_store(keep_runs=2), record(1), record(2), record(3))
        assert list(open_store(keep_runs=2).runs("orders")) == [receipt(3), receipt(2)]

    def test_a_failed_run_leaves_a_receipt_and_no_record(self, open_store: OpenStore) -> None:
        """A job that never committed has no mark, whatever was noted about it."""
        failed = replace(receipt(0), status="failed", error="no such table")
        open_store().add_run(failed)
        assert list(open_store().runs("orders")) == [failed]
        assert (open_store().read("orders"), list(open_store().jobs())) == (None, [])

    def test_a_receipt_of_its_own_leaves_the_record_alone(self, open_store: OpenStore) -> None:
        """Adding one is no change of the record."""
        store = open_store()
        save(store, record(1))
        known = store.read("orders")
        open_store().add_run(receipt(7))
        assert store.read("orders", known) is known

    def test_runs_of_all_jobs_are_newest_first(self, open_store: OpenStore) -> None:
        """By the time they started."""
        store = open_store()
        store.add_run(receipt(2, job="a"))
        store.add_run(receipt(1, job="b"))
        store.add_run(receipt(3, job="b"))
        assert [(run.job, run.number) for run in open_store().runs()] == [("b", 3), ("a", 2), ("b", 1)]
        assert [run.number for run in open_store().runs(limit=1)] == [3]

    def test_two_jobs_in_one_store_are_apart(self, open_store: OpenStore) -> None:
        """Records, history, receipts and leases."""
        save(open_store(), record(1, job="b"))
        save(open_store(), record(1, job="a"), record(2, job="a"))
        assert list(open_store().jobs()) == ["a", "b"]
        assert (open_store().read("a"), open_store().read("b")) == (record(2, job="a"), record(1, job="b"))
        assert [run.number for run in open_store().runs("b")] == [1]

    def test_two_namespaces_in_one_store_are_apart(self, open_store: OpenStore) -> None:
        """Several projects may share one store."""
        save(open_store(namespace="prod"), record(1))
        dev = open_store(namespace="dev")
        assert (dev.read("orders"), list(dev.jobs()), list(dev.runs())) == (None, [], [])
        assert (dev.lease("orders"), open_store(namespace="prod").read("orders")) == (None, record(1))

    def test_names_that_look_alike_never_share_a_record(self, open_store: OpenStore) -> None:
        """Upper case, separators, dots, Unicode forms, very long names."""
        alike = ["a/b", "a:b", "a b", "A/B", "..", ".", "caf\u00e9", "cafe\u0301", "%2e", "n" * 300, "n" * 299 + "m"]
        store = open_store()
        _ = [save(store, replace(record(1, job=name), extras=RecordExtras({"name": name}))) for name in alike]
        found = [open_store().read(name) for name in alike]
        assert [one and one.extras.stored["name"] for one in found] == alike
        assert list(open_store().jobs()) == sorted(alike)

    def test_empty_polls_leave_the_record_as_it_was(
        self, open_store: OpenStore, stored_bytes: Callable[[str], bytes]
    ) -> None:
        """A loop that finds nothing writes nothing but when it looked."""
        store = open_store()
        save(store, record(1))
        before, known = stored_bytes("orders"), store.read("orders")

        def poll() -> bool:
            store.looked("orders", NOON)
            return store.read("orders", known) is known

        assert all(poll() for _ in range(100))
        assert (stored_bytes("orders"), open_store().last_looked("orders")) == (before, NOON)

    def test_an_intent_that_changes_nothing_is_not_written(
        self, open_store: OpenStore, stored_bytes: Callable[[str], bytes]
    ) -> None:
        """The same intent again is the same record."""
        store = open_store()
        lease = save(store, record(1))
        store.intend(with_open_intent(record(1)), expected=1, lease=lease)
        before, known = stored_bytes("orders"), store.read("orders")
        open_store().intend(with_open_intent(record(1)), expected=1, lease=lease)
        assert stored_bytes("orders") == before
        assert store.read("orders", known) is known

    def test_an_unreadable_record_is_never_taken_for_none(
        self, open_store: OpenStore, spoil: Callable[[str], None]
    ) -> None:
        """Taking it for a first run would read and write everything again."""
        lease = save(open_store(), record(1))
        spoil("orders")
        with pytest.raises(MarkUnreadable):
            open_store().read("orders")
        with pytest.raises(MarkUnreadable):
            open_store().commit(record(2), expected=1, lease=lease)
        with pytest.raises(MarkUnreadable):
            open_store().commit(record(2), expected=0, lease=lease)

    def test_a_reset_replaces_an_unreadable_record(self, open_store: OpenStore, spoil: Callable[[str], None]) -> None:
        """It is how a person gets rid of it."""
        lease = save(open_store(), record(1))
        spoil("orders")
        blank = JobRecord("orders", 7, origin="reset", modified_time=NOON)
        open_store().commit(blank, expected=0, lease=lease)
        assert open_store().read("orders") == blank

    def test_a_lease_is_taken_once(self, open_store: OpenStore) -> None:
        """Whoever comes second is told who was first."""
        open_store().take_lease("orders", ME, over=None)
        with pytest.raises(LeaseHeld) as held:
            open_store().take_lease("orders", OTHER, over=None)
        assert held.value.holder == str(ME)

    def test_a_lease_is_taken_over_only_from_the_owner_that_was_watched(self, open_store: OpenStore) -> None:
        """Two that find the same dead owner cannot both get its lease."""
        dead = open_store().take_lease("orders", OTHER, over=None)
        mine = open_store().take_lease("orders", ME, over=dead)
        with pytest.raises(LeaseHeld):
            open_store().take_lease("orders", OTHER, over=dead)
        stored = open_store().lease("orders")
        assert stored is not None
        assert (stored.token, stored.owner) == (mine.token, ME)

    def test_a_lease_that_was_taken_over_cannot_do_anything(self, open_store: OpenStore) -> None:
        """Neither begin, nor commit, nor beat; and giving it back leaves the new one alone."""
        old = save(open_store(), record(1))
        new = open_store().take_lease("orders", OTHER, over=old)
        with pytest.raises(LeaseLost):
            open_store().commit(record(2), expected=1, lease=old)
        with pytest.raises(LeaseLost):
            open_store().intend(with_open_intent(record(1)), expected=1, lease=old)
        with pytest.raises(LeaseLost) as lost:
            open_store().beat(old)
        open_store().release(old)
        left = open_store().lease("orders")
        assert (lost.value.holder, left and left.token) == (str(OTHER), new.token)
        assert open_store().read("orders") == record(1)

    def test_a_lease_that_was_given_back_cannot_commit(self, open_store: OpenStore) -> None:
        """Only its holder writes."""
        lease = save(open_store(), record(1))
        open_store().release(lease)
        with pytest.raises(LeaseLost):
            open_store().commit(record(2), expected=1, lease=lease)
        assert (open_store().read("orders"), open_store().lease("orders")) == (record(1), None)

    def test_a_lease_of_another_job_cannot_commit(self, open_store: OpenStore) -> None:
        """A lease is for one job."""
        lease = open_store().take_lease("other", ME, over=None)
        with pytest.raises(LeaseLost):
            open_store().commit(record(1), expected=0, lease=lease)
        assert open_store().read("orders") is None

    def test_beats_grow_and_may_tell_more_of_the_owner(self, open_store: OpenStore) -> None:
        """The JVM starts after the lease is taken."""
        lease = open_store().take_lease("orders", ME, over=None)
        with_jvm = replace(ME, jvm_pid=77, jvm_started="later")
        open_store().beat(lease)
        open_store().beat(lease, with_jvm)
        open_store().beat(lease)
        assert open_store().lease("orders") == replace(lease, beat=3, owner=with_jvm)

    def test_of_many_that_commit_at_once_exactly_one_wins(self, open_store: OpenStore) -> None:
        """The others learn that the mark moved."""
        lease = save(open_store(), record(1))
        start = threading.Barrier(6)

        def attempt(runner: int) -> str:
            store = open_store()
            start.wait()
            try:
                store.commit(replace(record(2), extras=RecordExtras({"runner": runner})), expected=1, lease=lease)
            except MarkMoved:
                return "moved"
            return "won"

        with ThreadPoolExecutor(6) as pool:
            assert sorted(pool.map(attempt, range(6))) == ["moved"] * 5 + ["won"]

    def test_a_list_of_files_grows_by_what_is_new(
        self, open_store: OpenStore, stored_bytes: Callable[[str], bytes]
    ) -> None:
        """The record itself stays small, however many files were read."""
        many = files(*(f"/in/{number:06d}" for number in range(5000)))
        more = many.update({"/in/new": (7, 1)}, now=NOON)
        save(open_store(), record(1, landing=many), record(2, landing=more))
        assert open_store().read("orders") == record(2, landing=more)
        assert len(stored_bytes("orders")) < 20_000

    def test_a_list_of_files_is_rebuilt_for_every_number_of_the_history(self, open_store: OpenStore) -> None:
        """Grown, rewritten and shortened lists, each as it was."""
        first, grown, shortened = files("/in/a", "/in/b"), files("/in/a", "/in/b", "/in/c"), files("/in/c")
        rewritten = grown.update({"/in/a": (9, 2)}, now=NOON)
        states = [record(at + 1, landing=one) for at, one in enumerate([first, grown, rewritten, shortened, grown])]
        save(open_store(), *states)
        assert list(open_store().history("orders")) == states[::-1]
        assert open_store().read("orders") == states[-1]

    def test_a_list_of_files_that_grew_elsewhere_is_seen(self, open_store: OpenStore) -> None:
        """Two processes take turns; each reads only what the other added."""
        here, there = open_store(), open_store()
        save(here, record(1, landing=files("/in/a")))
        save(there, record(2, landing=files("/in/a", "/in/b")))
        save(here, record(3, landing=files("/in/a", "/in/b", "/in/c")))
        assert there.read("orders") == record(3, landing=files("/in/a", "/in/b", "/in/c"))

    def test_lists_of_dropped_history_are_dropped_too(self, open_store: OpenStore) -> None:
        """After many refreshes the current list is whole, and the bounded history with it."""
        states = [record(at, landing=files(f"/in/{at}", "/in/x")) for at in range(1, 7)]
        save(open_store(keep_history=2), *states)
        assert list(open_store(keep_history=2).history("orders")) == [states[-1], states[-2]]
        assert open_store().read("orders") == states[-1]

    def test_an_intent_over_a_list_of_files_does_not_write_the_list_again(
        self, open_store: OpenStore, stored_bytes: Callable[[str], bytes]
    ) -> None:
        """The span starts after the mark, which is stored already."""
        many = files(*(f"/in/{number:06d}" for number in range(5000)))
        store, base = open_store(), record(1, landing=many)
        lease = save(store, base)
        spans = {"landing": Span(many, files("/in/new"), {"files": ["/in/new"]})}
        begun = replace(base, intent=Intent(2, "batch", spans, NOON, "a1", None, {}))
        store.intend(begun, expected=1, lease=lease)
        assert open_store().read("orders") == begun
        assert len(stored_bytes("orders")) < 20_000

    def test_a_mark_is_set_and_got_by_its_own_name(self, open_store: OpenStore) -> None:
        """As users of etl-entities know it."""
        open_store().set_hwm(mark(5))
        open_store().set_hwm(mark(3))
        assert (open_store().get_hwm("orders"), open_store().get_hwm("nobody")) == (mark(3), None)
        stored = open_store().read("orders")
        assert stored is not None
        assert (stored.number, stored.origin, open_store().lease("orders")) == (2, "set", None)

    def test_the_only_mark_of_a_job_is_got_by_the_name_of_the_job(self, open_store: OpenStore) -> None:
        """A job with one source needs no second name."""
        save(open_store(), record(4))
        assert open_store().get_hwm("orders") == mark(40)
