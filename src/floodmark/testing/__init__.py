"""Doubles and laws for tests of your own: failure as data, and the rules every store has to keep."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.testing.laws import MarkStoreLaws
    from floodmark.testing.rows import CRASH, FAIL, InjectedFailure, RowsSource
    from floodmark.testing.sinks import ListSink
    from floodmark.testing.stores import FailingStore

__all__ = ["CRASH", "FAIL", "FailingStore", "InjectedFailure", "ListSink", "MarkStoreLaws", "RowsSource"]

HOMES = {
    "CRASH": "rows",
    "FAIL": "rows",
    "FailingStore": "stores",
    "InjectedFailure": "rows",
    "ListSink": "sinks",
    "MarkStoreLaws": "laws",
    "RowsSource": "rows",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
