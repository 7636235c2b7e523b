"""Where rows come from. Each source is imported only when it is asked for, so that the command line starts fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.sources.delta import Delta as Delta
    from floodmark.sources.files import Files as Files
    from floodmark.sources.kafka import Kafka as Kafka
    from floodmark.sources.tables.catalog import Table as Table
    from floodmark.sources.tables.cursor import Cursor as Cursor
    from floodmark.sources.tables.jdbc import Jdbc as Jdbc
    from floodmark.sources.tables.postgres import Postgres as Postgres
    from floodmark.sources.tables.sqlite import Sqlite as Sqlite

export_lazily(__name__)
