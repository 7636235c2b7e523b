"""One job in a world where everything may happen between two calls, and what must hold once the dust has settled."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from floodmark.errors import DecisionNeeded, FloodmarkError, NumbersDisagree
from floodmark.step.commit import COUNTED_ANEW
from floodmark.step.run import Step
from floodmark.step.work import RunRequest, Work
from floodmark.stores.memory import MemoryPages
from floodmark.stores.record import JobRecord, Receipt
from tests.model.doubles import MALFORMED, Code, Log, Session, Table, WatchedStore, without_spark
from tests.model.scheduling import Budget, Choices, Guard, Run, Scheduler, every_tape
from tests.model.targets import JoiningSink, PieceSink, SmallPieceSink, Target, TargetSink

JOB = "orders"
RUNS_TO_SETTLE = 5


@dataclass(frozen=True)
class Setting:
    """What is explored: the job, what has happened before, and what may happen between two runs."""

    sinks: str = "a"
    """A letter for each, in order: all or nothing, p by pieces, s by pieces and all of a small batch at once, or t, all
    or nothing together with the mark."""
    is_immutable: bool = True
    batches_before: int = 0
    has_malformed_row: bool = False
    has_dead_letters: bool = True
    loses_rows: bool = False
    changes: tuple[str, ...] = ("nothing",)
    points: tuple[str, ...] = ()
    """Words of the calls at which something may happen; none: at every call."""
    runs: int = 2
    kills: int = 0
    pauses: int = 1
    thaws: int = 1


class Violation(AssertionError):
    """A row is lost or twice, or a run that should go on does not; with the story that led there."""


@dataclass
class World:
    """The job and its surroundings, for one tape of choices."""

    setting: Setting
    choices: Choices
    folder: Path
    code: str = "v1"
    request: RunRequest = field(default_factory=RunRequest)
    renamed: bool = False
    last_row: int = 0
    decided: set[str] = field(default_factory=set)
    """What happened that excuses something."""
    excused: set[tuple[str, int, int]] = field(default_factory=set)
    """Place, row and number of what a person gave up although the target has it."""

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.choices, Budget(0, 0, 0), points=self.setting.points)
        self.pages = MemoryPages()
        self.table = (Log if self.setting.is_immutable else Table)(self.scheduler)
        self.targets = [Target(Guard(self.scheduler), f"target {n}") for n in range(len(self.setting.sinks))]
        self.letters = Target(Guard(self.scheduler), "letters")
        self.former_letters: list[Target] = []
        self.targets[-1].loses_rows = self.setting.loses_rows
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def all_targets(self) -> list[Target]:
        return [*self.targets, *self.former_letters, self.letters]

    # what happens

    def play(self) -> None:
        setting, budget = self.setting, self.scheduler.budget
        for _ in range(setting.batches_before):
            self.add_rows(2)
            self.run()
        self.add_rows(2)
        budget.kills, budget.pauses, budget.thaws = setting.kills, setting.pauses, setting.thaws
        for n in range(setting.runs):
            if n:
                CHANGES[self.choices.pick(list(setting.changes), "then")](self)
            self.run()
            self.request = RunRequest()
        budget.kills, budget.pauses, budget.thaws = 0, 0, 0
        self.scheduler.thaw_all()

    def settle(self) -> FloodmarkError | None:
        """Run until there is nothing new, or a person has to decide, or rows are missing and it is said."""
        self.add_rows(1)
        for _ in range(RUNS_TO_SETTLE):
            run = self.run()
            if isinstance(run.error, (DecisionNeeded, NumbersDisagree)):
                return run.error
            if isinstance(run.result, Receipt) and run.result.status == "nothing_new":
                return None
        raise Violation(f"no end after {RUNS_TO_SETTLE} runs; the last one: {run.error or run.result}")

    def run(self) -> Run:
        step = self.step()
        run = self.scheduler.start(step.run)
        if run.error and not isinstance(run.error, FloodmarkError):
            raise run.error
        return run

    def step(self) -> Step:
        store = WatchedStore(self.pages, self.scheduler)
        if self.request.abandon:
            store.before_commit = self.excuse  # type: ignore[method-assign]
        return Step(store, Session, work=self.work(), request=self.request)  # type: ignore[arg-type]

    def work(self) -> Work:
        kinds: dict[str, Any] = {"a": TargetSink, "p": PieceSink, "s": SmallPieceSink, "t": JoiningSink}
        letters: Any = TargetSink("dead-letters", self.letters, self.scheduler)
        sinks: list[Any] = []
        for n, (kind, target) in enumerate(zip(self.setting.sinks, self.targets, strict=True), start=1):
            name = f"other-{n}" if self.renamed and n == 1 else f"sink-{n}"
            sinks.append(kinds[kind](name, target, self.scheduler))
        return Work(
            JOB,
            (self.table,),  # type: ignore[arg-type]
            tuple(sinks),
            transform=Code(self.code),  # type: ignore[arg-type]
            dead_letters=letters if self.setting.has_dead_letters else None,
            spool_folder=str(self.folder),
        )

    def add_rows(self, count: int) -> None:
        last, self.last_row = self.last_row, self.last_row + count
        self.table.rows += [(last + n, f"{self.table.title} {last + n}") for n in range(1, count + 1)]
        if self.setting.has_malformed_row:
            self.table.rows[-1] = (last + count, MALFORMED)

    def excuse(self, record: JobRecord) -> None:
        """A person gives the open batch up: what the targets have of it by now may come again."""
        stored = WatchedStore(self.pages, Scheduler(Choices(), Budget(0, 0, 0))).read(JOB)
        if stored and stored.intent and record.number == stored.intent.number and record.marks == stored.marks:
            for target in self.all_targets:
                self.excused.update((target.place, row, n) for row, _, n in target.rows if n == record.number)

    # what must hold

    def problems(self, decision: FloodmarkError | None) -> Iterator[str]:
        record = WatchedStore(self.pages, self.scheduler).read(JOB) or JobRecord(JOB)
        upto = record.marks["rows"].value if record.marks else 0
        if decision is None and upto != self.last_row:
            yield f"the mark is {upto}"
        if decision is not None and self._is_needless(record):
            yield f"a person is asked for nothing: {decision}"
        title = record.sources.get("rows", self.table.title)
        for target in (*self.targets, self._all_letters()):
            yield from self._problems_of(target, upto, title, is_asked=decision is not None)
        yield from self._differences()
        if "corrected" in self.decided:
            yield from self._not_one_of_both(upto)
        if not self.decided & {"restored", "finish"}:
            for receipt in WatchedStore(self.pages, self.scheduler).runs(JOB):
                yield from self._sums(receipt)

    def _all_letters(self) -> Target:
        """Wherever they were put: a record is a letter once, in one of the places.

        In each of them once, where a person was told so and let the batch be finished, or gave it up.
        """
        rows: list[tuple[int, str, int]] = []
        is_told = "letters" in self.decided and self.decided & {"finish", "abandon"}
        for each in (*self.former_letters, self.letters):
            known = {row for row, _, _ in rows} if is_told else set()
            rows += [row for row in each.rows if row[0] not in known]
        return Target(self.letters.guard, "letters", rows)

    def _is_needless(self, record: JobRecord) -> bool:
        """Whether a run could have gone on by itself: what was changed concerns only an open batch that nobody has."""
        if (
            self.excused
            or self.setting.loses_rows
            or not self.decided <= {"code", "rows", "spool", "finish", "abandon", "letters", "corrected"}
        ):
            return False
        number = record.intent.number if record.intent else None
        return not self.decided or not any(each.has_some_of(number) for each in self.all_targets)

    def _problems_of(self, target: Target, upto: int, title: str, *, is_asked: bool) -> Iterator[str]:
        counts = Counter(place for place, _, _ in target.rows)
        excused = Counter(row for place, row, _ in self.excused if place.startswith(target.place))
        counts = Counter({row: max(1, count - excused[row]) for row, count in counts.items()})
        for place, count in counts.items():
            if count > 1:
                yield f"row {place} is {count} times in {target.place}"
        if is_asked and "restored" in self.decided:
            return
        is_letters = target not in self.targets
        if "corrected" in self.decided:
            return
        for place, value in self.table.rows if title == self.table.title else ():
            if place <= upto and is_letters == (value == MALFORMED) and not counts[place]:
                yield f"row {place} is not in {target.place}, and the mark is {upto}"
        if "source" in self.decided and self.decided & {"finish", "abandon"}:
            return  # a person let the batch be finished from what the source is now, or gave up what is there
        for place, value, _ in target.rows:
            if place <= upto and not is_letters and not value.startswith(title):
                yield f"row {place} of {target.place} is '{value}', and the mark is one of {title}"

    def _not_one_of_both(self, upto: int) -> Iterator[str]:
        """A row is in every target or a letter, as it was when its batch was read."""
        letters = {row for row, _, _ in self._all_letters().rows}
        for target in self.targets:
            there = {row for row, _, _ in target.rows}
            for place, _ in self.table.rows:
                if place <= upto and (place in there) == (place in letters):
                    both = "a letter, and" if place in letters else "neither a letter, nor"
                    yield f"row {place} is {both} in {target.place}"

    def _differences(self) -> Iterator[str]:
        if self.decided & {"finish", "restored", "abandon"}:
            return
        first = {place: value for place, value, _ in self.targets[0].rows}
        for target in self.targets[1:]:
            for place, value, _ in target.rows:
                if first.get(place, value) != value:
                    yield f"row {place} is '{first[place]}' in {self.targets[0].place}, '{value}' in {target.place}"

    def _sums(self, receipt: Receipt) -> Iterator[str]:
        for (name, written), target in zip(receipt.rows_written.items(), self.targets, strict=False):
            really = sum(number == receipt.number for _, _, number in target.rows)
            if written != really:
                yield f"the receipt of number {receipt.number} says {written} rows in {name}, and there are {really}"
            is_told = COUNTED_ANEW in receipt.notes  # of a table that is not kept nobody knows what was read then
            if receipt.rows_read - receipt.rows_dead != written and not is_told:
                yield f"the receipt of number {receipt.number}: {receipt.rows_read} read, {written} written"


def change_code(world: World) -> None:
    world.code = "v2"
    world.decided.add("code")


def change_code_back(world: World) -> None:
    world.code = "v1"


def change_rows(world: World) -> None:
    """Every row has another value now, and the newest one is gone."""
    kept = world.table.rows[:-1] or world.table.rows
    world.table.rows = [(place, value if value == MALFORMED else f"{value} changed") for place, value in kept]
    world.decided.add("rows")


def correct_rows(world: World) -> None:
    """What could not be parsed can be now."""
    rows, title = world.table.rows, world.table.title
    world.table.rows = [(place, value.replace(MALFORMED, f"{title} {place}")) for place, value in rows]
    if rows != world.table.rows:
        world.decided.add("corrected")


def change_source(world: World) -> None:
    """The project file names another table; a run that is paused still has the first."""
    rows = [(place, f"table B {place}") for place, _ in world.table.rows]
    world.table = type(world.table)(world.scheduler, rows, "table B")
    world.decided.add("source")


def lose_spool(world: World) -> None:
    shutil.rmtree(world.folder, ignore_errors=True)
    world.decided.add("spool")


def lose_spool_and_change_rows(world: World) -> None:
    lose_spool(world)
    change_rows(world)


def restore_sink(world: World) -> None:
    """The last target is brought back from a copy; a run that stands still within its guard is cut off by that."""
    if world.targets[-1].guard.holder is not None:
        world.scheduler.end_all()
    if world.targets[-1].copies:
        world.targets[-1].restore()
        world.decided.add("restored")


def rename_sink(world: World) -> None:
    world.renamed = not world.renamed
    world.decided.add("renamed")


def move_letters(world: World) -> None:
    """The project file names another table for the dead letters; what is in the first stays there."""
    world.former_letters.append(world.letters)
    world.letters = Target(Guard(world.scheduler), f"letters {len(world.former_letters) + 1}")
    world.decided.add("letters")


def abandon(world: World) -> None:
    world.request = replace(world.request, abandon=True)
    world.decided.add("abandon")


def finish(world: World) -> None:
    """The code is another, and a person lets it finish the batch."""
    change_code(world)
    world.request = replace(world.request, finish=True)
    world.decided.add("finish")


ROW_CHANGES = ("other rows", "malformed rows are corrected", "the spool is lost, and other rows")
"""What happens to a table, and never to a log."""
CHANGES: dict[str, Callable[[World], None]] = {
    "nothing": lambda world: None,
    "new rows": lambda world: world.add_rows(2),
    "other code": change_code,
    "the code as it was": change_code_back,
    "other rows": change_rows,
    "malformed rows are corrected": correct_rows,
    "another source": change_source,
    "the spool is lost": lose_spool,
    "the spool is lost, and other rows": lose_spool_and_change_rows,
    "a sink is restored": restore_sink,
    "a sink is renamed": rename_sink,
    "the dead letters are moved": move_letters,
    "--abandon": abandon,
    "--finish": finish,
}


def explore(setting: Setting, folder: Path, tapes: Iterable[Choices] | None = None) -> int:
    """Every story of this setting, depth first, or those of the tapes; how many there were.

    Raises Violation with the first that ends badly, and every call of it.
    """
    stories = 0
    with without_spark():
        for choices in tapes or every_tape():
            tell(World(setting, choices, folder))
            stories += 1
    return stories


def tell(world: World) -> None:
    """One story, to its end. Raises Violation."""
    try:
        world.play()
        problems = list(world.problems(world.settle()))
    except Violation as violation:
        problems = [str(violation)]
    if problems:
        story = [str(world.setting), *world.choices.story, *problems, *world.scheduler.trace]
        raise Violation("\n".join(story))
