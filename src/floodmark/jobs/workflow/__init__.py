"""Workflows: the tasks of a Databricks-Jobs file, run here in their order, side by side where they may."""

from __future__ import annotations

from floodmark.jobs.workflow.code import Library, Surroundings
from floodmark.jobs.workflow.document import Workflow, read_workflow
from floodmark.jobs.workflow.running import Ended, WorkflowRun

__all__ = ["Ended", "Library", "Surroundings", "Workflow", "WorkflowRun", "read_workflow"]
