"""Runs that stop where a test says, and every way in which they can: one thread moves at a time, the others wait.

A run is a thread that gives way only at a boundary (a call of its store, source or sink). What happens there is picked
from a tape of choices; the tape is then counted up like a number, so that every order is tried once, and the same tape
always gives the same order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from floodmark.stores import lease as leases

LONGEST_WAIT_SECONDS = 30.0
SHARE_OF_EVENTS = 0.1
"""How often something happens at a boundary, where dice decide."""


class Killed(BaseException):
    """The process of a run is gone: not an Exception, so that nothing in its way can catch it."""


@dataclass
class Choices:
    """A tape of picks; what lies behind its end is the first choice of each."""

    tape: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    place: int = 0
    story: list[str] = field(default_factory=list)
    """What was picked, in words."""

    def pick(self, options: list[str], where: str) -> str:
        if len(options) == 1:
            return options[0]
        if self.place == len(self.tape):
            self.tape.append(0)
            self.sizes.append(len(options))
        chosen = options[self.tape[self.place]]
        self.place += 1
        if chosen != options[0]:
            self.story.append(f"{where}: {chosen}")
        return chosen

    def advance(self) -> bool:
        """Go to the next tape; False if there is none."""
        del self.tape[self.place :], self.sizes[self.place :]
        while self.tape and self.tape[-1] + 1 == self.sizes[-1]:
            self.tape.pop(), self.sizes.pop()
        if not self.tape:
            return False
        self.tape[-1] += 1
        self.place, self.story = 0, []
        return True


def every_tape() -> Iterator[Choices]:
    """Depth first, each once."""
    choices = Choices()
    yield choices
    while choices.advance():
        yield choices


@dataclass
class RandomChoices(Choices):
    """Picks by a seed: mostly a run goes on, and what is changed between two runs is anything alike."""

    dice: random.Random = field(default_factory=random.Random)

    def pick(self, options: list[str], where: str) -> str:
        calm = options[0] == "go on" and self.dice.random() > SHARE_OF_EVENTS
        chosen = options[0] if calm else self.dice.choice(options)
        if chosen != options[0]:
            self.story.append(f"{where}: {chosen}")
        return chosen


def random_tapes(seed: int, count: int) -> Iterator[Choices]:
    """So many, for worlds that have too many stories to tell them all."""
    for each in range(count):
        yield RandomChoices(story=[f"seed {seed}, story {each}"], dice=random.Random(f"{seed} {each}"))


@dataclass
class Budget:
    """How often each thing may still happen."""

    kills: int = 1
    pauses: int = 1
    thaws: int = 1


@dataclass(eq=False)
class Run:
    """One run of a job in a thread of its own."""

    name: str
    act: Callable[[], object]
    scheduler: Scheduler
    state: str = "new"
    token: str | None = None
    """Of its lease, once it has one."""
    result: object = None
    error: BaseException | None = None
    frees: object = None
    """The guard that it gives way at, as soon as it is free."""
    wake: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gave_way: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def live(self) -> None:
        _local.run = self
        self.wake.acquire()
        try:
            self.result = self.act()
        except Killed:
            self.state = "killed"
        except BaseException as error:  # noqa: BLE001 - it is told apart by whoever looks at the run
            self.error = error
        if self.state != "killed":
            self.state = "ended"
        self.gave_way.release()


_local = threading.local()


def current_run() -> Run | None:
    return getattr(_local, "run", None)


@dataclass
class Scheduler:
    """Who moves next. A run that stands still has lost its lease: somebody waited long enough and takes it over."""

    choices: Choices
    budget: Budget
    runs: list[Run] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    points: tuple[str, ...] = ()
    """Words of the boundaries at which something may happen; none: all of them."""
    kills_at: str = ""
    """A boundary at which a run is killed, whatever the choices are."""

    def start(self, act: Callable[[], object]) -> Run:
        """Run it to its end, or to where it stops."""
        run = Run(f"run {len(self.runs) + 1}", act, self)
        self.runs.append(run)
        threading.Thread(target=run.live, daemon=True).start()
        self.move(run)
        return run

    def move(self, run: Run) -> None:
        """Let it go on; whoever calls this stands still meanwhile."""
        run.state = "moving"
        run.wake.release()
        assert run.gave_way.acquire(timeout=LONGEST_WAIT_SECONDS), f"{run.name} hangs: {self.trace[-5:]}"

    def paused(self) -> list[Run]:
        return [run for run in self.runs if run.state == "paused"]

    def reach(self, point: str) -> None:
        """A boundary: the run may end here, stand still here, or see another one go on first."""
        run = current_run()
        if run is None:
            return
        if run.state == "killed" or point == self.kills_at:
            run.state = "killed"
            raise Killed
        self.trace.append(f"{run.name}: {point}")
        if self.points and not any(words in point for words in self.points):
            return
        others = [each for each in self.paused() if each is not run]
        options = ["go on", *["kill"] * (self.budget.kills > 0), *["pause"] * (self.budget.pauses > 0)]
        options += [f"{each.name} goes on first" for each in others if self.budget.thaws > 0]
        chosen = self.choices.pick(options, f"{run.name} at {point}")
        if chosen == "kill":
            self.budget.kills -= 1
            run.state = "killed"
            raise Killed
        if chosen == "pause":
            self.budget.pauses -= 1
            self.stand_still(run)
        elif chosen != "go on":
            self.budget.thaws -= 1
            self.move(next(each for each in others if chosen.startswith(f"{each.name} ")))

    def stand_still(self, run: Run) -> None:
        run.state = "paused"
        leases._mine.discard(run.token or "")
        run.gave_way.release()
        run.wake.acquire()
        if run.state == "killed":
            raise Killed

    def end_all(self) -> None:
        """Whoever stands still is killed there."""
        for run in self.paused():
            run.state = "killed"
            run.wake.release()
            run.gave_way.acquire()

    def thaw_all(self) -> None:
        """Whoever stands still goes to its end."""
        while waiting := self.paused():
            self.move(waiting[0])


@dataclass(eq=False)
class Guard:
    """What only one writer of a target has at a time: a lock of a table, a row of a ledger."""

    scheduler: Scheduler
    holder: Run | None = None

    def __enter__(self) -> None:
        run = current_run()
        while self.holder is not None and self.holder is not run:
            self._wait_for(self.holder, run)
        self.holder = run

    def __exit__(self, *_: object) -> None:
        run, self.holder = self.holder, None
        if run and run.frees is self and run.state != "killed":
            run.frees = None
            self.scheduler.stand_still(run)

    def _wait_for(self, holder: Run, run: Run | None) -> None:
        assert run is not None, "only runs are stopped inside a guard"
        if holder.state != "paused":  # it waits for this very run
            self.scheduler.stand_still(run)
            return
        words = [f"{holder.name} goes to its end", f"{holder.name} goes on until the guard is free"]
        if self.scheduler.choices.pick(words, f"{run.name} waits for a guard") != words[0]:
            holder.frees = self
        self.scheduler.move(holder)
