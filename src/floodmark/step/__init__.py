"""The step and what it is made of; `run.Step.run` is the sentence that everything here serves.

Names load on first use: a mill's task on an executor needs the transform, and nothing of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.step.run import Step as Step
    from floodmark.step.transform import Function as Function
    from floodmark.step.transform import Identity as Identity
    from floodmark.step.transform import Sql as Sql
    from floodmark.step.transform import Transform as Transform
    from floodmark.step.work import RunRequest as RunRequest
    from floodmark.step.work import Work as Work

export_lazily(__name__)
