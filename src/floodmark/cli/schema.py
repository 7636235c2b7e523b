"""`floodmark schema`: the JSON Schema of the project file, for editors."""

from __future__ import annotations

import typer

from floodmark.cli.output import print_json

app = typer.Typer(add_completion=False)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the project file."""
    from floodmark.project.models import project_schema

    print_json(project_schema())
