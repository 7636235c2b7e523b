"""`floodmark import-config`: a configuration of Redpanda Connect becomes a project file, with a report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, DryRun, print_json, print_line
from floodmark.errors import ConfigError

app = typer.Typer(add_completion=False)


@app.command()
def import_config(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="PIPELINE", help="The file that `rpk connect run` runs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The project file to write.")] = Path("floodmark.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Write over a project file that is there.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Write a project that does what the configuration does, and a line for each thing that is not the same."""
    from floodmark.project.connect import translate

    invocation: Invocation = ctx.obj
    translation = translate(file)
    if not dry_run:
        if output.exists() and not force:
            raise ConfigError(f"{output} is already there; nothing was written.", hint="-o OTHER.yaml, or --force")
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(translation.text(), encoding="utf-8")
    notes = [{name: invocation.scrub(text) for name, text in asdict(note).items()} for note in translation.notes]
    if as_json:
        print_json({"project": None if dry_run else str(output), "notes": notes})
        return
    for note in notes:
        print_line(f"{note['where']}: {note['message']}")
    if dry_run:
        print_line(invocation.scrub(translation.text()))
        return
    print_line(f"wrote {output}: {len(notes)} things are not the same, each with its line above and in the file")
    print_line(f"Next: floodmark --project {output} lint, then floodmark --project {output} run --loop")
