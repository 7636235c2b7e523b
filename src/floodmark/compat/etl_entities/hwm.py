"""Marks by the names of etl-entities: changed in place by `set_value`, `update` and `reset`.

What a value may be is asked from the marks of `floodmark.hwm`.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from datetime import date, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
)

from floodmark import hwm as core
from floodmark.compat.etl_entities.entity import AbsolutePath, BaseModel, Fields, NotComparable, stand_in

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "HWM",
    "ColumnDateHWM",
    "ColumnDateTimeHWM",
    "ColumnHWM",
    "ColumnIntHWM",
    "FileHWM",
    "FileListHWM",
    "FileModifiedTimeHWM",
    "HWMTypeRegistry",
    "KeyValueHWM",
    "KeyValueIntHWM",
    "register_hwm_type",
]

K = TypeVar("K")
V = TypeVar("V")
MarkClass = TypeVar("MarkClass", bound="type[HWM[Any]]")


class HWMTypeRegistry:
    """Which class a type name of stored marks stands for."""

    _classes: ClassVar[dict[str, type[HWM[Any]]]] = {}
    _names: ClassVar[dict[type[HWM[Any]], str]] = {}

    @classmethod
    def get(cls, type_name: str) -> type[HWM[Any]]:
        """The class of that name; raises KeyError."""
        if type_name not in cls._classes:
            raise KeyError(f"Unknown HWM type {type_name!r}")
        return cls._classes[type_name]

    @classmethod
    def get_key(cls, klass: type[HWM[Any]]) -> str:
        """The name of that very class, not of one above it; raises KeyError."""
        if klass not in cls._names:
            raise KeyError(f"You should register {klass.__qualname__!r} class using @register_hwm_type decorator")
        return cls._names[klass]

    @classmethod
    def add(cls, type_name: str, klass: type[HWM[Any]]) -> None:
        """Let the name stand for the class from now on."""
        cls._classes[type_name] = klass
        cls._names[klass] = type_name

    @classmethod
    def parse(cls, inp: Mapping[str, Any]) -> HWM[Any]:
        """The mark that was serialised, of whatever class its type says."""
        return cls.get(inp["type"]).deserialize(inp)


def register_hwm_type(type_name: str) -> Callable[[MarkClass], MarkClass]:
    """Make a class of marks known by a name."""

    def registered(klass: MarkClass) -> MarkClass:
        HWMTypeRegistry.add(type_name, klass)
        return klass

    return registered


class HWM(BaseModel, Generic[V]):  # noqa: PLW1641  (pydantic makes the hash of a frozen model)
    """How far something was read. Its fields cannot be assigned to, but `set_value` changes the mark in place."""

    model_config = ConfigDict(extra="forbid")

    name: str
    description: str = ""
    entity: Any = None
    value: V  # after entity: a value may be judged by what it belongs to
    expression: Any = None
    modified_time: datetime = Field(default_factory=datetime.now)

    @abstractmethod
    def update(self, value: Any) -> Self:  # noqa: ANN401  (what a kind takes)
        """Raise the mark in place, never lower it."""

    @abstractmethod
    def reset(self) -> Self:
        """Take the mark back to nothing read, in place."""

    def set_value(self, value: Any) -> Self:  # noqa: ANN401  (what a kind takes)
        """Put the mark there, in place; raises ValidationError, and then it is as it was."""
        valid = self._check_new_value(value)
        if valid != self.value:
            object.__setattr__(self, "value", valid)
            object.__setattr__(self, "modified_time", datetime.now())  # noqa: DTZ005  (naive, as in the original)
        return self

    def serialize(self) -> Fields:
        """The mark as a dict for JSON, with its type."""
        return {**self.model_dump(mode="json"), "type": HWMTypeRegistry.get_key(type(self))}

    @classmethod
    def deserialize(cls, inp: Mapping[str, Any]) -> Self:
        """The mark that was serialised; raises ValueError if its type is another than this class's."""
        fields = dict(deepcopy(inp))
        type_name = fields.pop("type", None)
        if type_name and not issubclass(cls, HWMTypeRegistry.get(type_name)):
            raise ValueError(f"Type {type_name!r} does not match class {cls.__qualname__!r}")
        return cls.model_validate(fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self._fields_without("modified_time") == other._fields_without("modified_time")

    def _fields_without(self, *names: str) -> Fields:
        return {name: value for name, value in vars(self).items() if name not in names}

    def _check_new_value(self, value: object) -> Any:  # noqa: ANN401  (the value of the kind)
        return type(self).model_validate({**vars(self), "value": value}).value


class ColumnHWM(HWM[V | None], Generic[V]):
    """A mark on a column; `entity`, also spelled `source`, is its table."""

    entity: str | None = Field(default=None, alias="source")
    value: V | None = None

    def update(self, value: Any) -> Self:  # noqa: ANN401  (of the column's type)
        if self.value is None or self.value < value:
            return self.set_value(value)
        return self

    def reset(self) -> Self:
        return self.set_value(None)

    def __add__(self, value: Any) -> Self:  # noqa: ANN401  (whatever can be added to the value)
        return self._moved_to(self.value + value)

    def __sub__(self, value: Any) -> Self:  # noqa: ANN401  (whatever can be taken from the value)
        return self._moved_to(self.value - value)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        if self._fields_without("value", "modified_time") != other._fields_without("value", "modified_time"):
            raise NotComparable("Cannot compare ColumnHWM with different entity or expression")
        return bool(self.value < other.value)  # type: ignore[operator]  # no value: a TypeError, as in the original

    def _moved_to(self, value: object) -> Self:
        return self if value == self.value else self.model_copy().set_value(value)


@register_hwm_type("column_int")
class ColumnIntHWM(ColumnHWM[int]):
    """A mark on a column of whole numbers."""

    @field_validator("value", mode="before")
    @classmethod
    def _whole_number(cls, value: object) -> int | None:
        return core.ColumnIntHWM("value").parse(value)


@register_hwm_type("column_date")
class ColumnDateHWM(ColumnHWM[date]):
    """A mark on a column of days."""

    @field_validator("value", mode="before")
    @classmethod
    def _day(cls, value: object) -> date | None:
        return core.ColumnDateHWM("value").parse(value)


@register_hwm_type("column_datetime")
class ColumnDateTimeHWM(ColumnHWM[datetime]):
    """A mark on a column of timestamps; one without a zone stays so."""

    @field_validator("value", mode="before")
    @classmethod
    def _timestamp(cls, value: object) -> datetime | None:
        return core.ColumnDateTimeHWM("value").parse(value)


FrozenMapping = Annotated[Mapping[K, V], AfterValidator(core.FrozenMap), PlainSerializer(dict)]


class KeyValueHWM(HWM[Mapping[Any, Any]], Generic[K, V]):
    """A value for each key; `entity`, also spelled `topic`, is what they are the keys of."""

    entity: str | None = Field(default=None, alias="topic")
    value: FrozenMapping[K, V] = Field(default_factory=core.FrozenMap)

    def update(self, new_data: Mapping[K, V]) -> Self:
        """Put these values in place of those of the same keys; a key that is not named stays."""
        return self.set_value({**self.value, **new_data})

    def reset(self) -> Self:
        return self.set_value({})


@register_hwm_type("key_value_int")
class KeyValueIntHWM(KeyValueHWM[int, int]):
    """The next offset of each partition. The higher offset wins."""

    @field_validator("value", mode="before")
    @classmethod
    def _offsets(cls, value: object) -> Mapping[int, int]:
        if isinstance(value, str):  # the core reads the JSON of a map
            raise ValueError("offsets are a mapping from partition to offset, not a text")  # noqa: TRY004 (pydantic's)
        return core.KeyValueIntHWM("value").parse(value)

    def update(self, new_data: Mapping[int, int]) -> Self:
        """Raise the offsets of these partitions; a lower one is ignored, and a partition that is not named stays."""
        return self.set_value(core.KeyValueIntHWM(self.name, self.value).update(self._offsets(new_data)).value)

    def serialize(self) -> Fields:
        # partitions stay numbers, where JSON's own keys would be text
        return {**super().serialize(), "value": dict(self.value)}


FilePath = Annotated[AbsolutePath, BeforeValidator(AbsolutePath.parse), PlainSerializer(os.fspath, when_used="json")]


class FileHWM(HWM[V], Generic[V]):
    """A mark on files; `entity`, also spelled `directory`, is where they are."""

    entity: FilePath | None = Field(default=None, alias="directory")

    @abstractmethod
    def covers(self, value: Any) -> bool:  # noqa: ANN401  (what a kind takes)
        """Whether this was read already."""


@register_hwm_type("file_list")
class FileListHWM(FileHWM[frozenset[FilePath]]):
    """The files that were read, by their paths; a file that changes later is not seen again."""

    value: frozenset[FilePath] = Field(default_factory=frozenset)

    @field_validator("value", mode="before")
    @classmethod
    def _paths_in_directory(cls, value: object, info: ValidationInfo) -> frozenset[AbsolutePath]:
        return _paths(value, info.data.get("entity"))

    def covers(self, value: str | os.PathLike[str]) -> bool:
        return value in self

    def update(self, value: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Self:
        """Add a path or several, in place."""
        return self.set_value(self.value | _paths(value, self.entity))

    def reset(self) -> Self:
        return self.set_value(frozenset())

    def __add__(self, value: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Self:
        return self._moved_to(self.value | _paths(value, self.entity))

    def __sub__(self, value: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Self:
        return self._moved_to(self.value - _paths(value, self.entity))

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return PurePosixPath(item) in self.value
        return item in self.value

    def _moved_to(self, value: frozenset[AbsolutePath]) -> Self:
        return self if value == self.value else self.model_copy().set_value(value)


def _paths(value: object, directory: AbsolutePath | None) -> frozenset[AbsolutePath]:
    """One path or several, all of them under the directory; raises ValueError."""
    given = [value] if isinstance(value, (str, os.PathLike)) else value
    if not isinstance(given, Iterable):
        raise ValueError(f"{value!r} is neither a path nor several")  # noqa: TRY004  (for pydantic)
    paths = frozenset(path if isinstance(path, AbsolutePath) else AbsolutePath.parse(path) for path in given)
    for path in paths:
        if directory and not path.is_relative_to(directory):
            raise ValueError(f"Item {path} is not within directory {directory}")
    return paths


@runtime_checkable
class StatWithMtime(Protocol):
    """What a file system tells of a file."""

    @property
    def st_mtime(self) -> float | None: ...


@runtime_checkable
class PathWithStats(Protocol):
    """A path on some file system, which can be asked about it."""

    def is_file(self) -> bool: ...
    def exists(self) -> bool: ...
    def stat(self) -> StatWithMtime: ...


@register_hwm_type("file_modification_time")
class FileModifiedTimeHWM(FileHWM[datetime | None]):
    """The modification time up to which files were read; one without a zone is of this machine's."""

    value: datetime | None = None

    @field_validator("value")
    @classmethod
    def _with_zone(cls, value: datetime | None) -> datetime | None:
        return value.astimezone() if value and value.tzinfo is None else value

    def covers(self, value: datetime | float | PathWithStats) -> bool:
        moment = self._check_new_value(_modified(value))
        return self.value is not None and moment is not None and self.value >= moment

    def update(self, value: datetime | float | PathWithStats | Iterable[PathWithStats] | None) -> Self:
        """Raise the mark, in place, to a time or to that of the newest of these files."""
        moment = self._check_new_value(_modified(value))
        return self.set_value(moment) if moment and (self.value is None or self.value < moment) else self

    def reset(self) -> Self:
        return self.set_value(None)


def _modified(value: object) -> object:
    """The modification time of a file, or the latest of several; whatever else is given."""
    if isinstance(value, PathWithStats):
        return _seconds(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return max(filter(None, map(_seconds, value)), default=None)
    return value


def _seconds(path: PathWithStats) -> float | None:
    return path.stat().st_mtime if path.exists() and path.is_file() else None


stand_in(
    __name__,
    *("hwm", "hwm_type_registry", "column", "column.column_hwm", "column.date_hwm", "column.datetime_hwm"),
    *("column.int_hwm", "key_value", "key_value.key_value_hwm", "key_value.key_value_int_hwm"),
    *("file", "file.file_hwm", "file.file_list_hwm", "file.file_mtime_hwm", "file.absolute_path"),
)
