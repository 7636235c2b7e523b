"""What became of each record that went through a stream: done, failed, dropped, or still held."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from floodmark.errors import ConfigError
from floodmark.streams import Stream, healing, healing_batch
from floodmark.streams.elements import (
    Element,
    Failure,
    RecordId,
    RecordOutcome,
    StepFailed,
    records_in,
)
from floodmark.streams.healing_step import Verdict
from floodmark.streams.program import Program, compile_program
from tests.streams.rows import element_of, element_of_rows

if TYPE_CHECKING:
    from floodmark.streams.program import ShortPath


def row(offset: int, value: object = b"1") -> tuple[dict[str, object], object]:
    return {"topic": "t", "partition": 0, "offset": offset}, value


def record(offset: int, value: object = b"1") -> Element:
    return element_of(*row(offset, value))


def kinds(settled: list[RecordOutcome]) -> dict[int, str]:
    """What became of which offset."""
    return {each.record.offset: each.kind for each in settled}


def program(source: Stream) -> Program:
    return compile_program(source.node)


def why(settled: RecordOutcome) -> Failure:
    return cast("Failure", settled.failure)


def short_way(source: Stream) -> ShortPath:
    return cast("ShortPath", program(source).tasks.short_path())


def parsed(row: tuple[object, bytes]) -> tuple[object, object]:
    return row[0], json.loads(row[1])


def not_three(row: tuple[object, int]) -> tuple[object, int]:
    return row[0], row[1] // (row[1] - 3)


def test_a_record_is_done_when_it_reaches_healing() -> None:
    """Nothing else makes it done."""
    source = Stream()
    source.map(parsed).sink(healing, stream=source)
    assert kinds(program(source).tasks.start().push(record(4))) == {4: "done"}


def test_a_record_that_a_filter_takes_out_is_dropped() -> None:
    """It was looked at, and the mark may pass it."""
    source = Stream()
    source.map(parsed).filter(lambda row: row[1] > 1).sink(healing, stream=source)
    assert kinds(program(source).tasks.start().push(record(4))) == {4: "dropped"}


def test_a_record_whose_step_raises_is_failed_and_says_which_step_and_why() -> None:
    """The exception itself stays where it was raised: it may not be possible to pickle it."""
    source = Stream()
    source.map(parsed).map(not_three).sink(healing, stream=source)
    (settled,) = program(source).tasks.start().push(record(4, b"3"))
    assert settled.kind == "failed"
    assert str(settled.failure) == "map(not_three) (step 2): ZeroDivisionError: integer division or modulo by zero"


def test_a_step_that_exits_fails_its_record_alone() -> None:
    """sys.exit in a user's function must not end the task of all the others."""
    source = Stream()
    source.map(lambda row: exit(3)).sink(healing, stream=source)
    assert kinds(program(source).tasks.start().push(record(4))) == {4: "failed"}


def test_an_exception_that_cannot_be_printed_fails_its_record_alone() -> None:
    """Nothing that user code does comes out of push."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    def work(row: tuple[object, object]) -> None:
        raise Mute

    source = Stream()
    source.map(work).sink(healing, stream=source)
    (settled,) = program(source).tasks.start().push(record(4))
    assert why(settled).error == "Mute: (it cannot be printed)"


def test_records_in_a_partition_are_held_until_it_is_full() -> None:
    """Their offsets are not settled before the tuple was healed."""
    source = Stream()
    source.partition(2).sink(healing_batch, stream=source)
    running = program(source).tasks.start()
    assert running.push(record(1)) == []
    assert running.pending() == (RecordId("t", 0, 1),)
    assert kinds(running.push(record(2))) == {1: "done", 2: "done"}
    assert running.pending() == ()


def test_flush_settles_what_nested_batches_hold() -> None:
    """The rest of the inner batch goes into the outer one, and both are healed."""
    source = Stream()
    source.partition(2).partition(2).foreach_async(healing_batch, stream=source)
    running = program(source).tasks.start()
    running.push(record(1))
    running.push(record(2))
    running.push(record(3))
    assert kinds(running.flush()) == {1: "done", 2: "done", 3: "done"}


def test_a_partition_by_time_is_let_go_at_the_poll_after_it_is_due() -> None:
    """No further element has to come."""
    now = [0.0]
    source = Stream()
    source.partition_time(3).sink(healing_batch, stream=source)
    running = program(source).tasks.start(clock=lambda: now[0])
    assert running.due_in_seconds() is None
    running.push(record(1))
    now[0] = 2.0
    assert (running.due_in_seconds(), running.tick()) == (1.0, [])
    now[0] = 3.0
    assert kinds(running.tick()) == {1: "done"}


def test_a_record_is_settled_when_no_later_window_can_hold_it() -> None:
    """A sliding window needs its elements again; a restart before that would make other windows."""
    source = Stream()
    source.sliding_window(2).sink(healing_batch, stream=source)
    running = program(source).tasks.start()
    assert kinds(running.push(record(1))) == {}
    assert kinds(running.push(record(2))) == {1: "done"}
    assert kinds(running.flush()) == {}
    assert kinds(running.push(record(3))) == {2: "done"}


def test_a_record_with_several_children_is_done_when_all_are_healed() -> None:
    """Here one is healed at once, and the other two when their partition is full."""
    source = Stream()
    words = source.map(lambda row: [(row[0], word) for word in row[1].split()]).flatten()
    words.filter(lambda row: row[1] == b"a").sink(healing, stream=source)
    words.filter(lambda row: row[1] != b"a").partition(2).sink(healing_batch, stream=source)
    running = program(source).tasks.start()
    assert kinds(running.push(record(1, b"a b"))) == {}
    assert kinds(running.push(record(2, b"a"))) == {2: "done"}
    assert kinds(running.push(record(3, b"c"))) == {1: "done", 3: "done"}


def test_one_failed_child_fails_the_record_though_the_others_are_healed() -> None:
    """The other branches have finished their work; the retry runs the record through all of them again."""
    source = Stream()
    source.sink(healing, stream=source)
    source.map(lambda row: 1 // 0).sink(print)
    assert kinds(program(source).tasks.start().push(record(1))) == {1: "failed"}


def test_an_element_that_is_flattened_to_nothing_is_dropped() -> None:
    """There is no child left that could be healed."""
    source = Stream()
    source.map(lambda row: []).flatten().sink(healing, stream=source)
    assert kinds(program(source).tasks.start().push(record(1))) == {1: "dropped"}


def test_union_of_two_branches_heals_a_record_once_both_children_arrived() -> None:
    """Both come from one record."""
    source = Stream()
    left, right = source.partition(2).flatten(), source.map(lambda row: row)
    left.union(right).sink(healing, stream=source)
    running = program(source).tasks.start()
    assert kinds(running.push(record(1))) == {}
    assert kinds(running.push(record(2))) == {1: "done", 2: "done"}


def test_a_failing_item_of_a_foreach_step_fails_its_own_record_and_the_others_go_on() -> None:
    """Nothing before or after a failed record is held back by it."""
    source = Stream()
    source.map(parsed).partition(3).foreach_map(not_three).map(healing_batch, stream=source).sink(print)
    running = program(source).tasks.start()
    running.push(record(1))
    running.push(record(2, b"3"))
    assert kinds(running.push(record(3))) == {1: "done", 2: "failed", 3: "done"}
    (healed,) = running.take_healed()
    assert tuple(records_in(healed.value)) == (RecordId("t", 0, 1), RecordId("t", 0, 3))


def test_a_failing_coroutine_of_foreach_async_fails_its_own_record() -> None:
    """As with a plain function."""

    async def work(row: tuple[object, int]) -> tuple[object, int]:
        return not_three(row)

    source = Stream()
    source.map(parsed).partition(2).foreach_async(work).sink(healing_batch, stream=source)
    running = program(source).tasks.start()
    running.push(record(1, b"3"))
    assert kinds(running.push(record(2))) == {1: "failed", 2: "done"}


def test_a_function_on_a_whole_batch_fails_every_record_of_it() -> None:
    """Nobody can tell which of them it was."""
    source = Stream()
    source.map(lambda rows: [not_three(each) for each in rows]).sink(healing_batch, stream=source)
    assert kinds(program(source).tasks.start().push(element_of_rows([row(1, 1), row(2, 3)]))) == {
        1: "failed",
        2: "failed",
    }


def test_a_row_that_a_function_takes_out_of_a_batch_is_dropped() -> None:
    """It filtered; the rows that it kept are healed."""
    source = Stream()
    source.map(lambda rows: [each for each in rows if each[1] != 3]).sink(healing_batch, stream=source)
    assert kinds(program(source).tasks.start().push(element_of_rows([row(1, 1), row(2, 3)]))) == {
        1: "done",
        2: "dropped",
    }


def test_a_row_that_lost_its_uuid_fails_with_the_step_that_lost_it() -> None:
    """Silence would leave its offset pending for ever."""

    def values(rows: list[tuple[object, object]]) -> list[object]:
        return [value for _, value in rows]

    source = Stream()
    source.partition(2).map(values).map(list).sink(healing_batch, stream=source)
    running = program(source).tasks.start()
    running.push(record(1))
    (first, second) = running.push(record(2))
    assert (first.kind, second.kind) == ("failed", "failed")
    assert "map(values) (step 2) lost it" in why(first).error


def test_a_row_with_the_uuid_of_another_record_fails() -> None:
    """It would make a record done that nobody looked at."""
    source = Stream()
    source.map(lambda row: ({**row[0], "offset": 99}, row[1])).sink(healing, stream=source)
    (settled,) = program(source).tasks.start().push(record(1))
    assert "the row names t/0/99" in why(settled).error


def test_held_elements_survive_pickling_and_go_by_the_clock_of_their_new_home() -> None:
    """So that the tail of one batch can be carried to the next one."""
    from pyspark import cloudpickle

    source = Stream()
    source.map(lambda row: row).partition_time(5).sink(healing_batch, stream=source)
    running = program(source).tasks.start(clock=lambda: 100.0)
    running.push(record(1))
    carried = cloudpickle.loads(cloudpickle.dumps(running))  # type: ignore[no-untyped-call]
    carried.use_clock(lambda: 105.0)
    assert kinds(carried.push(record(2))) == {1: "done"}
    assert carried.pending() == (RecordId("t", 0, 2),)


def test_a_filter_drops_records_also_after_its_stream_was_carried() -> None:
    """What stands for no value is the same in the worker that goes on."""
    from pyspark import cloudpickle

    source = Stream()
    source.filter(lambda row: row[1] != b"no").partition(2).sink(healing_batch, stream=source)
    running = program(source).tasks.start()
    running.push(record(1))
    carried = cloudpickle.loads(cloudpickle.dumps(running))  # type: ignore[no-untyped-call]
    assert kinds(carried.push(record(2, b"no"))) == {2: "dropped"}
    assert kinds(carried.push(record(3))) == {1: "done", 3: "done"}


def test_results_go_to_what_follows_healing_in_the_nesting_of_their_rows() -> None:
    """A dict for a row, a list for rows, a tuple of lists in a foreach step; then flatten works as in the seed."""
    source = Stream()
    nested = source.partition(1).partition(1).foreach_async(healing_batch, stream=source)
    shapes, flat = nested.sink_to_list(), nested.flatten().flatten().sink_to_list()
    both = program(source)
    running, driver = both.tasks.start(), both.driver.start()
    running.push(record(1, b"x"))
    (healed,) = running.take_healed()
    driver.push(healed, lambda each: Verdict(success=True, reason=f"committed {each.offset + 1}"))
    result = {"data": b"x", "success": True, "reason": "committed 2", "partition": 0, "offset": 1, "topic": "t"}
    assert shapes == [([result],)]
    assert flat == [result]


def test_what_user_code_raises_behind_healing_waits_to_be_asked_for() -> None:
    """The record is committed by then; whoever runs the stream decides."""
    source = Stream()
    source.map(healing, stream=source).sink(lambda result: 1 // 0)
    both = program(source)
    running, driver = both.tasks.start(), both.driver.start()
    running.push(record(1))
    driver.push(running.take_healed()[0], lambda each: Verdict(success=True, reason=""))
    assert [type(error) for error in driver.take_errors()] == [ZeroDivisionError]


def test_nothing_is_kept_for_the_driver_when_nothing_follows_healing() -> None:
    """A million rows need not come back."""
    source = Stream()
    source.sink(healing, stream=source)
    running = program(source).tasks.start()
    running.push(record(1))
    assert (program(source).tasks.returns_rows, running.take_healed()) == (False, [])


def test_a_line_of_plain_steps_has_a_short_way_that_says_the_same() -> None:
    """The row when it is healed, None when it is dropped, StepFailed when a step raised."""
    source = Stream()
    source.map(parsed).filter(lambda row: row[1] > 1).map(not_three).sink(healing, stream=source)
    heal = short_way(source)
    assert heal(row(1, b"4")) == row(1, 4)
    assert heal(row(1, b"1")) is None
    with pytest.raises(StepFailed, match=r"map\(not_three\) \(step 3\): ZeroDivisionError"):
        heal(row(1, b"3"))


def test_the_short_way_names_the_step_that_lost_the_uuid() -> None:
    """As the long one does."""
    source = Stream()
    source.map(parsed).map(lambda row: row[1]).map(str).sink(healing, stream=source)
    with pytest.raises(StepFailed, match=r"map\(<lambda>\) \(step 2\) lost it"):
        short_way(source)(row(1))


def test_a_stream_with_batches_or_branches_has_no_short_way() -> None:
    """Whether its records are settled depends on others."""
    batched, branched = Stream(), Stream()
    batched.partition(2).sink(healing_batch, stream=batched)
    branched.sink(healing, stream=branched)
    branched.sink(print)
    assert (program(batched).tasks.short_path(), program(branched).tasks.short_path()) == (None, None)


def test_a_program_knows_whether_and_how_it_heals() -> None:
    """Without healing the mark never moves, and that has to be said at the start."""
    plain, relaxed = Stream(), Stream()
    plain.sink(print)
    relaxed.sink(healing, stream=relaxed, ignore=True, asynchronous=True)
    assert program(plain).heals is False
    assert (program(relaxed).heals, program(relaxed).ignores, program(relaxed).asynchronous) == (True, True, True)


def test_the_fingerprint_changes_with_the_code_of_a_step_and_not_with_what_follows_healing() -> None:
    """It tells whether a batch that was cut off would be finished by the same code."""
    one, same, other = Stream(), Stream(), Stream()
    one.map(lambda row: row).sink(healing, stream=one)
    same.map(lambda row: row).map(healing, stream=same).sink(print)
    other.map(lambda row: (row[0], 1)).sink(healing, stream=other)
    assert program(one).fingerprint() == program(same).fingerprint()
    assert program(one).fingerprint() != program(other).fingerprint()


def test_a_second_healing_step_behind_the_first_is_refused() -> None:
    """It would get results and not rows."""
    source = Stream()
    source.map(healing, stream=source).sink(healing, stream=source)
    with pytest.raises(ConfigError, match="follows another healing step"):
        program(source)


def test_a_union_of_a_healed_and_an_unhealed_branch_is_refused() -> None:
    """One is in the driver, after the commit, and the other on the executors, before it."""
    source = Stream()
    source.map(healing, stream=source).union(source.map(str)).sink(print)
    with pytest.raises(ConfigError, match="union joins a branch that was healed with one that was not"):
        program(source)


def test_a_union_of_two_sources_is_refused() -> None:
    """A stream has the marks of one."""
    source = Stream()
    source.union(Stream()).sink(healing, stream=source)
    with pytest.raises(ConfigError, match="union joins two sources"):
        program(source)
