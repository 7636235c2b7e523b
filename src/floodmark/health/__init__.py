"""Health: freshness, row counts, quality, mark lag and pace of a project, judged without a JVM."""

from __future__ import annotations

from floodmark.health.checks import examine
from floodmark.health.report import Finding, JobWatch, Limits, Report, Status, TableWatch, Watch

__all__ = ["Finding", "JobWatch", "Limits", "Report", "Status", "TableWatch", "Watch", "examine"]
