"""Jobs, their workflows, and what repairs them. Loaded when asked for: most commands answer without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.jobs.dead_letters import replay_letters as replay_letters
    from floodmark.jobs.job import Job as Job
    from floodmark.jobs.job import Plan as Plan
    from floodmark.jobs.job import Retries as Retries
    from floodmark.jobs.quarantine import Selection as Selection
    from floodmark.jobs.quarantine import replay as replay
    from floodmark.jobs.table_readers import fills as fills
    from floodmark.jobs.table_readers import reads as reads

export_lazily(__name__)
