"""The step and what it is made of; `run.Step.run` is the sentence that everything here serves."""

from floodmark.step.run import Step
from floodmark.step.transform import Function, Identity, Sql, Transform
from floodmark.step.work import RunRequest, Work

__all__ = ["Function", "Identity", "RunRequest", "Sql", "Step", "Transform", "Work"]
