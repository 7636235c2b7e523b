"""Many elements of a class read at once, field by field: what happens per element happens in C."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Any, Literal, NoReturn, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from floodmark.errors import ConfigError
from floodmark.mill.codec.reading import Read, Unfit, reader_for, unknown_type, wrong
from floodmark.mill.codec.types import hints_of

# Writers of values: the way back, from a field's value to what JSON can say.
Write: TypeAlias = "Callable[[Any], Any]"
Nested: TypeAlias = "Callable[[type], Write]"
PLAIN = (int, float, str, bool, type(None))


def writer_for(hint: object, nested: Nested) -> Write | None:
    """The writer of a type hint; None where the value goes out as it is. Raises ConfigError for an unknown type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in PLAIN or origin is Literal:
        return None
    if hint in (Any, object):
        return lambda value: write_any(value, nested)
    if origin in (Union, types.UnionType):
        return _union(args, nested)
    if origin is not None:
        return _container(origin, args, hint, nested)
    if isinstance(hint, type):
        return _class(hint, nested)
    raise unknown_type(hint)


def write_any(value: object, nested: Nested) -> object:
    """A value whose type nobody promised, by the type that it has."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, Mapping):
        return {write_key(key): write_any(one, nested) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [write_any(one, nested) for one in value]
    written = _class(type(value), nested)
    return written(value) if written else value


def write_key(key: object) -> str:
    """Keys of a JSON object are text."""
    return key if type(key) is str else str(key.value if isinstance(key, Enum) else key)


def _class(hint: type, nested: Nested) -> Write | None:
    if is_dataclass(hint):
        return _or_none(nested(hint))
    if issubclass(hint, Enum):
        return _or_none(lambda value: value.value)
    if issubclass(hint, date | datetime):
        return _or_none(lambda value: value.isoformat())
    if issubclass(hint, Decimal | UUID):
        return _or_none(str)
    if hint in (list, tuple, set, frozenset, dict):
        return lambda value: write_any(value, nested)
    raise unknown_type(hint)


def _or_none(write: Write) -> Write:
    """A field may hold None although its type does not say so; JSON has a word for it."""
    return lambda value: None if value is None else write(value)


def _union(args: tuple[Any, ...], nested: Nested) -> Write | None:
    writers = [writer_for(arg, nested) for arg in args if arg is not type(None)]
    if len(writers) == 1:
        return writers[0]
    return (lambda value: write_any(value, nested)) if any(writers) else None


def _container(origin: type, args: tuple[Any, ...], hint: object, nested: Nested) -> Write | None:
    if origin in (dict, Mapping):
        write = writer_for(args[1], nested)
        return _or_none(lambda value: {write_key(k): write(v) if write else v for k, v in value.items()})
    if origin is tuple and args[-1] is not Ellipsis:
        return lambda value: write_any(value, nested)
    if origin in (list, tuple, set, frozenset, Sequence):
        write_one = writer_for(args[0], nested)
        return _or_none(lambda value: [write_one(one) for one in value] if write_one else list(value))
    raise unknown_type(hint)


# Closures that read and write elements of a class, made once, so that nothing is looked up per element.
@dataclass(frozen=True)
class FieldPlan:
    """How one field is read: at once if its value is exactly of the type `plain`, by `read` if not."""

    name: str
    plain: type | None
    read: Read
    fallback: Callable[[], Any] | None


def class_reader(cls: type, *, as_dict: bool = False) -> Read:
    """A function from a dict to an element of the class, or to a dict of its checked values."""
    made: dict[type, Read] = {}

    def nested(inner: type) -> Read:
        """Looked up when it is called, so that a class may hold itself."""
        if inner not in made:
            made[inner] = _unmade
            made[inner] = _class_reader(inner, nested, as_dict=as_dict)

        def read(raw: object) -> object:
            return made[inner](raw)

        return read

    nested(cls)
    return made[cls]


def _unmade(value: object) -> NoReturn:
    raise LookupError("called while it was being made")


def _class_reader(cls: type, nested: Callable[[type], Read], *, as_dict: bool) -> Read:
    plans = plans_of(cls, nested)
    make: Callable[..., Any] = dict if as_dict else cls

    def read(raw: object) -> object:
        if type(raw) is not dict:
            raise wrong(raw, "object")
        found = {}
        for plan in rows:
            name, plain, read_value, fallback = plan
            try:
                value = raw[name]
                found[name] = value if type(value) is plain else read_value(value)
            except KeyError:
                if fallback is None:
                    raise Unfit("it is missing", f".{name}") from None
                found[name] = fallback()
            except Unfit as unfit:
                raise unfit.below(f".{name}") from None
        return make(**found)

    rows = [(plan.name, plan.plain, plan.read, plan.fallback) for plan in plans]
    return read


def plans_of(cls: type, nested: Callable[[type], Read]) -> list[FieldPlan]:
    """One for each field that the class is made with, in their order."""
    hints = hints_of(cls)
    return [_plan(cls, field, hints[field.name], nested) for field in fields(cls) if field.init]


def _plan(cls: type, field: Field[Any], hint: object, nested: Callable[[type], Read]) -> FieldPlan:
    with _about(cls, field.name):
        reader = reader_for(hint, nested)
    fallback: Callable[[], Any] | None = None
    if field.default is not MISSING:
        default = field.default
        fallback = lambda: default  # noqa: E731  # one of two ways to make a default
    elif field.default_factory is not MISSING:
        fallback = field.default_factory
    return FieldPlan(field.name, reader.plain, reader.read, fallback)


def class_writer(cls: type) -> Write:
    """A function from an element of the class to a dict that JSON can say."""
    made: dict[type, Write] = {}

    def nested(inner: type) -> Write:
        if inner not in made:
            made[inner] = _unmade
            made[inner] = _class_writer(inner, nested)

        def write(element: object) -> object:
            return made[inner](element)

        return write

    nested(cls)
    return made[cls]


def _class_writer(cls: type, nested: Callable[[type], Write]) -> Write:
    names = [field.name for field in fields(cls)]
    writers = dict(_writers(cls, names, nested))
    values_of = getter(names)

    def write(element: object) -> dict[str, Any]:
        written = dict(zip(names, values_of(element), strict=True))
        for name, writer in writers.items():
            written[name] = writer(written[name])
        return written

    return write


def is_plain(cls: type) -> bool:
    """Whether the values of all its fields go out as they are."""
    return not any(_writers(cls, [field.name for field in fields(cls)], class_writer))


def _writers(cls: type, names: Sequence[str], nested: Callable[[type], Write]) -> Iterator[tuple[str, Write]]:
    hints = hints_of(cls)
    for name in names:
        with _about(cls, name):
            writer = writer_for(hints[name], nested)
        if writer is not None:
            yield name, writer


@contextmanager
def _about(cls: type, field: str) -> Iterator[None]:
    """An error about a type says whose it is."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{cls.__name__}.{field}: {error.message}", hint=error.hint) from error


def getter(names: Sequence[str]) -> Callable[[object], tuple[Any, ...]]:
    """attrgetter gives a tuple only for two names or more."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda element: tuple(getattr(element, name) for name in names)


ReadAll: TypeAlias = "Callable[[Sequence[dict[str, Any]]], list[Any]]"


def columns_reader(cls: type, plans: Sequence[FieldPlan]) -> ReadAll | None:
    """A function from dicts to elements; None for a class that cannot be made from its fields in their order.

    It raises whatever comes for the first batch in which an element lacks a field or has a value that does not fit:
    read one by one, they tell which it was, or take their defaults.
    """
    names = [plan.name for plan in plans]
    if not names or not _takes_in_order(cls, names):
        return None

    def read_all(raws: Sequence[dict[str, Any]]) -> list[Any]:
        columns = [_column(plan, list(map(itemgetter(plan.name), raws))) for plan in plans]
        return list(map(cls, *columns))

    return read_all


def _column(plan: FieldPlan, values: list[Any]) -> list[Any]:
    """The values of one field; nearly always all of them are of its very type and need no reading."""
    if plan.plain is not None and set(map(type, values)) <= {plan.plain}:
        return values
    read = plan.read
    return [read(value) for value in values]


def _takes_in_order(cls: type, names: Sequence[str]) -> bool:
    """Not so with fields that are only taken by keyword, or arguments that are no fields in between."""
    try:
        parameters = list(inspect.signature(cls).parameters.values())[: len(names)]
    except (TypeError, ValueError):
        return False
    in_order = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return in_order == list(names)
