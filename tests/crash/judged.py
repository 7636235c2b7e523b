"""A job with rules, to be killed while it puts rows aside, or replays them. Run it as a program on the job in FOLDER.

python judged.py FOLDER [replay]
"""

from __future__ import annotations

import sys
from pathlib import Path

import floodmark as fm
from floodmark.jobs.quarantine import Selection, replay
from tests.crash.shop import SCHEMA, SETTINGS, open_store

REPAIR = {"id": "id + 1000"}
"""Of every tenth id, what no rule minds any more, unless the seventh does."""


def judged(home: Path) -> fm.Job:
    """Every tenth row is put aside, every seventh of the others is dropped."""
    return fm.Job(
        name="judged",
        source=fm.sources.Files(str(home / "in"), format="jsonl", schema=SCHEMA, settle=0),
        sinks=[fm.sinks.Delta(str(home / "lake"), name="lake")],
        rules=[
            fm.rules.check("id % 10 <> 0 or id >= 1000", action="quarantine", name="tenth"),
            fm.rules.check("id % 7 <> 0", action="drop", name="seventh"),
        ],
    )


def main() -> None:
    home, act = Path(sys.argv[1]), sys.argv[2:]
    session = lambda: fm.spark_session(SETTINGS)  # noqa: E731 (started when it is needed)
    if act:
        replay(judged(home), Selection(), REPAIR, session, open_store(home))
    else:
        judged(home).run(session, open_store(home))


if __name__ == "__main__":
    main()
