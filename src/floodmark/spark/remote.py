"""Sessions of a Spark Connect server: how they are named, the ones that are made for one statement, and how the work
of a client that is dead comes to its end.

The server goes on with what a client asked for, for minutes after the client is gone. The number of a batch keeps its
rows out of every sink, but not the user's functions from being called: so whoever takes a job over has that work
interrupted, and waits until it has ended, before anything of the job is read or written.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.logs import get_logger
from floodmark.phases import phase
from floodmark.spark.gateway import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import SparkConnectClient


log = get_logger(__name__)
INVALID_HANDLE = "INVALID_HANDLE"
"""In the message of a server that does not know a session: it ended it, or was started since."""
PATIENCE_SECONDS = 60
POLL_SECONDS = 0.2
ASK_SECONDS = 5
WORKER_SECONDS = 5
"""After a task is cancelled, Spark lets its Python worker go on for up to four seconds before it kills it."""

_note_session: ContextVar[Callable[[str], None] | None] = ContextVar("note_session", default=None)


@dataclass(frozen=True)
class RemoteSession:
    """By which names a server knows a session; as an address it is what PySpark's own client takes, without secrets."""

    server: str
    user: str
    id: str

    @classmethod
    def of(cls, spark: SparkSession) -> RemoteSession:
        client = spark.client
        return cls(server_of(client), client._user_id or "", client._session_id)

    @classmethod
    def parse(cls, address: str) -> RemoteSession:
        server, _, rest = address.removeprefix("sc://").partition("/;")
        named = dict(part.partition("=")[::2] for part in rest.split(";"))
        return cls(server, named.get("user_id", ""), named["session_id"])

    def __str__(self) -> str:
        user = f"user_id={self.user};" if self.user else ""
        return f"sc://{self.server}/;{user}session_id={self.id}"

    def client(self, beside: SparkConnectClient) -> SparkConnectClient:
        """A client of this session, through the channel and with the secrets of the one that is given."""
        builder = copy.deepcopy(beside._builder)
        builder.set("session_id", self.id)
        if self.user:
            builder.set("user_id", self.user)
        return type(beside)(connection=builder)


def server_of(client: SparkConnectClient) -> str:
    """Its host, and its port where the kind of connection has one."""
    return str(getattr(client._builder, "endpoint", None) or client.host)


def session_address(spark: SparkSession) -> str | None:
    """Under which address the work of this session can be ended by others; None where it has a JVM here."""
    return str(RemoteSession.of(spark)) if is_connect(spark) else None


@contextmanager
def noting_sessions(note: Callable[[str], None]) -> Iterator[None]:
    """Within the block, the address of each session that is made for one statement is noted before it works."""
    before = _note_session.set(note)
    try:
        yield
    finally:
        _note_session.reset(before)


@contextmanager
def isolated_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session beside this one on the same cluster, for statements that need settings of their own.

    A server would keep it, and all that it holds, until it was idle for an hour; and would forget the first one, for
    which nothing is done meanwhile, if the statement takes longer than that.
    """
    clone: Callable[[], SparkSession] | None = getattr(spark, "cloneSession", None)
    if not is_connect(spark) or clone is None:
        yield spark.newSession()
        return
    own, note = clone(), _note_session.get()
    if note:
        note(str(RemoteSession.of(own)))
    try:
        with _kept_alive(spark):
            yield own
    finally:
        with suppress(Exception):  # then it goes when it was idle for long
            own.client.release_session()


@contextmanager
def _kept_alive(spark: SparkSession) -> Iterator[None]:
    done = threading.Event()

    def ask() -> None:
        while not done.wait(ASK_SECONDS):
            with suppress(Exception):  # whoever uses it next finds out
                spark.conf.get("spark.app.id", "")

    asking = threading.Thread(target=ask, name="keeps a remote session", daemon=True)
    asking.start()
    try:
        yield
    finally:
        done.set()
        asking.join()


def end_work(spark: SparkSession, addresses: Sequence[str], job: str) -> None:
    """Interrupt what these sessions still do, which worked for a run that is dead, and wait until it has ended.

    One that the server does not know any more does nothing. What another server does cannot be ended from here: it is
    said, and the number of its batch keeps it from every sink. Work of our own session is our own.
    """
    here = RemoteSession.of(spark) if is_connect(spark) else None
    for session in map(RemoteSession.parse, addresses):
        if here is None or session.server != here.server:
            log.warning(
                "the run before this one worked on another server, which may go on with it",
                job=job,
                session=str(session),
            )
        elif session != here:
            with phase("ending what a dead client asked for", job):
                _interrupt(session.client(spark.client), session, job)


def _interrupt(client: SparkConnectClient, session: RemoteSession, job: str) -> None:
    from pyspark.errors import PySparkException

    try:
        interrupted = client.interrupt_all()
        if interrupted:
            log.warning("interrupted what a dead client had asked for", job=job, operations=len(interrupted))
            _await_end(client, session, job)
    except PySparkException as error:
        if INVALID_HANDLE not in str(error):
            raise
    finally:
        client.close()


def _await_end(client: SparkConnectClient, session: RemoteSession, job: str) -> None:
    """Until no operation of the session is at work, and a Python worker of it has been killed."""
    until = time.monotonic() + PATIENCE_SECONDS
    while _is_at_work(client):
        if time.monotonic() > until:
            log.warning("an operation that was interrupted goes on", job=job, session=str(session))
            return
        time.sleep(POLL_SECONDS)
    time.sleep(WORKER_SECONDS)


def _is_at_work(client: SparkConnectClient) -> bool:
    from pyspark.sql.connect.proto import base_pb2

    states = base_pb2.GetStatusResponse.OperationStatus
    at_work = {states.OPERATION_STATE_RUNNING, states.OPERATION_STATE_TERMINATING}
    return any(each.state in at_work for each in client._get_operation_statuses().operation_statuses)
