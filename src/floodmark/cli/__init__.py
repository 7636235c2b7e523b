"""The command line: `floodmark COMMAND`; a file for commands that belong together, loaded only when one is chosen."""

from __future__ import annotations

import os
import sys

INTERRUPTED, TERMINATED = 130, 143


def main() -> None:
    """Run the command that the arguments name, and end the process with its exit code."""
    os.environ.setdefault("RUST_LOG", "off")  # native readers write to stderr what they raise as well
    try:
        import signal

        from floodmark.patience import interrupted_by

        with interrupted_by(signal.SIGTERM, signal.SIGINT):
            from floodmark.cli.app import run
        code = run(sys.argv[1:])
    except KeyboardInterrupt as error:  # while a module was loaded: nothing can have been begun
        sys.stderr.write("Stopped: nothing was begun.\n")
        code = getattr(error, "exit_code", INTERRUPTED)
    if code in (INTERRUPTED, TERMINATED):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # at once: the JVM ends with its parent, and nobody waits for what it was doing
    sys.exit(code)
