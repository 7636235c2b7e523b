"""What Floodmark itself costs at sizes that no test has: measured small, extrapolated, and tried at the size itself.

python bench/scale/run.py [NAME …] [--write]      all cases, or those with one of these words in their names;
                                                   `--write` puts the table into README.md beside this file

A case does what a run does at a source or a store of `n` things, with the things simulated and the rest real: the
listing is made up, the mark, the store, the probe and the project loader are those of every run. Each size is measured
in a process of its own, in seconds of CPU (of the wall, where Spark works) and MiB of Python's memory; the line
`seconds = base + each * n` is fitted to the small sizes, and the size of the case is then both predicted and measured.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import CASES, Case

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"
HEAD = (
    "| case | act | size | each 1,000, at small sizes | predicted | measured | memory | bound |\n"
    "|---|---|---|---|---|---|---|---|\n"
)
ALONE = "--alone"
PREDICTION_TOLERANCE = 2.0
"""Growth that is faster than linear shows as a size that takes more than twice what small sizes foretold."""


@dataclass(frozen=True)
class Cost:
    """What the acts of a case cost at one size: seconds of CPU by act, and the most memory that the process had."""

    seconds: dict[str, float]
    mebibytes: float


@dataclass(frozen=True)
class Line:
    """`seconds = base + each * n`."""

    base: float
    each: float

    @classmethod
    def through(cls, points: list[tuple[int, float]]) -> Line:
        """The line with the least squares, and neither a negative base nor a negative slope."""
        count = len(points)
        mean_n, mean_s = sum(n for n, _ in points) / count, sum(s for _, s in points) / count
        spread = sum((n - mean_n) ** 2 for n, _ in points)
        each = max(0.0, sum((n - mean_n) * (s - mean_s) for n, s in points) / spread)
        return cls(max(0.0, mean_s - each * mean_n), each)

    def at(self, n: int) -> float:
        return self.base + self.each * n


def main(words: list[str]) -> int:
    if words[:1] == [ALONE]:
        return measure_here(words[1], int(words[2]))
    names = [word for word in words if not word.startswith("--")]
    chosen = [case for name, case in CASES.items() if not names or any(word in name for word in names)]
    rows = [row for case in chosen for row in judge(case)]
    print(HEAD + "\n".join(text for text, _ in rows))
    if "--write" in words:
        write([text for text, _ in rows])
    return 0 if all(holds for _, holds in rows) else 1


def judge(case: Case) -> list[tuple[str, bool]]:
    """A row for each act: what small sizes foretell of the large one, and what that really costs."""
    small = {n: measure(case, n) for n in (case.size // 50, case.size // 20, case.size // 10)}
    whole = measure(case, case.size)
    rows = []
    for act, bound in case.bounds.items():
        line = Line.through([(n, cost.seconds[act]) for n, cost in small.items()])
        predicted, seconds = line.at(case.size), whole.seconds[act]
        is_linear = seconds <= max(PREDICTION_TOLERANCE * predicted, 1.0)
        cells = (
            case.name,
            act,
            f"{case.size:,} {case.unit}",
            f"{line.each * 1e6:.2f} ms",
            f"{predicted:.2f} s",
            f"{seconds:.2f} s{'' if is_linear else ' (grows faster than its size)'}",
            f"{whole.mebibytes:,.0f} MiB",
            f"{bound:g} s",
        )
        rows.append((f"| {' | '.join(cells)} |", is_linear and seconds <= bound))
    return rows


def measure(case: Case, n: int) -> Cost:
    """One size in a process of its own."""
    print(f"… {case.name}, {n:,} {case.unit}", file=sys.stderr, flush=True)
    command = [sys.executable, __file__, ALONE, case.name, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return Cost(**json.loads(done.stdout))


def measure_here(name: str, n: int) -> int:
    """Prepare the case without a clock, then do its acts one after the other."""
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="floodmark-scale-") as folder:
        for act, do in CASES[name].acts(n, Path(folder)):
            begun = CASES[name].clock()
            do()
            seconds[act] = CASES[name].clock() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    os.write(1, json.dumps({"seconds": seconds, "mebibytes": peak}).encode())
    return 0


def write(rows: list[str]) -> None:
    """The table in the page; rows of cases that were not measured stay."""
    before, _, rest = README.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    cases = {row.split("|")[1] for row in rows}
    kept = [row for row in table.splitlines()[3:] if row and row.split("|")[1] not in cases]
    README.write_text(f"{before}{BEGIN}\n{HEAD}" + "\n".join([*kept, *rows]) + f"\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
