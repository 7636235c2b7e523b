"""A job with rules, to be killed while it puts rows aside. Run it as a program: one run of the job in FOLDER.

python judged.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import floodmark as fm
from tests.crash.shop import SCHEMA, SETTINGS, open_store


def judged(home: Path) -> fm.Job:
    """Every tenth row is put aside, every seventh of the others is dropped."""
    return fm.Job(
        name="judged",
        source=fm.sources.Files(str(home / "in"), format="jsonl", schema=SCHEMA, settle=0),
        sinks=[fm.sinks.Delta(str(home / "lake"), name="lake")],
        rules=[
            fm.rules.check("id % 10 <> 0", action="quarantine", name="tenth"),
            fm.rules.check("id % 7 <> 0", action="drop", name="seventh"),
        ],
    )


def main() -> None:
    home = Path(sys.argv[1])
    judged(home).run(fm.spark_session(SETTINGS), open_store(home))


if __name__ == "__main__":
    main()
