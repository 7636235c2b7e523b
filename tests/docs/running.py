"""Running what a page shows, in a folder that holds the small input which the pages name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from floodmark.cli.invocation import LazySession
from tests.docs.pages import Block

LONG_AGO = 1_700_000_000
INCOMING = {
    "monday.jsonl": '{"id": 1, "amount": "19.90"}\n{"id": 2, "amount": "5.00"}\n',
    "tuesday.jsonl": '{"id": 3, "amount": "42.00"}\n{"id": 2, "amount": "6.00"}\n',
}


def write_input(folder: Path) -> None:
    """`incoming/`: two settled files, four records, three orders: one was corrected."""
    (folder / "incoming").mkdir()
    for place, (name, text) in enumerate(INCOMING.items()):
        (folder / "incoming" / name).write_text(text)
        os.utime(folder / "incoming" / name, (LONG_AGO, LONG_AGO + place))


class SharedSession(LazySession):
    """The session of the suite in the hands of the command line, which may not stop it."""

    def stop(self) -> None:
        """It is not ours to stop."""


def run_blocks(blocks: Sequence[Block], printed: Callable[[], str]) -> list[tuple[str, str]]:
    """Run a page's blocks in order, in one namespace; (expected, printed) of those that say what they print."""
    namespace: dict[str, object] = {"__name__": "page"}
    answers: list[tuple[str, str]] = []
    for block in (each for each in blocks if not each.not_run):
        code = run_block(block, namespace)
        said = printed()
        assert code == pytest.ExitCode.OK, f"{block}: {said}"
        answers += [(block.prints, said)] if block.prints is not None else []
    return answers


def run_block(block: Block, namespace: dict[str, object]) -> int:
    """A block that is a file is written, and run by pytest if it is a test; any other block is run here and now."""
    if block.file is None:
        # the empty lines put the page's own line numbers into a traceback; a page has no future but its own
        code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec", dont_inherit=True)
        exec(code, namespace)  # noqa: S102
        return pytest.ExitCode.OK
    Path(block.file).write_text(block.text)
    if not block.file.startswith("test_"):
        return pytest.ExitCode.OK
    return pytest.main([block.file, "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--import-mode=importlib"])
