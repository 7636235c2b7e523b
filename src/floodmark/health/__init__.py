"""Health: freshness, row counts, quality, mark lag and pace of a project, judged without a JVM."""

from __future__ import annotations

from floodmark.health.examining import examine
from floodmark.health.findings import Finding, Report, Status
from floodmark.health.watch import JobWatch, Limits, TableWatch, Watch

__all__ = ["Finding", "JobWatch", "Limits", "Report", "Status", "TableWatch", "Watch", "examine"]
