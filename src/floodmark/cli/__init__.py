"""The command line: `floodmark COMMAND`; a file for commands that belong together, loaded only when one is chosen."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name, and end the process with its exit code."""
    from floodmark.cli.app import run

    sys.exit(run(sys.argv[1:]))
