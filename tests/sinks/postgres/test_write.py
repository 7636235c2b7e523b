"""What tasks send to the driver's socket, and when it counts; the tasks are threads here, and Spark's word is given."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from floodmark.sinks.postgres.transport import Chunk, TaskReport
from floodmark.sinks.postgres.write import ATTEMPT, HEAD, SocketReceiver, StreamBroken, TaskStream

if TYPE_CHECKING:
    from collections.abc import Iterator

TWO = (Chunk(2, b"ab"), Chunk(1, b"c"))


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("s") / "s")


@pytest.fixture
def stream(place: str) -> Iterator[TaskStream]:
    wakeup, waker = socket.socketpair()
    with waker, closing(TaskStream(socket.socket(socket.AF_UNIX), wakeup)) as opened:
        opened.listener.bind(place)
        opened.listener.listen()
        yield opened


def content(stream: TaskStream) -> bytes:
    return b"".join(bytes(chunk.content) for chunk in stream.read())


def send(place: str, *parts: bytes) -> None:
    """What a task sends that is lost in the middle."""
    with socket.socket(socket.AF_UNIX) as task:
        task.connect(place)
        task.sendall(b"".join(parts))


def test_chunks_arrive_while_the_tasks_run(stream: TaskStream, place: str) -> None:
    """The first one can be had before any task has ended, and is not lost by asking for it."""
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(SocketReceiver(place).receive, 7, iter(TWO))
        stream.await_first()
        assert sent.result() == 3
    stream.tasks.set_result((TaskReport(0, 7, 3),))
    assert (content(stream), stream.reported_rows) == (b"abc", 3)


def test_what_lies_in_the_socket_when_the_tasks_have_ended_is_read(stream: TaskStream, place: str) -> None:
    """A task ends when the system has taken its bytes, which is before the driver has."""
    SocketReceiver(place).receive(7, iter(TWO))
    stream.tasks.set_result((TaskReport(0, 7, 3), TaskReport(1, 8, 0)))
    assert content(stream) == b"abc"


def test_a_batch_without_rows_is_nothing_to_wait_for(stream: TaskStream) -> None:
    """Its tasks may not even come by."""
    stream.tasks.set_result(())
    stream.await_first()
    assert (content(stream), stream.reported_rows) == (b"", 0)


def test_rows_of_a_task_that_spark_did_not_take_tear_the_stream(stream: TaskStream, place: str) -> None:
    """They are among the others, and cannot be picked out again."""
    SocketReceiver(place).receive(7, iter(TWO))
    SocketReceiver(place).receive(9, iter(TWO))
    stream.tasks.set_result((TaskReport(0, 9, 3),))
    with pytest.raises(StreamBroken):
        content(stream)


def test_a_piece_that_is_cut_off_is_not_passed_on(stream: TaskStream, place: str) -> None:
    """Half a row would be taken for a whole one that is malformed."""
    send(place, ATTEMPT.pack(7), HEAD.pack(2, 10), b"half")
    SocketReceiver(place).receive(8, iter(TWO))
    stream.tasks.set_result((TaskReport(0, 8, 3),))
    assert content(stream) == b"abc"


def test_rows_that_never_arrived_tear_the_stream(stream: TaskStream) -> None:
    """A task that reports rows has sent them."""
    stream.tasks.set_result((TaskReport(0, 7, 3),))
    with pytest.raises(StreamBroken):
        content(stream)


def test_what_the_tasks_raised_comes_out(stream: TaskStream) -> None:
    """Before the first chunk, and behind the last that came."""
    stream.tasks.set_exception(LookupError("no such column"))
    with pytest.raises(LookupError):
        stream.await_first()
    with pytest.raises(LookupError):
        content(stream)


def test_a_task_finds_nobody_once_the_driver_has_given_up(stream: TaskStream, place: str) -> None:
    """So that it ends as well."""
    stream.close()
    with pytest.raises(ConnectionRefusedError):
        SocketReceiver(place).receive(7, iter(TWO))
