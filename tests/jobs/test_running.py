"""The loop: beats, retries, and how it ends."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

import pytest

from floodmark.errors import ConfigError, LeaseHeld, SinkFailed, SourceRewritten
from floodmark.jobs.job import Retries
from floodmark.jobs.running import LookNotes, Loop, Outcome, Runner
from floodmark.patience import Interrupted
from floodmark.step.work import RunRequest
from floodmark.stores.memory import MemoryMarkStore
from tests.jobs.fakes import ScriptedJob, done, nothing_new


@dataclass
class Clock:
    """Time that passes only when somebody waits or a job takes long; after `ends` the loop is asked to stop."""

    ends: float
    now: float = 0.0
    is_requested: bool = False

    def wait(self, seconds: float) -> bool:
        self.now += max(0.0, seconds)
        self.is_requested = self.is_requested or self.now > self.ends
        return self.is_requested

    def passes(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class LoopUnderTest:
    """A loop over scripted jobs, with what it reported and when each run began."""

    clock: Clock
    reported: list[Outcome] = field(default_factory=list)
    begun: list[tuple[str, float]] = field(default_factory=list)

    def go(self, *jobs: ScriptedJob, every: str | None = None) -> int:
        runner = Runner(MemoryMarkStore(), lambda: pytest.fail("no session is needed"), RunRequest())

        def run(job: ScriptedJob) -> Outcome:
            self.begun.append((job.name, self.clock.now))
            return runner.run(job)

        loop = Loop(run, self.clock, self.reported.append, clock=lambda: self.clock.now)  # type: ignore[arg-type]
        return loop.go(jobs, every)


def test_a_job_runs_at_once_and_then_at_its_beat() -> None:
    """`every` is the time from one tick to the next."""
    loop = LoopUnderTest(Clock(ends=10))
    assert loop.go(ScriptedJob("orders", [nothing_new()], every="5s")) == 0
    assert loop.begun == [("orders", 0), ("orders", 5), ("orders", 10)]


def wrapped_interruption() -> Exception:
    """A signal, and an error that whoever it stopped made of it."""
    error = SinkFailed("orders", sink="lake", reason="the connection is gone")
    error.__cause__ = Interrupted(signal.SIGTERM)
    return error


def test_a_signal_is_no_failure_of_a_job() -> None:
    """Whatever was made of it on the way: it is neither tried again nor counted, and the process ends."""
    job = ScriptedJob("orders", [wrapped_interruption(), done()], retries=Retries(attempts=3))
    with pytest.raises(Interrupted):
        LoopUnderTest(Clock(ends=1)).go(job)
    assert len(job.calls) == 1


def test_the_option_goes_over_the_jobs_own_beat() -> None:
    """--every is for all of them."""
    loop = LoopUnderTest(Clock(ends=2))
    loop.go(ScriptedJob("orders", [nothing_new()], every="1h"), every="1s")
    assert loop.begun == [("orders", 0), ("orders", 1), ("orders", 2)]


def test_ticks_that_passed_during_a_long_run_are_one() -> None:
    """A run of 12 s at a beat of 5 s: the next is at 15, not at 5 and 10 as well, and never at the same time."""
    clock = Clock(ends=16)
    loop = LoopUnderTest(clock)
    loop.go(ScriptedJob("orders", [nothing_new()], every="5s", during=lambda: clock.passes(12)))
    assert loop.begun == [("orders", 0), ("orders", 15)]


def test_idle_ticks_are_not_reported() -> None:
    """A loop that finds nothing says nothing."""
    loop = LoopUnderTest(Clock(ends=30))
    loop.go(ScriptedJob("orders", [done(), nothing_new()], every="5s"))
    assert [outcome.receipt.status for outcome in loop.reported] == ["done"]


def test_a_failure_is_tried_again_with_growing_pauses() -> None:
    """Three attempts, 2 s and then 4 s apart, the third is reported; from then on at its beat, or later."""
    loop = LoopUnderTest(Clock(ends=40))
    broken = SinkFailed("orders", sink="lake", reason="disk full")
    loop.go(ScriptedJob("orders", [broken], every="15s", retries=Retries(attempts=3, backoff_seconds=2)))
    assert loop.begun == [("orders", 0), ("orders", 2), ("orders", 6), ("orders", 21), ("orders", 37)]
    assert [outcome.error for outcome in loop.reported] == [broken]


def test_a_success_starts_the_attempts_anew() -> None:
    """Failures are counted in a row."""
    loop = LoopUnderTest(Clock(ends=7))
    broken = SinkFailed("orders", sink="lake", reason="disk full")
    job = ScriptedJob("orders", [broken, done(), broken, done()], every="5s", retries=Retries(2, 1.0))
    assert loop.go(job) == 0
    assert [outcome.receipt.status for outcome in loop.reported] == ["done", "done"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SourceRewritten("files in/", what="a.jsonl was rewritten", hint="marks reset"), 5),
        (ConfigError("no such function.", hint="write it"), 2),
    ],
)
def test_what_needs_a_person_ends_the_job_with_its_exit_code(error: Exception, code: int) -> None:
    """Trying again cannot help, so it is not tried."""
    loop = LoopUnderTest(Clock(ends=100))
    assert loop.go(ScriptedJob("orders", [error], every="5s", retries=Retries(attempts=3))) == code
    assert loop.begun == [("orders", 0)]


def test_a_job_that_ended_leaves_the_others_running() -> None:
    """The loop goes on with the rest and says at its end that some failed."""
    loop = LoopUnderTest(Clock(ends=10))
    error = SourceRewritten("files in/", what="a.jsonl was rewritten", hint="marks reset")
    code = loop.go(ScriptedJob("bad", [error], every="5s"), ScriptedJob("good", [nothing_new("good")], every="5s"))
    assert (code, loop.begun) == (3, [("bad", 0), ("good", 0), ("good", 5), ("good", 10)])


def test_a_lease_that_somebody_holds_waits_for_the_next_tick() -> None:
    """The other run does the work; trying at once again would only ask it the same."""
    loop = LoopUnderTest(Clock(ends=5))
    held = LeaseHeld("orders", holder="pid 1 on a", since="noon")
    loop.go(ScriptedJob("orders", [held, done()], every="5s", retries=Retries(attempts=3)))
    assert loop.begun == [("orders", 0), ("orders", 5)]


def test_a_request_during_a_run_lets_it_finish_and_starts_no_other() -> None:
    """SIGTERM finishes the current batch and stops."""
    clock = Clock(ends=100)
    loop = LoopUnderTest(clock)
    first = ScriptedJob("first", [done("first")], every="5s", during=lambda: setattr(clock, "is_requested", True))
    assert loop.go(first, ScriptedJob("second", [done("second")], every="5s")) == 0
    assert (loop.begun, len(loop.reported)) == ([("first", 0)], 1)


def test_a_loop_notes_its_looks_twice_a_minute_and_not_all_at_one_tick() -> None:
    """A note is a durable write: with hundreds of idle jobs, one for each look would be most of what a loop does."""
    clock = Clock(ends=1)
    notes, jobs = LookNotes(lambda: clock.now), [f"job-{number}" for number in range(500)]
    noted = []
    for _ in range(91):
        noted.append([job for job in jobs if notes.is_due(job)])
        clock.passes(1)
    assert noted[0] == jobs
    assert max(map(len, noted[1:])) < 50
    assert {sum(job in each for each in noted[31:61]) for job in jobs} == {1}
