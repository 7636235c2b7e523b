"""Lineage of tables and columns: read from what jobs declare, without a JVM and without running them."""

from floodmark.lineage.datasets import Dataset, Influence, Origin, Relation
from floodmark.lineage.graph import (
    Hop,
    Lineage,
    Point,
    earlier_jobs,
    lineage_of,
    needed_jobs,
)

__all__ = [
    "Dataset",
    "Hop",
    "Influence",
    "Lineage",
    "Origin",
    "Point",
    "Relation",
    "earlier_jobs",
    "lineage_of",
    "needed_jobs",
]
