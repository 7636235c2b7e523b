"""Workflows: the tasks of a Databricks-Jobs file, run here in their order, side by side where they may."""

from __future__ import annotations

from floodmark.jobs.workflow.document import Workflow, read_workflow
from floodmark.jobs.workflow.running import WorkflowRun

__all__ = ["Workflow", "WorkflowRun", "read_workflow"]
