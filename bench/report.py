"""What was measured, for people: a table in the terminal, JSON, and the machine and versions beside it."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from plots import curves, ratios

if TYPE_CHECKING:
    from run import Failure, Result

PACKAGES = ("floodmark", "pyspark", "deltalake", "pyarrow", "confluent-kafka", "psycopg")


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


def write(file: Path, results: Sequence[Result], failures: Sequence[Failure], around: Mapping[str, object]) -> None:
    """Everything as JSON, and beside it a plot: of what grows a line, of the rest a bar against its bound."""
    document = {**around, "results": [asdict(e) for e in results], "failures": [asdict(e) for e in failures]}
    file.write_text(json.dumps(document, indent=1))
    title = f"{around['cores']} cores, {around['measured_at']}"
    grows = bool(results) and all(each.series for each in results)
    file.with_suffix(".svg").write_text(curves(results, title) if grows else ratios(results, title))


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
        table.add_row(
            verdict,
            each.bench.partition("_")[2],
            each.name,
            f"{each.ratio:.2f}",
            f"{each.at_most:.2f}",
            *times,
            _spread(each),
        )
    for failure in failures:
        table.add_row("absent" if failure.is_absence else "[red]failed", failure.bench, failure.reason)
    console = Console(width=160)
    console.print(table)
    for each in results:
        console.print(f"[dim]{each.name}: {each.detail}", highlight=False)
    console.print(f"written to {file} and {file.with_suffix('.svg').name}", highlight=False)


def _spread(result: Result) -> str:
    """The lowest and the highest ratio of a round: where they lie far apart, the machine was busy."""
    ratios = [own / plain for own, plain in zip(result.ours, result.reference, strict=False) if plain]
    return f"{min(ratios):.2f} – {max(ratios):.2f}" if ratios else ""
