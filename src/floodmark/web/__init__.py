"""What a project looks like: a report in one file, and the same live in a browser. Nothing here starts a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.web.pages import Pages as Pages
    from floodmark.web.pages import application as application
    from floodmark.web.rendering import report_html as report_html
    from floodmark.web.snapshot import Snapshot as Snapshot
    from floodmark.web.snapshot import take_snapshot as take_snapshot

export_lazily(__name__)
