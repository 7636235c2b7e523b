"""Sources whose rows are not what the transform works on, but say what it has to make."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from floodmark.step.transform import Transform


@runtime_checkable
class Building(Protocol):
    """A source that puts the job's transform to work itself."""

    def building(self, transform: Transform) -> Transform:
        """The transform that makes the job's rows of what this source reads; asked once per run."""
