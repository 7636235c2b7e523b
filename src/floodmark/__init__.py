"""Incremental pipelines on Spark: read what lies above the mark, write it to every sink, and only then raise the mark.

The names below load on first use, so that `import floodmark` costs nothing and needs no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark import hwm as hwm
    from floodmark import medallion as medallion
    from floodmark import mill as mill
    from floodmark import rules as rules
    from floodmark import sinks as sinks
    from floodmark import sources as sources
    from floodmark import stores as stores
    from floodmark import streams as streams
    from floodmark import testing as testing
    from floodmark.jobs.job import Job as Job
    from floodmark.spark.session import spark_session as spark_session
    from floodmark.stores.record import Receipt as Receipt
    from floodmark.streams.records import heal as heal

__version__ = "0.1.0"

export_lazily(__name__, "__version__")
