"""What every mark is: an immutable value with a name, which rises and is never lowered by an update."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from floodmark.errors import ConfigError, MarkFieldUnknown, MarkInvalid, MarkKindMismatch, UnknownKind
from floodmark.hwm.parsing import utc_moment

if TYPE_CHECKING:
    import os
    from datetime import datetime

    from typing_extensions import Self


Kind = TypeVar("Kind", bound="type[HWM[Any]]")

OWNER = "@"
"""Stands in a digest before the identity of a record."""
_kinds: dict[str, type[HWM[Any]]] = {}
"""The kinds of marks that can be stored, by their wire type."""


def register(kind: Kind) -> Kind:
    """Make a kind known to every store by its wire type, the class attribute `kind`.

    >>> @register
    ... class SequenceHWM(fm.hwm.ColumnIntHWM):
    ...     kind = "sequence"
    >>> deserialize(SequenceHWM("orders", 7).serialize()).value
    7
    """
    name = getattr(kind, "kind", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{kind.__name__} has no wire type.", hint='add `kind: ClassVar[str] = "my_kind"` to it')
    taken = _kinds.get(name)
    if taken and (taken.__module__, taken.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ConfigError(f"mark type '{name}' is {taken.__qualname__} already.", hint="give yours another `kind`")
    _kinds[name] = kind
    return kind


def kind_of(name: str) -> type[HWM[Any]]:
    """The class that was registered for a wire type; raises UnknownKind.

    >>> kind_of("column_int")("orders", 7).value
    7
    """
    if name not in _kinds:
        raise UnknownKind("mark type", str(name), known=list(_kinds))
    return _kinds[name]


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

V = TypeVar("V")

NOT_GIVEN = object()
"""Tells a mark made without a value (it is empty) from one made with None (which the maps refuse)."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class HWM(ABC, Generic[V]):
    """How far something was read. A kind says what a value is, by `parse`, `dump`, `reaches` and `joined`.

    Every act returns a mark and leaves this one alone. `entity` is what was read (a table, a topic, a directory),
    `expression` by which of its columns. Two marks are equal if all but `modified_time` is.

    >>> mark = fm.hwm.ColumnIntHWM("orders", 10, expression="id")
    >>> mark.update(15).value, mark.update(7).value, mark.covers(9)
    (15, 10, True)
    """

    kind: ClassVar[str]
    entity_alias: ClassVar[str | None] = None
    empty: ClassVar[object] = None

    name: str
    value: V
    entity: str | None
    expression: str | None
    description: str
    modified_time: datetime

    def __init__(
        self,
        name: str,
        value: object = NOT_GIVEN,
        *,
        entity: str | os.PathLike[str] | None = None,
        expression: str | None = None,
        description: str = "",
        modified_time: datetime | str | None = None,
        **alias: str | os.PathLike[str] | None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise MarkInvalid(self.kind, name, reason="a mark needs a name")
        vars(self).update(
            name=name,
            entity=self._entity(entity, alias),
            expression=expression,
            description=description,
            modified_time=utc_moment(self.kind, modified_time),
        )
        vars(self).update(value=self.parse(self.empty if value is NOT_GIVEN else value))

    @abstractmethod
    def parse(self, value: object) -> V:
        """The value in its one true form, from what a user or `dump` gives; raises MarkInvalid for anything else."""

    @abstractmethod
    def dump(self) -> Json:
        """The value as JSON that `parse` takes back without loss."""

    @abstractmethod
    def reaches(self, value: V) -> bool:
        """Whether the value lies at or below this mark; an empty value lies below every mark."""

    @abstractmethod
    def joined(self, value: V) -> V:
        """The lowest value that lies at or above both; called only with a value that this mark does not reach."""

    def parse_entity(self, entity: object) -> str:
        """The entity in its one true form; raises MarkInvalid."""
        if not isinstance(entity, str):
            raise MarkInvalid(self.kind, entity, reason="an entity is named by text")
        return entity

    def show(self) -> Json:
        """The value for people: exact also where JSON is read with floats."""
        return self.dump()

    def covers(self, value: object) -> bool:
        """Whether the value lies at or below the mark, so that it was read already."""
        return self.reaches(self.parse(value))

    def update(self, value: object, *, now: datetime | None = None) -> Self:
        """Raise the mark; a value that it reaches already gives this very mark, with its `modified_time`."""
        parsed = self.parse(value)
        return self if self.reaches(parsed) else self._with(self.joined(parsed), now)

    def set_value(self, value: object, *, now: datetime | None = None) -> Self:
        """Put the mark exactly there, also lower: a person's decision, never a run's."""
        parsed = self.parse(value)
        return self if parsed == self.value else self._with(parsed, now)

    def reset(self, *, now: datetime | None = None) -> Self:
        """The mark with nothing read."""
        return self.set_value(self.empty, now=now)

    def copy(self, update: Mapping[str, Any] | None = None) -> Self:
        """A mark like this one, with some fields replaced."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return type(self)(**{**own, **(update or {})})

    def serialize(self) -> dict[str, Json]:
        """A dict that JSON keeps exactly, and that `deserialize` takes back."""
        return {
            "type": self.kind,
            "name": self.name,
            "value": self.dump(),
            "entity": self.entity,
            "expression": self.expression,
            "description": self.description,
            "modified_time": self.modified_time.isoformat(),
        }

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Self:
        """The mark that was serialised; raises MarkInvalid if it is of another kind than this class."""
        # A stored mark without a value is damaged: taken for an empty one, it would read everything again.
        if not isinstance(stored, Mapping) or not {"type", "name", "value"} <= stored.keys():
            raise MarkInvalid(cls.__name__, list(stored), reason="a stored mark has type, name and value")
        found = cls if stored["type"] == getattr(cls, "kind", None) else kind_of(stored["type"])
        if not issubclass(found, cls):
            raise MarkInvalid(cls.__name__, stored["type"], reason="the stored mark is of another type")
        return found(**{field: value for field, value in stored.items() if field != "type"})

    def __le__(self, other: HWM[V]) -> bool:
        return self._comparable(other).reaches(self.value)

    def __ge__(self, other: HWM[V]) -> bool:
        return self.reaches(self._comparable(other).value)

    def __lt__(self, other: HWM[V]) -> bool:
        return self <= other and not self >= other

    def __gt__(self, other: HWM[V]) -> bool:
        return self >= other and not self <= other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HWM) and type(self) is type(other) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        entity = f", entity={self.entity!r}" if self.entity else ""
        return f"{type(self).__name__}(name={self.name!r}, value={self.show()!r}{entity})"

    def _repr_html_(self) -> str:
        from floodmark.notebook import fact_table

        facts = {"value": self.show(), "entity": self.entity, "expression": self.expression}
        return fact_table(
            f"{type(self).__name__} {self.name}",
            {**facts, "description": self.description, "changed": self.modified_time},
        )

    def _identity(self) -> tuple[object, ...]:
        own = (getattr(self, field.name) for field in fields(self) if field.name != "modified_time")
        return (self.kind, *own)

    def _comparable(self, other: HWM[V]) -> HWM[V]:
        if type(self) is not type(other):
            raise MarkKindMismatch(self, other, reason="they are of different kinds")
        if (self.name, self.entity) != (other.name, other.entity):
            raise MarkKindMismatch(self, other, reason="they have another name or entity")
        return other

    def _with(self, value: V, now: datetime | None) -> Self:
        """This mark at a value that is known to be valid: `parse` is not run again."""
        mark = object.__new__(type(self))
        vars(mark).update({**vars(self), "value": value, "modified_time": utc_moment(self.kind, now)})
        return mark

    def _entity(self, entity: object, alias: Mapping[str, object]) -> str | None:
        for unknown in alias.keys() - {self.entity_alias}:
            known = [known.name for known in fields(self)]
            raise MarkFieldUnknown(self.kind, unknown, known=[*known, *filter(None, [self.entity_alias])])
        given = [one for one in (entity, *alias.values()) if one is not None]
        if len(given) > 1 and given[0] != given[1]:
            raise MarkInvalid(self.kind, given[1], reason=f"its entity is {given[0]!r} already")
        return self.parse_entity(given[0]) if given else None


def deserialize(stored: Mapping[str, Any]) -> HWM[Any]:
    """The mark that was serialised, of whatever kind its type says.

    >>> deserialize({"type": "column_int", "name": "id", "value": 7})
    ColumnIntHWM(name='id', value=7)
    """
    mark: HWM[Any] = HWM.deserialize(stored)
    return mark


@runtime_checkable
class Itemised(Protocol):
    """A mark whose value is a set of named items, so that a store can keep the added ones alone.

    >>> mark = fm.hwm.FileListHWM("files", ["/in/a.json"], directory="/in")
    >>> isinstance(mark, Itemised), isinstance(fm.hwm.ColumnIntHWM("orders", 7), Itemised)
    (True, False)
    """

    def items(self) -> Mapping[str, Json]:
        """Every item by its name; the mark is `with_items({})` and these."""

    def with_items(self, items: Mapping[str, Json]) -> HWM[Any]:
        """The same mark, also in its `modified_time`, with exactly these items; with none of them it is the head."""


@runtime_checkable
class Growing(Itemised, Protocol):
    """An itemised mark that can tell what it has beyond an older one without walking through all of both.

    >>> older = fm.hwm.FileListHWM("files", ["/in/a.json"], directory="/in")
    >>> newer = older.update(["/in/b.json"])
    >>> isinstance(newer, Growing), newer.count(), list(newer.items_since(older))
    (True, 2, ['/in/b.json'])
    """

    def count(self) -> int:
        """How many items it has."""

    def items_since(self, older: HWM[Any]) -> Mapping[str, Json] | None:
        """The items that the older mark has not, or has otherwise; None if it has some that this one has not."""


@dataclass(frozen=True)
class Span:
    """What one batch reads from one source, fixed before any row is read: above `after`, up to and with `upto`.

    `after` None reads from the beginning.

    `detail` is what the source needs to read exactly these rows again (a list of files, a pinned version).
    The mark after the batch is `mark.update(upto.value)`, so `upto` of an itemised kind names only what is new.

    >>> orders = fm.hwm.ColumnIntHWM("orders", 7)
    >>> span = Span(after=orders, upto=orders.update(9))
    >>> span.after.value, span.upto.value
    (7, 9)
    """

    after: HWM[Any] | None
    upto: HWM[Any]
    detail: Mapping[str, Json] = field(default_factory=dict)

    def serialize(self) -> dict[str, Json]:
        after = self.after.serialize() if self.after else None
        return {"after": after, "upto": self.upto.serialize(), "detail": dict(self.detail)}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Span:
        after = deserialize(stored["after"]) if stored["after"] else None
        return cls(after, deserialize(stored["upto"]), stored["detail"])


def digest(spans: Mapping[str, Span]) -> str:
    """A short text that two batches share only if they read the same rows.

    >>> first = Span(None, fm.hwm.ColumnIntHWM("orders", 7))
    >>> digest({"source": first}) == digest({"source": first})
    True
    """

    def without_time(span: Span) -> dict[str, Json]:
        stored: dict[str, Any] = span.serialize()
        for end in ("after", "upto"):
            stored[end] = stored[end] and {k: v for k, v in stored[end].items() if k != "modified_time"}
        return stored

    text = json.dumps({name: without_time(span) for name, span in spans.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def signed_digest(plain: str, owner: str | None) -> str:
    """The digest of a batch with the identity of the record that it is of, if it has one.

    >>> signed_digest("5d41402abc4b2a76", "a1b2")
    '5d41402abc4b2a76@a1b2'
    """
    return f"{plain}{OWNER}{owner}" if owner else plain


def owner_in(signed: str | None) -> str | None:
    """The identity in a digest; None, where it has none.

    >>> owner_in(signed_digest("5d41402abc4b2a76", "a1b2"))
    'a1b2'
    """
    return (signed or "").partition(OWNER)[2] or None


def is_same_batch(recorded: str | None, intended: str) -> bool:
    """Whether a digest that was recorded can be that of the batch: one without an identity is an earlier version's.

    >>> is_same_batch("5d41402abc4b2a76", signed_digest("5d41402abc4b2a76", "a1b2"))
    True
    """
    return recorded is None or recorded in (intended, intended.partition(OWNER)[0])


TEXT_SHOWN = 80


def mark_text(value: Json) -> str:
    """A mark's value for people, cut where it is long."""
    if value is None:
        return "none"
    count = files_read(value)
    if count is not None:
        text = _files_text(value, count)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= TEXT_SHOWN else f"{text[: TEXT_SHOWN - 3]}…"


def short_mark(value: Json) -> str:
    """A mark within a line: of a list of files only how many there are."""
    count = files_read(value)
    return mark_text(value) if count is None else f"{count:,} {'file' if count == 1 else 'files'}"


def _files_text(value: Json, count: int) -> str:
    """How many files, and their names, or that of the newest where they are many."""
    noun = f"{count:,} {'file' if count == 1 else 'files'}"
    if isinstance(value, dict):
        return f"{noun}, the newest {_file_name(value.get('newest'))}"
    return f"{noun}: {', '.join(map(_file_name, value))}" if isinstance(value, list) and value else noun


def _file_name(path: Json) -> str:
    return str(path).rstrip("/").rpartition("/")[2]


def files_read(value: Json) -> int | None:
    """How many files a mark is shown to have read; None if it is of something else."""
    if isinstance(value, dict) and isinstance(count := value.get("files"), int):
        return count
    is_files = isinstance(value, list) and all(isinstance(each, str) and "/" in each for each in value)
    return len(value) if is_files and isinstance(value, list) else None
