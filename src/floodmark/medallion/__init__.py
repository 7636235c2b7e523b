"""Bronze, silver, gold: date keys, tags, dimensions, facts that are rebuilt for touched dates only, upkeep of tables.

The tables with history themselves are sinks (`floodmark.sinks.Scd1`, `Scd2`), so that a project file can name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.medallion.dates import DATE_SK as DATE_SK
    from floodmark.medallion.dates import date_rows as date_rows
    from floodmark.medallion.dates import date_sk as date_sk
    from floodmark.medallion.dates import dates_for as dates_for
    from floodmark.medallion.dates import extend_dates as extend_dates
    from floodmark.medallion.dates import local_time as local_time
    from floodmark.medallion.dimensions import UNKNOWN as UNKNOWN
    from floodmark.medallion.dimensions import asof as asof
    from floodmark.medallion.dimensions import asof_key as asof_key
    from floodmark.medallion.dimensions import current_members as current_members
    from floodmark.medallion.dimensions import dimension as dimension
    from floodmark.medallion.dimensions import require_distinct as require_distinct
    from floodmark.medallion.dimensions import surrogate_key as surrogate_key
    from floodmark.medallion.dimensions import with_key as with_key
    from floodmark.medallion.dimensions import with_superseded as with_superseded
    from floodmark.medallion.dimensions import with_unknown as with_unknown
    from floodmark.medallion.facts import FactRows as FactRows
    from floodmark.medallion.facts import Lookup as Lookup
    from floodmark.medallion.facts import fact as fact
    from floodmark.medallion.layers import Layer as Layer
    from floodmark.medallion.silver import Processed as Processed
    from floodmark.medallion.silver import commit_processing_state as commit_processing_state
    from floodmark.medallion.silver import get_last_processed_timestamp as get_last_processed_timestamp
    from floodmark.medallion.silver import read_bronze_since_timestamp as read_bronze_since_timestamp
    from floodmark.medallion.silver import upto as upto
    from floodmark.medallion.tags import Tags as Tags
    from floodmark.medallion.tags import exploded as exploded
    from floodmark.medallion.upkeep import TableReport as TableReport
    from floodmark.medallion.upkeep import Upkeep as Upkeep
    from floodmark.medallion.upkeep import optimize as optimize
    from floodmark.medallion.upkeep import prune_events as prune_events
    from floodmark.medallion.upkeep import settle_conflicts as settle_conflicts
    from floodmark.medallion.views import ViewReport as ViewReport
    from floodmark.medallion.views import name_table as name_table
    from floodmark.medallion.views import name_tables as name_tables
    from floodmark.medallion.views import publish_views as publish_views

export_lazily(__name__)
