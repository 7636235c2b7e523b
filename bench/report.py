"""What was measured, for people: a table in the terminal, a plot, and the machine and versions beside it."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from run import Failure, Result

PACKAGES = ("floodmark", "pyspark", "deltalake", "pyarrow", "confluent-kafka", "psycopg")
BAR, LABELS, ROW, WIDTH = 360, 420, 22, 900
WITHIN, OVER = "#2a7f62", "#c0392b"


def facts(sizes: Sequence[str], seconds: float) -> dict[str, object]:
    """Where and with what it was measured: a ratio without them is a rumour."""
    from floodmark.spark.java import find_java

    return {
        "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(seconds),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": str(find_java().version),
        "sizes": list(sizes),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def show(results: Sequence[Result], failures: Sequence[Failure], around: Mapping[str, object], file: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{around['cores']} cores, load {around['load']} at the end, {around['measured_at']}")
    for heading in ("", "benchmark", "case", "ratio", "at most", "ours, s", "reference, s", "spread"):
        table.add_column(
            heading, justify="right" if heading in ("ratio", "at most", "ours, s", "reference, s") else "left"
        )
    for each in results:
        verdict = "ok" if each.holds else "[red]OVER"
        times = [f"{statistics.median(column):.3g}" if column else "" for column in (each.ours, each.reference)]
        table.add_row(verdict, each.bench, each.name, f"{each.ratio:.2f}", f"{each.at_most:.2f}", *times, _spread(each))
    for failure in failures:
        table.add_row("[red]failed", failure.bench, failure.reason)
    console = Console(width=160)
    console.print(table)
    for each in results:
        console.print(f"[dim]{each.name}: {each.detail}", highlight=False)
    console.print(f"written to {file} and {file.with_suffix('.svg').name}", highlight=False)


def _spread(result: Result) -> str:
    """The lowest and the highest ratio of a round: where they lie far apart, the machine was busy."""
    ratios = [own / plain for own, plain in zip(result.ours, result.reference, strict=False) if plain]
    return f"{min(ratios):.2f} – {max(ratios):.2f}" if ratios else ""


def plot(results: Sequence[Result], around: Mapping[str, object]) -> str:
    """A bar for each ratio, and a line at the bound that it has to keep."""
    rows = [_bar(place, each) for place, each in enumerate(results)]
    height = ROW * (len(results) + 2)
    title = f"ratio to the reference, {around['cores']} cores, {around['measured_at']}"
    size = f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f'<text x="8" y="15" font-weight="bold">{escape(title)}</text>', *rows, "</svg>", ""])


def _bar(place: int, result: Result) -> str:
    """The bound stands at two thirds of the width, so that bars of all cases can be compared by their share of it."""
    share = min(result.ratio / result.at_most, 1.5) if result.at_most else 0.0
    bound, y = LABELS + BAR * 2 / 3, ROW * (place + 1) + 8
    colour = WITHIN if result.holds else OVER
    return (
        f'<text x="8" y="{y + 12}">{escape(result.name[:64])}</text>'
        f'<rect x="{LABELS}" y="{y}" width="{share * BAR * 2 / 3:.0f}" height="{ROW - 8}" fill="{colour}"/>'
        f'<line x1="{bound:.0f}" x2="{bound:.0f}" y1="{y - 3}" y2="{y + ROW - 5}" stroke="#333"/>'
        f'<text x="{LABELS + BAR + 8}" y="{y + 12}">{result.ratio:.2f} of at most {result.at_most:.2f}</text>'
    )
