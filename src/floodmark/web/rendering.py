"""From a snapshot to HTML: the templates, the words and numbers in them, and the report as one file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from floodmark.hwm.mark import files_read, short_mark
from floodmark.stores.record import Receipt, RestatedDates

if TYPE_CHECKING:
    from jinja2 import Environment

    from floodmark.hwm import Json
    from floodmark.jobs.diff import Diff
    from floodmark.jobs.workflow.memory import TaskOutcome, WorkflowState
    from floodmark.stores.run_index import RunEnd
    from floodmark.web.snapshot import Snapshot


SCRIPTS = ("vendor/dagre.min.js", "vendor/uPlot.iife.min.js", "floodmark.js")
STYLES = ("vendor/uPlot.min.css", "floodmark.css")
TEXT_SHOWN = 2_000
ROW_HEIGHT = 40
SHORTEST_BAR = 0.3
STRIP_HEIGHT = 22
STRIP_STEP = 6
DATES_SHOWN = 31
SHORTEST_PHASE = 0.05


def report_html(snapshot: Snapshot, changes: Diff | None = None) -> str:
    """The whole report: styles, scripts and numbers in one file, which loads nothing from elsewhere.

    >>> from pathlib import Path
    >>> from floodmark.project import Project, Site
    >>> site, store = Site(Path(folder)), fm.stores.open("memory")
    >>> page = report_html(take_snapshot(Project(), site, store, datetime.now(timezone.utc)))
    >>> page.startswith("<!doctype html>")
    True
    """
    scripts, styles = [static_text(name) for name in SCRIPTS], [static_text(name) for name in STYLES]
    from floodmark import __version__

    assets = {"scripts": scripts, "styles": styles, "policy": content_policy(scripts, styles)}
    return render("report.html", snapshot=snapshot, changes=changes, version=__version__, **assets)


def content_policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """What a browser may run in the report: these very scripts and styles, and nothing from anywhere."""
    allowed = " ".join(map(_source_hash, scripts))
    looks = " ".join(map(_source_hash, styles))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {looks}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def render(template: str, **values: object) -> str:
    """A page of the templates; every value is escaped."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> Environment:
    """Templates with what they call."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("floodmark.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        moment=moment_text, seconds=seconds_text, number=number_text, short=short_text, mark=short_mark, json=json_text
    )
    made.filters.update(ago=ago_text)
    made.globals.update(
        gantt=gantt,
        task_gantt=task_gantt,
        tasks_without_bar=tasks_without_bar,
        series=series,
        plural=plural,
        phases=phases,
    )
    made.globals.update(restatements=restatements, strip_of=strip_of, resources=resources, mark_steps=mark_steps)
    return made


@cache
def static_text(name: str) -> str:
    """A file that comes with the package."""
    return (files("floodmark.web") / "static" / name).read_text(encoding="utf-8")


def moment_text(moment: datetime | None) -> str:
    """In UTC, to the second."""
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC" if moment else "never"


def ago_text(moment: datetime, now: datetime) -> str:
    """How long before now, to the largest unit that says something."""
    seconds = (now - moment).total_seconds()
    if seconds < 60:
        return "just now"
    for unit, name in ((86400, "d"), (3600, "h")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name} ago"
    return f"{seconds / 60:.0f} min ago"


def seconds_text(seconds: float) -> str:
    """As people say it: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def number_text(number: float | None) -> str:
    """With thousands apart; what is not known is no 0."""
    return "?" if number is None else f"{number:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """1 row, 2 rows."""
    return f"{number_text(count)} {one if count == 1 else many or one + 's'}"


def short_text(text: object, most: int = TEXT_SHOWN) -> str:
    """A text that may be of any length, cut where nobody reads on."""
    whole = text if isinstance(text, str) else json_text(text)
    return whole if len(whole) <= most else f"{whole[:most]}… ({number_text(len(whole))} characters)"


def json_text(value: object) -> str:
    """A value that is no text, as one."""
    return json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class Bar:
    """A bar of a Gantt chart: in percent of its width from the left, in pixels from the top."""

    label: str
    status: str
    left: float
    width: float
    top: int
    note: str
    seconds: float

    @property
    def anchor(self) -> str:
        """A label begins with its bar, unless it would leave the drawing."""
        return "start" if self.left < 60 else "end"

    @property
    def text_at(self) -> float:
        return self.left if self.left < 60 else round(min(self.left + self.width, 100), 2)


@dataclass(frozen=True)
class Gantt:
    """Bars on one axis of time."""

    bars: tuple[Bar, ...]
    begin: datetime
    seconds: float

    @property
    def height(self) -> int:
        return ROW_HEIGHT * len(self.bars) + 24

    def ticks(self) -> list[tuple[int, str, str]]:
        """Places on the axis, how the text stands there, and the seconds: at the first, the time of day."""
        first = f"{self.begin.astimezone(timezone.utc):%H:%M:%S} UTC"
        later = [(25 * part, "middle", f"+{seconds_text(self.seconds * part / 4)}") for part in (1, 2, 3)]
        return [(0, "start", first), *later, (100, "end", f"+{seconds_text(self.seconds)}")]


def gantt(receipts: Sequence[Receipt]) -> Gantt | None:
    """When each of these runs was under way; None if there is none."""
    spans = [(each.job, each.status, each.started, each.seconds, _run_note(each)) for each in receipts]
    return _gantt(spans)


def task_gantt(run: WorkflowState) -> Gantt | None:
    """When each task of a workflow's run was under way, of those whose begin is known."""
    begun = [(task, run.starts.get(task.task)) for task in run.tasks.values()]
    spans = [(e.task, e.state, at, e.seconds, e.error or e.note or e.state) for e, at in begun if at is not None]
    return _gantt(spans)


def tasks_without_bar(run: WorkflowState) -> list[TaskOutcome]:
    """The tasks that a Gantt chart cannot show: they were skipped, or their begin was not kept."""
    return [task for task in run.tasks.values() if task.task not in run.starts]


def _gantt(spans: Sequence[tuple[str, str, datetime, float, str]]) -> Gantt | None:
    if not spans:
        return None
    begin = min(started for _, _, started, _, _ in spans)
    end = max(started + timedelta(seconds=seconds) for _, _, started, seconds, _ in spans)
    whole = max((end - begin).total_seconds(), 0.001)
    bars = [
        Bar(
            label,
            status,
            round((started - begin).total_seconds() / whole * 100, 2),
            round(max(seconds / whole * 100, SHORTEST_BAR), 2),
            row * ROW_HEIGHT,
            f"{seconds_text(seconds)}: {note}",
            seconds,
        )
        for row, (label, status, started, seconds, note) in enumerate(spans)
    ]
    return Gantt(tuple(bars), begin, whole)


def _run_note(receipt: Receipt) -> str:
    if receipt.error:
        return short_text(receipt.error, 200)
    return f"{plural(receipt.rows_read, 'row')} read, batch {receipt.number}"


@dataclass(frozen=True)
class StripBar:
    """One run of a strip, in pixels."""

    status: str
    left: int
    top: float
    height: float
    note: str
    width: int = STRIP_STEP - 2


@dataclass(frozen=True)
class Strip:
    """The last runs of a job at a glance: as high as the rows that they read, red where they failed."""

    bars: tuple[StripBar, ...]
    label: str
    height: int = STRIP_HEIGHT

    @property
    def width(self) -> int:
        return STRIP_STEP * len(self.bars)


def strip_of(ends: Sequence[RunEnd]) -> Strip | None:
    """Of runs, newest first; None if there is none."""
    runs = [run for run in reversed(ends) if run.status in ("done", "failed")]
    if not runs:
        return None
    most = max(run.rows_read for run in runs) or 1
    heights = [STRIP_HEIGHT if r.status == "failed" else max(3.0, STRIP_HEIGHT * r.rows_read / most) for r in runs]
    bars = [
        StripBar(run.status, place * STRIP_STEP, round(STRIP_HEIGHT - high, 1), round(high, 1), _strip_note(run))
        for place, (run, high) in enumerate(zip(runs, heights, strict=True))
    ]
    failed = sum(run.status == "failed" for run in runs)
    return Strip(tuple(bars), f"{plural(len(runs), 'run')}, {failed} failed")


def _strip_note(run: RunEnd) -> str:
    return f"{moment_text(run.started)}: {run.status}, {plural(run.rows_read, 'row')}, {seconds_text(run.seconds)}"


def series(receipts: Sequence[Receipt]) -> dict[str, Json]:
    """The finished runs of a job for its plots, the oldest first: when, how many rows, how long."""
    runs = [run for run in reversed(receipts) if run.status == "done"]
    return {
        "times": [run.started.timestamp() for run in runs],
        "rows": [run.rows_read for run in runs],
        "seconds": [round(run.seconds, 3) for run in runs],
    }


@dataclass(frozen=True)
class RestatementView:
    """Dates of a table that a run wrote anew, and why: what moved since the run before."""

    run: Receipt
    sink: str
    dates: str
    reason: str


def restatements(runs: Sequence[Receipt]) -> list[RestatementView]:
    """Every restatement of these runs, in their order."""
    return [
        RestatementView(run, sink, dates_text(restated), reason_for(run))
        for run in runs
        for sink, restated in run.restated.items()
        if restated.whole or restated.count
    ]


def dates_text(restated: RestatedDates) -> str:
    """The dates as people write them, a long list cut."""
    if restated.whole:
        return "all dates"
    shown = [f"{date // 10000}-{date // 100 % 100:02}-{date % 100:02}" for date in restated.dates[:DATES_SHOWN]]
    rest = restated.count - len(shown)
    return ", ".join(shown) + (f", and {number_text(rest)} more" if rest else "")


def reason_for(run: Receipt) -> str:
    """Which inputs rose from which version to which; of a job that has other marks, from which mark to which."""
    before, after = run.mark_before, run.mark_after
    if not isinstance(after, dict) or not isinstance(before, (dict, type(None))):
        return f"mark {short_mark(before)} → {short_mark(after)}"
    moved = {name: ((before or {}).get(name), version) for name, version in after.items()}
    steps = [f"{name}: version {was} → {now}" for name, (was, now) in moved.items() if was not in (None, now)]
    new = [f"{name} for the first time, at version {now}" for name, (was, now) in moved.items() if was is None]
    return "; ".join([*steps, *new]) or "asked for"


def mark_steps(before: Json, after: Json) -> list[tuple[str, str, str]]:
    """From where to where a mark rose; of one with several parts, those that rose, by their names."""
    if not isinstance(after, dict) or not isinstance(before, dict) or files_read(after) is not None:
        return [("", short_mark(before), short_mark(after))]
    moved = {name: now for name, now in after.items() if before.get(name) != now}
    return [(name, short_mark(before.get(name)), short_mark(now)) for name, now in moved.items()]


def phases(durations: Mapping[str, float]) -> str:
    """Where the time of a run went, the longest first; what took no time that would be seen is left out."""
    ranked = sorted(durations.items(), key=lambda part: -part[1])
    ranked = [part for part in ranked if part[1] >= SHORTEST_PHASE] or ranked[:1]
    return ", ".join(f"{name} {seconds_text(seconds)}" for name, seconds in ranked)


def resources(used: Mapping[str, float]) -> str:
    """What Spark says that a run used: 4.2 s of CPU, 118 MB of peak memory."""
    sizes = {name.removesuffix("_bytes"): size for name, size in used.items() if name.endswith("_bytes")}
    cpu = [f"{seconds_text(used['cpu_seconds'])} of CPU"] if "cpu_seconds" in used else []
    return ", ".join(cpu + [f"{bytes_text(size)} of {name.replace('_', ' ')}" for name, size in sizes.items()])


def bytes_text(size: float) -> str:
    """In thousands, as disks are sold: 0 B, 20 kB, 1.2 GB."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} B"
