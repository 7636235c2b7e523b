"""What the campaign has proved is printed at its end, and kept in the docs where that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.proofs import prove, summarise

if TYPE_CHECKING:
    import pytest

__all__ = ["prove"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line for each fault that a test has passed."""
    terminalreporter.section("faults")
    summarise(config, terminalreporter.write_line)
