"""Jobs, and the projects that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.jobs.job import Job, Retries
    from floodmark.jobs.planning import Plan


__all__ = ["Job", "Plan", "Retries"]


def __getattr__(name: str) -> object:
    """Loaded when asked for: the command line answers most questions without them."""
    if name in ("Job", "Retries"):
        from floodmark.jobs import job

        return getattr(job, name)
    if name == "Plan":
        from floodmark.jobs.planning import Plan

        return Plan
    raise AttributeError(name)
