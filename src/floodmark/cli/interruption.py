"""Ctrl-C and SIGTERM: what a loop or a run says when it is asked to stop, and what every command says when it is."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from floodmark.cli import INTERRUPTED
from floodmark.patience import Interrupted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from floodmark.cli.invocation import Invocation


STOPPING = "Stopping: what is under way is finished first; a second signal stops at once, and the next run finishes it."


class CommandInterrupted(Exception):
    """A signal ended a command."""

    def __init__(self, interruption: KeyboardInterrupt) -> None:
        super().__init__(str(interruption))
        self.interruption = interruption


def explain_interruption(error: KeyboardInterrupt, invocation: Invocation) -> int:
    """Say in one line what is open, and give the exit code; from here on a further signal ends the process."""
    code = error.exit_code if isinstance(error, Interrupted) else INTERRUPTED
    _end_on_signals(code)
    invocation.abandon_session()
    sys.stderr.write(f"Stopped: {what_is_open(invocation)}\n")
    return code


def what_is_open(invocation: Invocation) -> str:
    """The batches that jobs of this call have begun and not finished."""
    found = _open_batches(invocation)
    if found is None:
        return "what is open could not be read; the next run finishes it."
    if not found:
        return "no batch is open."
    verb = "are" if len(found) > 1 else "is"
    return f"{' and '.join(found)} {verb} open, and the next run finishes {'them' if len(found) > 1 else 'it'}."


def _open_batches(invocation: Invocation) -> Sequence[str] | None:
    if not invocation.job_names:
        return ()  # no job was built, so none was run
    with suppress(Exception):
        store = invocation.store()
        records = [(name, store.read(name)) for name in invocation.job_names]
        return [f"batch {each.intent.number} of job '{name}'" for name, each in records if each and each.intent]
    return None


def silence_py4j() -> None:
    """Py4J writes a traceback for a call that a signal interrupted, by the root logger; what it means is said here."""
    logging.getLogger().addFilter(_is_not_about_a_signal)


def _is_not_about_a_signal(record: logging.LogRecord) -> bool:
    return str(record.msg) not in ("KeyboardInterrupt while sending command.", "Exception while sending command.")


def _end_on_signals(code: int) -> None:
    """Cleaning up takes a moment; who does not want to wait for it need not."""

    def end(_number: int, _frame: FrameType | None) -> None:
        os._exit(code)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
