"""Workflows: the tasks of a Databricks-Jobs file, run here in their order, side by side where they may.

Loaded when asked for: what shows how the last run ended needs `memory` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.jobs.workflow.code import Library as Library
    from floodmark.jobs.workflow.document import Workflow as Workflow
    from floodmark.jobs.workflow.document import read_workflow as read_workflow
    from floodmark.jobs.workflow.running import TaskEnd as TaskEnd
    from floodmark.jobs.workflow.running import WorkflowRun as WorkflowRun
    from floodmark.jobs.workflow.surroundings import Surroundings as Surroundings

export_lazily(__name__)
