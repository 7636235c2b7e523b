"""`floodmark java | servers`: what a machine needs beside this package, for users without a checkout."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from floodmark.cli.output import print_line

java_app = typer.Typer(add_completion=False)


@java_app.command()
def java(
    install: Annotated[
        bool, typer.Option("--install", help="Fetch a JDK into the cache folder, if no Java 17 or 21 is there.")
    ] = False,
) -> None:
    """Say which Java is used; nothing outside the cache folder is changed."""
    from floodmark.errors import JavaMissing
    from floodmark.spark.java import find_java
    from floodmark.spark.java import install as fetch_java

    try:
        print_line(str(find_java()))
    except JavaMissing:
        if not install:
            raise
        print_line("fetching a JDK …")
        print_line(str(fetch_java()))


servers_app = typer.Typer(add_completion=False)


@servers_app.command()
def servers(
    names: Annotated[list[str] | None, typer.Argument(metavar="kafka|postgres", help="Both, if left out.")] = None,
) -> None:
    """Start servers on this machine, say where they are, and wait; Ctrl-C stops them and removes their data."""
    # In place of this process: whoever stops it stops them. What is for tests is not imported by the product.
    os.execv(sys.executable, [sys.executable, "-m", "floodmark.testing.servers", *(names or ())])  # noqa: S606
