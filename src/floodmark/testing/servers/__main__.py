"""`floodmark servers [kafka] [postgres]` comes here: servers to try things with, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from floodmark.errors import FloodmarkError
from floodmark.testing.servers import kafka_broker, postgres_server

KNOWN = ("kafka", "postgres")


def main(names: list[str]) -> int:
    """Start the named servers (both, if none is named), say where they are, and wait."""
    if unknown := sorted(set(names) - set(KNOWN)):
        print(f"Error: no server '{unknown[0]}'.\nTry: one of: {', '.join(KNOWN)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="floodmark-servers-") as folder, ExitStack() as running:
            for name in names or KNOWN:
                print(f"starting {name} …", file=sys.stderr, flush=True)
                print(_start(name, Path(folder, name), running), flush=True)
            print("Ctrl-C stops them and removes their data.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("stopped")
    except FloodmarkError as error:
        print(f"Error: {error.message}\nTry: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


def _start(name: str, folder: Path, running: ExitStack) -> str:
    if name == "kafka":
        broker = running.enter_context(kafka_broker(folder))
        example = f"source: {{type: kafka, bootstrap: '{broker.bootstrap}', topic: …}}"
        return f"kafka     {broker.bootstrap}\n          {example}"
    server = running.enter_context(postgres_server(folder))
    return f"postgres  {server.url}\n          psql '{server.url}'"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
