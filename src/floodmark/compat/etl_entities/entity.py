"""What marks and stores of this door share: models that also answer to the names of pydantic 1, and paths."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

import pydantic
from pydantic import ConfigDict, ValidationError, model_validator

if TYPE_CHECKING:
    from typing_extensions import Self

Fields: TypeAlias = "dict[str, Any]"


def stand_in(module: str, *paths: str) -> None:
    """Let a module be found under other paths below it: the original has a package, and a module for every class."""
    vars(sys.modules[module]).setdefault("__path__", [])
    sys.modules.update({f"{module}.{path}": sys.modules[module] for path in paths})


class InstanceFrozen(ValidationError, TypeError):
    """A field was assigned to. etl-entities 2 raises a TypeError, etl-entities 3 a ValidationError: this is both."""


class NotComparable(NotImplementedError):
    """Two marks of one kind whose other fields differ; the original raises a NotImplementedError."""


class WrongConfig(TypeError, ValueError):
    """A setting of another type. etl-entities 2 raises a ValueError, etl-entities 3 a TypeError: this is both."""


class BaseModel(pydantic.BaseModel):
    """Fields are validated and cannot be assigned to; they have a name and maybe an alias, and both are taken."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_fields(cls, given: object) -> object:
        if cls.model_config.get("extra") != "forbid" or not isinstance(given, Mapping):
            return given
        known = {name for field, of in cls.model_fields.items() for name in (field, of.alias)}
        for unknown in given.keys() - known:
            # the words of pydantic 1 and of pydantic 2: programs look for either
            raise ValueError(f"{unknown}: extra fields not permitted (Extra inputs are not permitted)")
        return given

    def __setattr__(self, name: str, value: object) -> None:
        if name in type(self).model_fields:
            details: Any = {"type": "frozen_instance", "loc": (name,), "input": value}
            raise InstanceFrozen.from_exception_data(type(self).__name__, [details])
        super().__setattr__(name, value)

    def copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # type: ignore[override]
        """Another object with the same fields, or with some replaced; they are not validated."""
        return self.model_copy(update=update, deep=deep)

    def json(self, **options: Any) -> str:  # noqa: ANN401  (pydantic's own options)
        """The fields as JSON text."""
        return self.model_dump_json(**options)

    @classmethod
    def parse_obj(cls, obj: object) -> Self:
        """The object of these fields; raises ValidationError."""
        return cls.model_validate(obj)

    def dict(self, **options: Any) -> Fields:  # noqa: ANN401  (pydantic's own options)
        """The fields by their names."""
        return self.model_dump(**options)


class GenericPath(PurePosixPath):
    """A path of text alone, without `..` and `~`: nothing is asked from a disk."""

    def __init__(self, *parts: str | os.PathLike[str]) -> None:
        # Since Python 3.12 a path takes its parts here, and before that in __new__.
        super().__init__(*(parts if sys.version_info >= (3, 12) else ()))
        if {"..", "~"} & set(self.parts):
            raise ValueError(f"{type(self).__name__} cannot contain '..' or '~'")

    @classmethod
    def parse(cls, path: object) -> Self:
        """The path, from text or another path; raises ValueError."""
        if not isinstance(path, (str, os.PathLike)):
            raise ValueError(f"{path!r} is not a path")  # noqa: TRY004  (what pydantic takes for a wrong value)
        return cls(path)


class AbsolutePath(GenericPath):
    """A path that starts with `/`."""

    def __init__(self, *parts: str | os.PathLike[str]) -> None:
        super().__init__(*parts)
        if not self.is_absolute():
            raise ValueError(f"{type(self).__name__} should start with '/'")


class RelativePath(GenericPath):
    """A path that does not start with `/`, and is not empty."""

    def __init__(self, *parts: str | os.PathLike[str]) -> None:
        super().__init__(*parts)
        if self.is_absolute() or not self.parts:
            raise ValueError(f"{type(self).__name__} cannot start with '/', nor be empty")


def parse_absolute_path(path: str | os.PathLike[str]) -> AbsolutePath:
    """The path, if it is absolute; raises ValueError."""
    return AbsolutePath(path)


sys.modules[f"{__package__}.instance"] = sys.modules[__name__]  # where etl-entities 2 has the paths
