"""What commands print: one JSON document, or lines and tables for people (rich on a terminal, plain text elsewhere).

A failure is two lines on stderr, `Error: …` and `Try: …`, and an exit code; its traceback comes only at debug. Options
that several commands take stand here too.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from floodmark.errors import ConfigError, FloodmarkError
from floodmark.errors.causes import cause_of
from floodmark.hwm.mark import short_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from floodmark.cli.invocation import Invocation
    from floodmark.hwm import Json
    from floodmark.jobs.job import Job
    from floodmark.stores.record import Receipt


UsageError = typer.BadParameter.__base__ or typer.BadParameter  # typer gives it no public name of its own
VALIDATOR = re.compile(r"Input should be ([^,]+)(?:, unable to .*)?")
NUMBERS = {"a valid integer": "it has to be a whole number", "a valid number": "it has to be a number"}
"""The words of pydantic, by which newer versions of typer read values."""
USAGE = 2
STDOUT, STDERR = 1, 2
_document_streams: list[TextIO] = []
"""Where the document goes while a command with `--json` runs; its stdout is everybody else's stderr."""


def _reserve_stdout(ctx: typer.Context, as_json: bool) -> bool:
    if as_json and not ctx.resilient_parsing:
        ctx.with_resource(stdout_for_the_document())
    return as_json


AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document and nothing else on stdout.", callback=_reserve_stdout),
]


def complete_jobs(incomplete: str) -> list[str]:
    """The jobs' names and tags that begin so, for the shell; it is asked at every key, and answers without Spark."""
    from pathlib import Path

    from floodmark.cli.completion import job_words

    return [word for word in job_words(Path.cwd()) if word.startswith(incomplete)]


Jobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help="Only these jobs; as --select.", autocompletion=complete_jobs),
]
OneJob = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help="The one job that is meant; as --select.", autocompletion=complete_jobs),
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        "-s",
        metavar="JOB",
        help="A job, a pattern, tag:NAME; +JOB with what it is made of, JOB+ with what is made of it; repeatable.",
        autocompletion=complete_jobs,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="JOB", help="Leave these jobs out; selectors as for --select.", autocompletion=complete_jobs),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@contextmanager
def stdout_for_the_document() -> Iterator[None]:
    """What anybody prints goes to stderr, be it a user's function, a library, the JVM or a program that is started.

    So it is the descriptor that is changed, before any process can inherit it; a stream that has none is exchanged.
    """
    stream, saved = sys.stdout, _saved_stdout()
    _document_streams.append(os.fdopen(saved, "w", encoding="utf-8") if saved is not None else stream)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        document, sys.stdout = _document_streams.pop(), stream
        if saved is not None:
            document.flush()
            os.dup2(saved, STDOUT)
            document.close()


def _saved_stdout() -> int | None:
    """A copy of stdout's descriptor, which is stderr's from now on; None if Python's stdout is something else."""
    try:
        if sys.stdout.fileno() != STDOUT:
            return None
    except (OSError, ValueError):  # of a test, or of a program that has closed it
        return None
    sys.stdout.flush()
    saved = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    return saved


def print_json(document: Mapping[str, object]) -> None:
    """The document, on stdout."""
    out = _document_streams[-1] if _document_streams else sys.stdout
    out.write(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")
    out.flush()


def print_line(text: str) -> None:
    """A line on stdout, seen at once also through a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    whole: Sequence[str] = (),
    colours: Mapping[str, str] | None = None,
) -> None:
    """Rows under a header.

    On a terminal, cells of `whole` columns are broken after a comma alone, and `colours` are those of some cells.
    """
    if sys.stdout.isatty():
        _print_rich(header, rows, (*PASTED, *whole), colours or {})
        return
    widths = _widths(header, rows)
    for row in (header, *rows):
        print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


PASTED = ("run", "row", "id", "letter")
"""Columns of ids, which are never cut or broken: people paste them into the next command."""
WIDE_GAP, NARROW_GAP = 2, 1


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]


def _print_rich(
    header: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str], colours: Mapping[str, str]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(markup=False, highlight=False)
    is_roomy = sum(_widths(header, rows)) + WIDE_GAP * (len(header) - 1) <= console.width
    gap, comma = (WIDE_GAP, ", ") if is_roomy else (NARROW_GAP, ",\n")
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    room = console.width - gap * (len(header) - 1)
    for name, width in zip(header, _fitting_widths(header, rows, whole, room), strict=True):
        table.add_column(name, overflow="fold", no_wrap=name in whole, width=width)
    for row in rows:
        cells = [c.replace(", ", comma) if name in whole else c for name, c in zip(header, row, strict=True)]
        table.add_row(*(Text(cell, style=colours.get(cell, "")) for cell in cells))
    console.print(table)


def _fitting_widths(
    header: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str], room: int
) -> list[int] | list[None]:
    """Widths with which no word is broken, the first columns as wide as they like; None where that takes more room."""
    widths = _least_widths(header, rows, whole)
    spare = room - sum(widths)
    if spare < 0:
        return [None] * len(header)
    for column, wish in enumerate(_widths(header, rows)):
        more = min(spare, wish - widths[column])
        widths[column], spare = widths[column] + more, spare - more
    return widths


def _least_widths(header: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str]) -> list[int]:
    """Of columns in which no word is broken, nor, in whole ones, anything but after a comma."""
    breaks = [", " if name in whole else " " for name in header]
    pieces = [[max(c.split(at), key=len) for c, at in zip(row, breaks, strict=True)] for row in rows]
    commas = [1 if at == ", " and any(at in row[n] for row in rows) else 0 for n, at in enumerate(breaks)]
    least = [width + comma for width, comma in zip(_widths(header, pieces), commas, strict=True)]
    return [min(each, wish) for each, wish in zip(least, _widths(header, rows), strict=True)]


STATUS_COLOURS = {"done": "green", "failed": "red", "skipped": "yellow"}


def coloured_run_line(receipt: Receipt) -> str:
    """A run in one line, its status in the colour that it has on a terminal."""
    line, status = run_line(receipt), f" {receipt.status}"
    colour = STATUS_COLOURS.get(receipt.status)
    return line.replace(status, f" {painted(receipt.status, colour, sys.stdout)}", 1) if colour else line


def counted(count: int, noun: str) -> str:
    """`1 row`, `2 rows`, `1,002 rows`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def run_line(receipt: Receipt) -> str:
    """A run in one line."""
    if receipt.status == "failed":
        return f"{receipt.job}: failed after {receipt.seconds:.1f} s: {receipt.error}"
    if receipt.status == "skipped":
        return f"{receipt.job}: skipped ({'; '.join(receipt.notes)})"
    held = f", {receipt.rows_held_back:,} held back" if receipt.rows_held_back else ""
    if receipt.status == "nothing_new" and held:
        return f"{receipt.job}: nothing read{held}: {'; '.join(receipt.notes)} ({receipt.seconds:.1f} s)"
    if receipt.status == "nothing_new":
        return f"{receipt.job}: nothing new ({receipt.seconds:.1f} s)"
    written = ", ".join(f"{sink} {rows:,}" for sink, rows in receipt.rows_written.items())
    aside = {"quarantined": receipt.rows_quarantined, "dropped": receipt.rows_dropped, "dead": receipt.rows_dead}
    put_aside = "".join(f", {rows:,} {word}" for word, rows in aside.items() if rows)
    moved = f"mark {short_mark(receipt.mark_before)} → {short_mark(receipt.mark_after)}"
    counts = f"{counted(receipt.rows_read, 'row')} read{put_aside}{held}, written: {written or 'none'}"
    return f"{receipt.job}: done, {counts}; {moved} ({receipt.seconds:.1f} s)"


def run_entry(receipt: Receipt) -> dict[str, object]:
    """A run as `run --json` shows it."""
    return {
        "job": receipt.job,
        "status": receipt.outcome,
        "batches": receipt.batches,
        "rows_read": receipt.rows_read,
        "rows_written": dict(receipt.rows_written),
        "written_by": dict(receipt.written_by),
        "rows_refused": receipt.rows_refused,
        "rows_quarantined": receipt.rows_quarantined,
        "rows_dropped": receipt.rows_dropped,
        "rows_dead": receipt.rows_dead,
        "rows_held_back": receipt.rows_held_back,
        "mark_before": receipt.mark_before,
        "mark_after": receipt.mark_after,
        "seconds": round(receipt.seconds, 3),
        "error": receipt.error,
        "notes": list(receipt.notes),
        "score": receipt.score,
        "rules": [{**asdict(rule), "score": rule.score} for rule in receipt.rules],
    }


def scrub_document(document: Mapping[str, Json], scrub: Callable[[str], str]) -> dict[str, Json]:
    """The document without secrets in its texts; names of fields stay."""

    def clean(value: Json) -> Json:
        if isinstance(value, str):
            return scrub(value)
        if isinstance(value, list):
            return [clean(each) for each in value]
        return {name: clean(each) for name, each in value.items()} if isinstance(value, dict) else value

    return {name: clean(each) for name, each in document.items()}


def confirm(act: str, *, yes: bool, dry_run: bool) -> bool:
    """Whether to go on: a dry run only says what it would do, and without --yes a person is asked."""
    if dry_run:
        print_line(f"would {act}")
        return False
    return yes or typer.confirm(f"{act}?", abort=True)


ONE_JOB_HINT = "name one job, or `--select` it"


def words(jobs: Sequence[str] | None, select: Sequence[str] | None) -> list[str]:
    """What a person named, as arguments or by `--select`."""
    return [*(jobs or ()), *(select or ())]


def one_job(
    invocation: Invocation,
    named: Sequence[str],
    exclude: Sequence[str] | None = None,
    console: Literal["stdout", "stderr"] = "stdout",
) -> Job:
    """The one job that a command is about. Raises ConfigError where the words mean none, or several."""
    from floodmark.project.selection import is_plain

    names = list(dict.fromkeys(named))
    are_one_each = len(names) != 1 and all(map(is_plain, names))
    jobs = () if are_one_each else invocation.jobs(names, exclude=exclude or (), console=console)
    names = [job.name for job in jobs] or names
    if len(names) != 1:
        which = f": {', '.join(names)}" if names else ""
        raise ConfigError(f"{len(names)} jobs are named, and this is about one{which}.", hint=ONE_JOB_HINT)
    return jobs[0]


def require_words(named: Sequence[str]) -> list[str]:
    """Words of a selection for a command that never means all jobs at once. Raises ConfigError if there is none."""
    if not named:
        raise ConfigError(
            "no job is named, and this is not done to all of them.", hint="name a job, or `--select` some"
        )
    return list(named)


def explain_failure(error: Exception, invocation: Invocation) -> int:
    """Print what happened and what to do; gives the exit code."""
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, typer.Abort):
        print_failure("stopped, nothing was changed.", "answer y, or give --yes", invocation)
        return 1
    if isinstance(error, UsageError):
        return _explain_usage(error, invocation)
    message, hint = message_and_hint(error)
    print_failure(message, hint, invocation)
    print_traceback(error, invocation)
    return error.exit_code if isinstance(error, FloodmarkError) else 1


def _explain_usage(error: BaseException, invocation: Invocation) -> int:
    """Usage errors come from typer; one without arguments carries the help text itself."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(str(error.format_message()) + "\n" if str(error) else "")  # type: ignore[attr-defined]
        return 0
    path = context.command_path if context else "floodmark"
    said = VALIDATOR.sub(lambda found: NUMBERS.get(found[1], f"it has to be {found[1]}"), str(error.format_message()))  # type: ignore[attr-defined]
    print_failure(said, f"{path} --help", invocation)
    return USAGE


def message_and_hint(error: BaseException) -> tuple[str, str]:
    """What happened, in one line, and the next step."""
    if isinstance(error, FloodmarkError):
        return " ".join(error.message.split()), " ".join(error.hint.split())
    cause = cause_of(error)
    return cause.reason, cause.hint or "run again with --log-level debug"


def print_failure(message: str, hint: str, invocation: Invocation) -> None:
    """The two lines."""
    said = painted("Error:", "red", sys.stderr), painted("Try:", "cyan", sys.stderr)
    sys.stderr.write(invocation.scrub(f"{said[0]} {message}\n{said[1]} {hint}\n"))


def print_traceback(error: BaseException, invocation: Invocation) -> None:
    """Where an error comes from, for those who asked for it by --log-level debug."""
    if invocation.logs.level == "debug":
        sys.stderr.write(invocation.scrub("".join(traceback.format_exception(error))))


COLOURS = {"red": "31", "yellow": "33", "green": "32", "cyan": "36", "bold": "1"}


def painted(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour that carries meaning, on a terminal whose user does not mind (NO_COLOR)."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if is_plain else f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"
