"""What every error has: a message, a next step, an exit code."""

from __future__ import annotations


class FloodmarkError(Exception):
    """An error with a next step; `exit_code` is what the command line returns for it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} Try: {self.hint}" if self.hint else self.message
