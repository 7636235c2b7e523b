"""`make bench`: how much Floodmark adds to plain Spark, as ratios against a reference in the same run.

python bench/run.py [NAME …] [SIZE=NUMBER …]      all benchmarks, or the named ones; sizes as their `run` takes them
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHES = sorted(path.stem for path in HERE.glob("bench_*.py"))


@dataclass(frozen=True)
class Result:
    """One line of the report: a ratio and the bound it must keep."""

    name: str
    ratio: float
    at_most: float
    detail: str

    @property
    def holds(self) -> bool:
        return self.ratio <= self.at_most


def main(wanted: list[str]) -> int:
    sys.path.insert(0, str(HERE))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])  # for Spark's workers
    names = [word for word in wanted if "=" not in word]
    sizes = {name: int(number) for name, number in (word.split("=") for word in wanted if "=" in word)}
    chosen = [name for name in BENCHES if not names or name.removeprefix("bench_") in names]
    results = [result for name in chosen for result in importlib.import_module(name).run(**sizes)]
    for result in results:
        verdict = "ok  " if result.holds else "OVER"
        print(f"{verdict} {result.name}: {result.ratio:.2f} (at most {result.at_most:.2f}); {result.detail}")
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
