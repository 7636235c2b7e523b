"""`floodmark demo`: one small shop in half a minute: a run, a kill in the middle of a write, the rerun, late rows.

Everything happens in one folder, by the commands that a user would type; what they leave behind is counted against the
files that arrived, and compared with a loop that keeps the last value, as many pipelines are.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from floodmark.cli.invocation import LazySession, Tools
from floodmark.cli.output import counted, painted, print_line, print_table
from floodmark.cli.progress import Progress, shown_on_terminal
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.failpoints import VARIABLE as CRASH_AT
from floodmark.phases import phase

app = typer.Typer(add_completion=False)

PROJECT = """\
# yaml-language-server: $schema=.floodmark/schema.json
# The shop of `floodmark demo`: files of orders go into a Delta table and into CSV files, each order once.
store: sqlite:///state/marks.db

spark:
  master: local[2]

jobs:
  - name: orders
    source:
      type: files
      path: in
      format: jsonl
      schema: "id long, customer string, amount decimal(10,2), ordered_at timestamp"
      settle: 0s                         # these files are complete; keep the default of 5s where others write
    rules:
      - {name: amount_positive, check: "amount > 0", action: quarantine}
    quarantine: {path: lake/_quarantine}
    sinks:                               # append: a row that was written twice would be seen twice
      - {name: lake, type: delta, path: lake/orders, mode: append}
      - {name: export, type: files, path: out/orders, format: csv}
"""
MARKER = ".floodmark/demo"
KILL_POINT = "during_sink:2"
FIRST_DAY = datetime(2026, 3, 2, 8, tzinfo=timezone.utc)
ORDERS_A_DAY = 2_000
LATE_ORDERS = 30
CUSTOMERS = ("ada", "barbara", "edsger", "grace", "linus", "margaret", "niklaus")
BROKEN = {"id": 9_999, "customer": "edsger", "amount": "-12.50", "ordered_at": "2026-03-04T12:00:00Z"}
Order = dict[str, object]


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the shop is made.")] = Path("floodmark-demo"),
) -> None:
    """Show on a small shop what a kill in the middle of a write costs: nothing. No server, about half a minute."""
    shop = Shop(folder)
    begun = time.monotonic()
    shop.open()
    Story(shop).tell()
    is_good = print_count(shop)
    print_line(f"\n{time.monotonic() - begun:.0f} s. Look around in what it left behind:\n")
    for command in next_commands(folder):
        print_line(f"  {command}")
    raise typer.Exit(0 if is_good else 1)


class SharedSession(LazySession):
    """One Spark for all commands of the demo; it ends with the process."""

    def stop(self) -> None:
        """Not between two commands."""


@dataclass
class UsualLoop:
    """What many of us wrote first: read above the last value, append, remember the highest."""

    last: str = ""
    table: list[object] = field(default_factory=list)

    def run(self, orders: Sequence[Order], *, is_killed: bool = False) -> None:
        """One round over all that has arrived; killed after the write, it does not remember."""
        new = [order for order in orders if str(order["ordered_at"]) > self.last and order["id"] != BROKEN["id"]]
        self.table += [order["id"] for order in new]
        if new and not is_killed:
            self.last = max(str(order["ordered_at"]) for order in new)


@dataclass
class Shop:
    """The folder of the demo, and what is done there."""

    folder: Path
    usual_loop: UsualLoop = field(default_factory=UsualLoop)
    _session: LazySession | None = None

    def open(self) -> None:
        """A new project; the folder of an earlier demo is replaced, any other is left alone."""
        from floodmark.project.loading import schema_files

        if self.folder.exists() and any(self.folder.iterdir()):
            if not (self.folder / MARKER).exists():
                raise ConfigError(
                    f"{self.folder} is already there, and no demo made it; nothing was written.",
                    hint="floodmark demo OTHER_DIR",
                )
            shutil.rmtree(self.folder)
        for name, text in {MARKER: "", "floodmark.yaml": PROJECT, **schema_files()}.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text, encoding="utf-8")

    def arrive(self, name: str, orders: Sequence[Order]) -> None:
        """A file of orders."""
        file = self.folder / "in" / f"{name}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{json.dumps(order)}\n" for order in orders), encoding="utf-8")

    def arrived(self) -> list[Order]:
        """Every order that is in the files."""
        files = sorted((self.folder / "in").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    def call(self, *words: str) -> None:
        """A command of the command line, in this process, so that Spark starts once."""
        from floodmark.cli.app import run

        print_line(painted(f"$ floodmark {' '.join(words)}", "cyan", sys.stdout))
        code = run(["--project", str(self._project), *words], Tools(session=self.session))
        if code:
            raise typer.Exit(code)

    def session(self, settings: Mapping[str, str]) -> LazySession:
        """The same for every command."""
        if self._session is None:
            self._session = SharedSession(LazySession.of(settings).start)
        return self._session

    def run_and_kill(self) -> None:
        """A run in a process of its own, which is killed when half of the rows are in the second sink."""
        print_line(painted(f"$ {CRASH_AT}={KILL_POINT} floodmark run", "cyan", sys.stdout))
        command = [sys.executable, "-m", "floodmark", "--project", str(self._project), "run"]
        environment = {**os.environ, CRASH_AT: KILL_POINT}
        with showing(), phase("a process of its own runs, until it is killed"):
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode != -signal.SIGKILL:
            raise DemoFailed(f"the run should have been killed, and ended with {ended.returncode}: {ended.stderr}")
        print_line("Killed")

    @property
    def _project(self) -> Path:
        return self.folder / "floodmark.yaml"


class DemoFailed(FloodmarkError):
    """The demo did not go as it should."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()), hint="please report this")


def showing() -> AbstractContextManager[None]:
    """A moving line on a terminal, and nothing elsewhere."""
    return shown_on_terminal(Progress()) if sys.stderr.isatty() else nullcontext()


@dataclass(frozen=True)
class Story:
    """What happens in the shop, in four parts."""

    shop: Shop

    def tell(self) -> None:
        """One after the other; each says what it is before it does it."""
        print_line(f"A small shop in {self.shop.folder}: files of orders go to a Delta table and to CSV.")
        for number, part in enumerate((self.first_days, self.a_kill, self.the_rerun, self.late_and_broken), 1):
            print_line(painted(f"\n{number}. {part.__doc__}", "bold", sys.stdout))
            part()

    def first_days(self) -> None:
        """Two days of orders arrive, and a run reads them."""
        self.shop.arrive("mon", list(orders_of(0)))
        self.shop.arrive("tue", list(orders_of(1)))
        self.shop.usual_loop.run(self.shop.arrived())
        self.shop.call("run")

    def a_kill(self) -> None:
        """The third day arrives; this run is killed in the middle of its second sink."""
        self.shop.arrive("wed", list(orders_of(2)))
        self.shop.usual_loop.run(self.shop.arrived(), is_killed=True)
        self.shop.run_and_kill()
        self.shop.call("marks", "show")

    def the_rerun(self) -> None:
        """The next run finishes the batch: Delta has it already, the CSV gets it."""
        self.shop.usual_loop.run(self.shop.arrived())
        self.shop.call("run")

    def late_and_broken(self) -> None:
        """Orders of the first day come late, and one that cannot be right."""
        self.shop.arrive("late", [*late_orders(), BROKEN])
        self.shop.usual_loop.run(self.shop.arrived())
        self.shop.call("run")
        self.shop.call("quarantine", "show", "orders")


def orders_of(day: int) -> Iterator[Order]:
    """The orders of a day, some seconds apart."""
    for place in range(ORDERS_A_DAY):
        yield order(day * ORDERS_A_DAY + place + 1, FIRST_DAY + timedelta(days=day, seconds=20 * place))


def late_orders() -> Iterator[Order]:
    """Orders of the first day that were taken without a network, and come after those of the third."""
    for place in range(LATE_ORDERS):
        yield order(3 * ORDERS_A_DAY + place + 1, FIRST_DAY + timedelta(minutes=10 * place))


def order(number: int, at: datetime) -> Order:
    """An order that depends on its number alone."""
    amount = f"{5 + number * 37 % 95}.{number * 7 % 100:02}"
    customer = CUSTOMERS[number * number % len(CUSTOMERS)]
    return {"id": number, "customer": customer, "amount": amount, "ordered_at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}


def print_count(shop: Shop) -> bool:
    """What is in the tables, against what is in the files that arrived; whether each order is where it should be."""
    quarantined = set_aside(shop.folder)
    wanted = Counter(each["id"] for each in shop.arrived())
    good = wanted - Counter(quarantined)
    found = {"lake/orders (Delta)": lake_ids(shop.folder), "out/orders (CSV)": export_ids(shop.folder)}
    found['a loop with "> last value"'] = shop.usual_loop.table
    rows = [("in the files", counted(wanted.total(), "order"), "", "")]
    rows += [(name, *compared(Counter(ids), good)) for name, ids in found.items()]
    rows += [("quarantine", counted(len(quarantined), "order"), "", "")]
    print_line("")
    print_table(("what there is now", "counted", "lost", "doubled"), rows)
    is_good = all(Counter(ids) == good for ids in list(found.values())[:2]) and quarantined == [BROKEN["id"]]
    said = "Nothing was lost, nothing was doubled." if is_good else "Something is wrong: please report this."
    print_line(painted(said, "green" if is_good else "red", sys.stdout))
    return is_good


def compared(found: Counter[object], wanted: Counter[object]) -> tuple[str, str, str]:
    """How many there are, how many are missing, and how many are there once more than they should."""
    return counted(found.total(), "order"), f"{(wanted - found).total():,}", f"{(found - wanted).total():,}"


def lake_ids(folder: Path) -> list[object]:
    """The orders in the Delta table, read from its log and its Parquet."""
    from floodmark.probes.rows import MANY_ROWS, Filter, delta_rows

    rows = delta_rows(str(folder.absolute() / "lake" / "orders"), Filter(limit=MANY_ROWS, columns=["id"]))
    return [row["id"] for row in rows.values]


def export_ids(folder: Path) -> list[object]:
    """The orders in the CSV files that were published."""
    from floodmark.probes.rows import MANY_ROWS, Filter, file_rows
    from floodmark.sinks.files.folders import batch_folder, batch_numbers

    out = folder.absolute() / "out" / "orders"
    batches = [batch_folder(out, number) for number in batch_numbers(out)]
    return [row["id"] for row in file_rows(batches, "csv", Filter(limit=MANY_ROWS, columns=["id"])).values]


def set_aside(folder: Path) -> list[object]:
    """The orders in the quarantine."""
    from floodmark.probes.set_aside import rows_set_aside

    rows = rows_set_aside(str(folder.absolute() / "lake" / "_quarantine"), "orders", "quarantine")
    return [json.loads(row.record or "{}").get("id") for row in rows]


def next_commands(folder: Path) -> list[str]:
    """What to try on what the demo left behind; the program as it can be called from there."""
    own = Path(sys.argv[0]).absolute()
    is_on_path = Path(shutil.which("floodmark") or "/").resolve() == own.resolve()
    is_script = own.name == "floodmark"
    program = "floodmark" if is_on_path or not is_script else os.path.relpath(own, folder.absolute())
    page = "serve" if find_spec("starlette") and find_spec("uvicorn") else "report -o report.html"
    return [
        f"cd {folder}",
        f'{program} query "select customer, sum(amount) from orders group by customer"',
        f'{program} quarantine replay orders --set "amount=12.50"',
        f"{program} {page}",
    ]
