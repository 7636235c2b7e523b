"""Workflows: the tasks of a Databricks-Jobs file, run here in their order, side by side where they may."""

from __future__ import annotations

from floodmark.jobs.workflow.code import Library
from floodmark.jobs.workflow.document import Workflow, read_workflow
from floodmark.jobs.workflow.running import TaskEnd, WorkflowRun
from floodmark.jobs.workflow.surroundings import Surroundings

__all__ = ["Library", "Surroundings", "TaskEnd", "Workflow", "WorkflowRun", "read_workflow"]
