"""No tests: sessions that write to a table in every way that a reader by a cursor can stumble over."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

TABLE = (
    "create table o (id bigint generated always as identity primary key, v int not null default 0,"
    " updated_at timestamptz not null default now())"
)
INSERT = "insert into o (v) select 0 from generate_series(1, %s)"
UPDATE = (
    "update o set v = v + 1, updated_at = now()"
    " where id = (select id from o where id >= %s order by id limit 1 for update skip locked)"
)


@dataclass
class Writer:
    """One session. What it does next is drawn from its own dice."""

    connection: psycopg.Connection
    dice: random.Random
    transactions: int = 0

    def write(self) -> None:
        """One transaction, of random length."""
        acts: list[Callable[[], None]] = [self.at_once, self.rolled_back, self.held, self.idle_before, self.prepared]
        self.dice.choices(acts, weights=[100, 5, 1, 1, 2])[0]()  # few long ones: else each hides behind another
        self.transactions += 1

    def at_once(self) -> None:
        """Some rows, and an old row anew."""
        with self.connection.transaction():
            self.rows()
            self.pause(0.1)

    def rolled_back(self) -> None:
        """Values that nobody will ever see."""
        with self.connection.transaction(force_rollback=True):
            self.rows()
            self.pause(0.05)

    def held(self) -> None:
        """Values that are taken now and seen seconds later."""
        with self.connection.transaction():
            self.rows()
            self.pause(2.5)

    def idle_before(self) -> None:
        """now() is when the transaction began, not when its rows came."""
        with self.connection.transaction():
            self.connection.execute("select 1")
            self.pause(2.5)
            self.rows()

    def prepared(self) -> None:
        """Rows that belong to no session for a while; an idle moment first, so that it has no id when it is seen."""
        transaction = self.connection.xid(1, uuid.uuid4().hex, "b")
        self.connection.tpc_begin(transaction)
        self.connection.execute("select 1")
        self.pause(0.8)
        self.rows()
        self.connection.tpc_prepare()
        self.pause(2.0)
        end = self.connection.tpc_rollback if self.dice.random() < 0.2 else self.connection.tpc_commit
        end()

    def rows(self) -> None:
        self.connection.execute(INSERT, [self.dice.randint(1, 3)])
        self.connection.execute(UPDATE, [self.dice.randint(1, 20 * (self.transactions + 1))])

    def pause(self, at_most: float) -> None:
        time.sleep(self.dice.uniform(0, at_most))


@dataclass
class Crowd:
    """Writers in threads of their own; what one of them raises is raised when they are stopped."""

    database: str
    count: int = 8
    seed: int = 1
    stopping: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)
    transactions: int = 0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """They write during the block."""
        threads = [threading.Thread(target=self._work, args=(each,)) for each in range(self.count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()
        if self.failures:
            raise self.failures[0]

    def _work(self, number: int) -> None:
        try:
            with psycopg.connect(self.database, application_name=f"writer {number}", autocommit=False) as connection:
                connection.autocommit = False
                writer = Writer(connection, random.Random(self.seed * 100 + number))
                while not self.stopping.is_set():
                    writer.write()
                self.transactions += writer.transactions
        except BaseException as error:  # noqa: BLE001 (it is raised in the test's own thread)
            self.failures.append(error)
