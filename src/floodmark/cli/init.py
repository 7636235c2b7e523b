"""`floodmark init | schema`: a project that runs at once, and the JSON Schema of its file for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from floodmark.cli.output import print_json, print_line
from floodmark.errors import ConfigError

init_app = typer.Typer(add_completion=False)

PROJECT = """\
# yaml-language-server: $schema=.floodmark/schema.json
# A Floodmark project. `floodmark lint` checks it, `floodmark plan` says what would happen, `floodmark run` does it.
# Relative paths are relative to this file; ${NAME} and ${NAME:default} come from the environment.

store: sqlite:///state/marks.db          # how far each job has read
namespace: default                       # several projects may share one store

spark:
  master: local[2]

jobs:
  - name: orders_to_lake
    source:
      type: files
      path: in/orders                    # put another file here, run again: only that file is read
      format: jsonl
      schema: "id long, customer string, amount decimal(10,2), ordered_at timestamp"
      settle: 0s                         # these files are complete; keep the default of 5s where others write
    transform:
      sql: select *, cast(amount * 100 as long) as cents from source
    sinks:                               # written in this order; each batch exactly once, through a kill at any instant
      - {name: lake, type: delta, path: lake/orders, mode: merge, key: [id], sequence: [ordered_at]}
    every: 5s                            # for `floodmark run --loop`
"""
FIRST_DAY = (
    '{"id": 1, "customer": "ada", "amount": "19.90", "ordered_at": "2026-01-01T09:00:00Z"}\n'
    '{"id": 2, "customer": "grace", "amount": "5.00", "ordered_at": "2026-01-01T10:30:00Z"}\n'
    '{"id": 3, "customer": "linus", "amount": "42.00", "ordered_at": "2026-01-01T11:15:00Z"}\n'
)
SECOND_DAY = (
    '{"id": 4, "customer": "ada", "amount": "7.25", "ordered_at": "2026-01-02T08:10:00Z"}\n'
    '{"id": 2, "customer": "grace", "amount": "6.00", "ordered_at": "2026-01-02T09:00:00Z"}\n'
)


@init_app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where; the current folder if left out.")] = Path(),
) -> None:
    """Write a project that runs at once with no server (files to Delta)."""
    files = contents()
    taken = [name for name in files if (folder / name).exists()]
    if taken:
        raise ConfigError(
            f"{folder / taken[0]} is already there; nothing was written.", hint="floodmark init OTHER_DIR"
        )
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        print_line(f"wrote {folder / name}")
    enter = "" if folder == Path() else f"cd {folder} && "
    print_line(f"Next: {enter}floodmark run")


def contents() -> dict[str, str]:
    """Every file of the project, by its path."""
    from floodmark.project.models import project_schema

    return {
        "floodmark.yaml": PROJECT,
        ".floodmark/schema.json": json.dumps(project_schema(), indent=2) + "\n",
        "in/orders/2026-01-01.jsonl": FIRST_DAY,
        "in/orders/2026-01-02.jsonl": SECOND_DAY,
        ".gitignore": "/state/\n/lake/\n",
    }


schema_app = typer.Typer(add_completion=False)


@schema_app.command()
def schema() -> None:
    """Print the JSON Schema of the project file."""
    from floodmark.project.models import project_schema

    print_json(project_schema())
