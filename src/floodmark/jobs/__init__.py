"""Jobs, their workflows, and what repairs them. Loaded when asked for: most commands answer without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import lazy

if TYPE_CHECKING:
    from floodmark.jobs.job import Job as Job
    from floodmark.jobs.job import Plan as Plan
    from floodmark.jobs.job import Retries as Retries

lazy(__name__)
