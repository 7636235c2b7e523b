"""Windows whose key a function gives: decided once, in the order of arrival, also when nothing comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from floodmark.errors import ConfigError, ElementInvalid
from floodmark.mill import JoinWith, function_call, get_field, join_streams, window
from floodmark.mill.brokers import Message
from floodmark.mill.declaration import declare
from floodmark.mill.windows import ArrivalFollower, TimedWindows, timed_windows
from tests.mill.cases import L, R


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    seconds: float = 0.0
    asked: list[object] = field(default_factory=list)

    def __call__(self) -> float:
        return self.seconds

    def key(self, element: dict[str, Any] | None) -> int:
        """The window expression: which minute it is."""
        self.asked.append(element)
        return int(self.seconds // 60)


def sizes(lefts: list[L]) -> None:
    """Only its signature is used."""


def windows_by(clock: Clock, poll_seconds: float | None = None) -> TimedWindows:
    declared = declare(sizes, stream_cls=window(L, function_call(clock.key)))
    assert declared.window_key is not None
    return TimedWindows(declared.window_key, poll_seconds, clock)


def row(offset: int, partition: int = 0) -> tuple[int, int, str]:
    return partition, offset, '{"k": 1, "name": "l"}'


def test_a_window_closes_when_the_answer_changes() -> None:
    """The last one is open, until the stream ends."""
    clock = Clock()
    windows = windows_by(clock)
    windows.take([row(0), row(1)])
    clock.seconds = 60
    windows.take([row(2)])
    assert (windows.closed_windows(has_ended=False), windows.closed_windows(has_ended=True)) == (
        [{0: (0, 2)}],
        [{0: (0, 2)}, {0: (2, 3)}],
    )


def test_a_window_may_have_elements_of_several_partitions() -> None:
    """They arrive as they arrive."""
    clock = Clock()
    windows = windows_by(clock)
    windows.take([row(0), row(7, partition=1), row(8, partition=1)])
    assert windows.closed_windows(has_ended=True) == [{0: (0, 1), 1: (7, 9)}]


def test_an_idle_poll_asks_with_none_and_may_close_the_window() -> None:
    """Not before the time-out, and the next element opens another."""
    clock = Clock()
    windows = windows_by(clock, poll_seconds=20)
    windows.take([row(0)])
    clock.seconds = 19
    windows.poll()
    assert (windows.closed_windows(has_ended=False), None in clock.asked) == ([], False)
    clock.seconds = 60
    windows.poll()
    assert (windows.closed_windows(has_ended=False), clock.asked[-1]) == ([{0: (0, 1)}], None)
    windows.take([row(1)])
    assert windows.closed_windows(has_ended=False) == [{0: (0, 1)}]


def test_no_element_is_asked_about_twice() -> None:
    """What was seen is remembered by its offset; what was given out is forgotten."""
    clock = Clock()
    windows = windows_by(clock)
    windows.begin_at({0: 0})
    windows.take([row(0), row(1)])
    clock.seconds = 60
    windows.take([row(2)])
    windows.begin_at({0: 2})
    assert (windows.taken_upto, windows.windows, len(clock.asked)) == ({0: 3}, [{0: (2, 3)}], 3)


def test_after_a_reset_every_element_is_asked_about_again() -> None:
    """The streams are read from their beginning then."""
    clock = Clock()
    windows = windows_by(clock)
    windows.begin_at({0: 0})
    windows.take([row(0), row(1)])
    windows.forget()
    windows.begin_at({0: 0})
    windows.take([row(0), row(1)])
    assert (windows.closed_windows(has_ended=True), len(clock.asked)) == ([{0: (0, 2)}], 4)


@dataclass
class Feed:
    """A source that is followed: the test puts messages into it, each a partition, an offset and a text."""

    messages: list[Message] = field(default_factory=list)
    questions: list[Mapping[int, int]] = field(default_factory=list)

    def follow(self) -> Feed:
        return self

    def next_after(self, offsets: Mapping[int, int], seconds: float) -> list[Message]:
        self.questions.append(dict(offsets))
        found = [each for each in self.messages if each[1] >= offsets.get(each[0], 1 << 60)]
        time.sleep(0 if found else seconds)
        return found

    def close(self) -> None:
        self.messages.clear()


def eventually(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so within a time that a busy machine keeps."""
    deadline = time.monotonic() + 20
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_so()


def test_an_element_is_asked_about_as_it_arrives() -> None:
    """Between two turns, by the clock of that moment; a turn has nothing to do before a window is over."""
    clock, feed = Clock(), Feed()
    windows = windows_by(clock, 0.01)
    windows.begin_at({0: 0})
    with ArrivalFollower(windows, feed):
        feed.messages.append(row(0))
        assert eventually(lambda: windows.taken_upto == {0: 1})
        assert not windows.has_news()
        clock.seconds = 60
        feed.messages.append(row(1))
        assert eventually(windows.has_news)
    assert windows.closed_windows(has_ended=False) == [{0: (0, 1)}]
    assert not windows.is_followed


def test_what_follows_an_end_is_asked_about_when_the_mark_is_behind_it() -> None:
    """It belongs to the next run."""
    clock, feed = Clock(), Feed([row(0), (0, 1, '{"eos__": true}'), row(2)])
    windows = windows_by(clock, 0.01)
    windows.begin_at({0: 0})
    with ArrivalFollower(windows, feed):
        assert eventually(windows.has_news)
        assert (windows.taken_upto, windows.next_offsets()) == ({0: 1}, {})
        windows.begin_at({0: 2})
        assert eventually(lambda: windows.taken_upto == {0: 3})


def test_a_follower_that_fails_leaves_the_question_to_the_turns() -> None:
    """A turn asks about what nobody asked about, and its error has the position."""
    windows, feed = windows_by(Clock(), 0.01), Feed([(0, 0, '{"k": "no number"}')])
    windows.begin_at({0: 0})
    with ArrivalFollower(windows, feed):
        assert eventually(lambda: bool(feed.questions) and not windows.is_followed)
    assert windows.lack_any({0: 1})
    with pytest.raises(ElementInvalid):
        windows.take([(0, 0, '{"k": "no number"}')])


def test_a_look_gives_out_only_windows_that_it_has_seen_whole() -> None:
    """Elements may arrive between the look and its plan."""
    clock = Clock()
    windows = windows_by(clock)
    windows.take([row(0)])
    clock.seconds = 60
    windows.take([row(1), row(2)])
    clock.seconds = 120
    windows.take([row(3)])
    assert windows.closed_windows(has_ended=False, seen_upto={0: 2}) == [{0: (0, 1)}]
    assert windows.closed_windows(has_ended=False, seen_upto={0: 3}) == [{0: (0, 1)}, {0: (1, 3)}]


def test_a_function_that_fails_is_reported_with_the_element() -> None:
    """The position is what helps to find it."""
    declared = declare(sizes, stream_cls=window(L, function_call(lambda element: element["missing"])))
    windows = timed_windows(declared, None)
    assert windows is not None
    with pytest.raises(ElementInvalid) as caught:
        windows.take([row(4)])
    assert caught.value.position == "partition 0, offset 4"


def test_an_expression_that_fails_on_none_is_refused_with_poll_timeout() -> None:
    """Better at construction than at the first idle poll."""
    declared = declare(sizes, stream_cls=window(L, function_call(lambda element: element["k"])))
    with pytest.raises(ConfigError, match="fails on None"):
        timed_windows(declared, 1.0)


def pair_sizes(lefts: list[L], rights: Mapping[L, list[R]]) -> None:
    """The same, joined."""


def test_poll_timeout_is_refused_with_a_join() -> None:
    """A window has to wait for the partners of its elements, whatever the clock says."""
    tree = join_streams(window(L, function_call(lambda _: 0)), JoinWith(R, get_field("k"), get_field("k")))
    with pytest.raises(ConfigError, match="poll_timeout does not go with L: it is joined"):
        timed_windows(declare(pair_sizes, join_tree=tree), 1.0)


def test_windows_by_fields_are_not_decided_here() -> None:
    """Spark cuts them by their keys."""
    assert timed_windows(declare(sizes, stream_cls=window(L, get_field("k") // 2)), None) is None
