"""How a failure is told: `Error: …` and `Try: …` on stderr, and an exit code; the traceback only at debug."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

import typer

from floodmark.errors import FloodmarkError

if TYPE_CHECKING:
    from floodmark.cli.invocation import Invocation

UsageError = typer.BadParameter.__base__ or typer.BadParameter  # typer gives it no public name of its own
INTERRUPTED = 130
USAGE = 2


def explained(error: BaseException, invocation: Invocation) -> int:
    """Tell what happened and what to do; gives the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, typer.Abort):
        tell("stopped, nothing was changed.", "answer y, or give --yes", invocation)
        return 1
    if isinstance(error, UsageError):
        return _usage(error, invocation)
    message, hint = message_and_hint(error)
    tell(message, hint, invocation)
    if invocation.logs.level == "debug":
        sys.stderr.write(invocation.scrub("".join(traceback.format_exception(error))))
    return error.exit_code if isinstance(error, FloodmarkError) else 1


def message_and_hint(error: BaseException) -> tuple[str, str]:
    """What happened, in one line, and the next step."""
    if isinstance(error, FloodmarkError):
        return " ".join(error.message.split()), " ".join(error.hint.split())
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {said[0]}".rstrip(": "), "run again with --log-level debug"


def tell(message: str, hint: str, invocation: Invocation) -> None:
    """The two lines."""
    sys.stderr.write(invocation.scrub(f"Error: {message}\nTry: {hint}\n"))


def _usage(error: BaseException, invocation: Invocation) -> int:
    """Usage errors come from typer; one without arguments carries the help text itself."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(str(error.format_message()) + "\n" if str(error) else "")  # type: ignore[attr-defined]
        return 0
    path = context.command_path if context else "floodmark"
    tell(str(error.format_message()), f"{path} --help", invocation)  # type: ignore[attr-defined]
    return USAGE
