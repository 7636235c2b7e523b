"""Doubles and laws for tests of your own: failure as data, and the rules every store has to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.testing.doubles import CRASH as CRASH
    from floodmark.testing.doubles import FAIL as FAIL
    from floodmark.testing.doubles import FailingStore as FailingStore
    from floodmark.testing.doubles import InjectedFailure as InjectedFailure
    from floodmark.testing.doubles import ListSink as ListSink
    from floodmark.testing.doubles import RowsSource as RowsSource
    from floodmark.testing.laws import MarkStoreLaws as MarkStoreLaws

export_lazily(__name__)
