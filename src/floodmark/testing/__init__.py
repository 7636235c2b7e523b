"""Doubles and laws for tests of your own: failure as data, and the rules every store has to keep."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.testing.doubles import CRASH, FAIL, FailingStore, InjectedFailure, ListSink, RowsSource
    from floodmark.testing.laws import MarkStoreLaws


__all__ = ["CRASH", "FAIL", "FailingStore", "InjectedFailure", "ListSink", "MarkStoreLaws", "RowsSource"]

HOMES = {
    "CRASH": "doubles",
    "FAIL": "doubles",
    "FailingStore": "doubles",
    "InjectedFailure": "doubles",
    "ListSink": "doubles",
    "MarkStoreLaws": "laws",
    "RowsSource": "doubles",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
