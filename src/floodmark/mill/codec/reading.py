"""Elements out of JSON: a function per class, made once from the types of its fields, so that nothing is looked up
per element. A value is refused rather than bent to fit.

A class is read in two ways. `columns_reader` reads many elements field by field, which happens in C where all values of
a field have its very type: as fast as plain Python that checks nothing, which the row "elements read and checked" of
bench_elements asks for; `class_reader` takes 1.2 times as long. It reads one by one where columns do not do: elements
take their defaults there, and a fault is named with the path to it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from operator import itemgetter
from typing import Any, Literal, NoReturn, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from floodmark.errors import ConfigError
from floodmark.mill.codec.types import UnfitValue, hints_of, unknown_type
from floodmark.spark.schemas import type_name

Read: TypeAlias = "Callable[[Any], Any]"
ReadMany: TypeAlias = "Callable[[Sequence[dict[str, Any]]], list[Any]]"
Nested: TypeAlias = "Callable[[type], Read]"
"""How the reader of a nested dataclass is made."""


@dataclass(frozen=True)
class Reader:
    """How one type is read; a value of exactly the type `plain` needs no reading."""

    read: Read
    plain: type | None = None


@dataclass(frozen=True)
class FieldReader:
    """How one field is read: at once if its value is exactly of the type `plain`, by `read` if not."""

    name: str
    plain: type | None
    read: Read
    fallback: Callable[[], Any] | None


def class_reader(cls: type, *, as_dict: bool = False) -> Read:
    """A function from a dict to an element of the class, or to a dict of its checked values."""
    readers: dict[type, Read] = {}

    def nested(inner: type) -> Read:
        """Looked up when it is called, so that a class may hold itself."""
        if inner not in readers:
            readers[inner] = not_made_yet
            readers[inner] = object_reader(field_readers(inner, nested), dict if as_dict else inner)

        def read(raw: object) -> object:
            return readers[inner](raw)

        return read

    nested(cls)
    return readers[cls]


def object_reader(readers: Sequence[FieldReader], make: Callable[..., Any]) -> Read:
    """A function from a dict to what `make` makes of these fields."""

    def read(raw: object) -> object:
        if type(raw) is not dict:
            raise unfit(raw, "object")
        found = {}
        for name, plain, read_value, fallback in rows:
            try:
                value = raw[name]
                found[name] = value if type(value) is plain else read_value(value)
            except KeyError:
                if fallback is None:
                    raise UnfitValue("it is missing", f".{name}") from None
                found[name] = fallback()
            except UnfitValue as fault:
                raise fault.below(f".{name}") from None
        return make(**found)

    rows = [(each.name, each.plain, each.read, each.fallback) for each in readers]
    return read


def not_made_yet(value: object) -> NoReturn:
    """Stands for the reader, or the writer, of a class while it is made."""
    raise LookupError("called while it was being made")


def field_readers(cls: type, nested: Nested) -> list[FieldReader]:
    """One for each field that the class is made with, in their order."""
    hints = hints_of(cls)
    return [_field_reader(cls, field, hints[field.name], nested) for field in fields(cls) if field.init]


def _field_reader(cls: type, field: Field[Any], hint: object, nested: Nested) -> FieldReader:
    with about_field(cls, field.name):
        reader = reader_for(hint, nested)
    fallback: Callable[[], Any] | None = None
    if field.default is not MISSING:
        default = field.default
        fallback = lambda: default  # noqa: E731  # one of two ways to make a default
    elif field.default_factory is not MISSING:
        fallback = field.default_factory
    return FieldReader(field.name, reader.plain, reader.read, fallback)


@contextmanager
def about_field(cls: type, field: str) -> Iterator[None]:
    """An error about a type says whose it is."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{cls.__name__}.{field}: {error.message}", hint=error.hint) from error


def columns_reader(cls: type) -> ReadMany | None:
    """A function from dicts to elements; None for a class that cannot be made from its fields in their order.

    It raises whatever comes for the first batch in which an element lacks a field or has a value that does not fit.
    """
    readers = field_readers(cls, class_reader)
    if not readers or not _takes_in_order(cls, [reader.name for reader in readers]):
        return None

    def read_many(raws: Sequence[dict[str, Any]]) -> list[Any]:
        columns = [_column(reader, list(map(itemgetter(reader.name), raws))) for reader in readers]
        return list(map(cls, *columns))

    return read_many


def _column(reader: FieldReader, values: list[Any]) -> list[Any]:
    """The values of one field; nearly always all of them are of its very type and need no reading."""
    if reader.plain is not None and set(map(type, values)) <= {reader.plain}:
        return values
    return list(map(reader.read, values))


def _takes_in_order(cls: type, names: Sequence[str]) -> bool:
    """Not so with fields that are only taken by keyword, or arguments that are no fields in between."""
    try:
        parameters = list(inspect.signature(cls).parameters.values())[: len(names)]
    except (TypeError, ValueError):
        return False
    return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD] == list(names)


def reader_for(hint: object, nested: Nested) -> Reader:
    """The reader of a type hint. Raises ConfigError for a type that JSON has no word for."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return Reader(lambda value: value)
    if origin in (Union, types.UnionType):
        return _union_reader(args, nested)
    if origin is Literal:
        return Reader(_literal_reader(args))
    if origin is not None:
        return _container_reader(origin, args, hint, nested)
    if isinstance(hint, type):
        return _single_class_reader(hint, nested)
    raise unknown_type(hint)


def _single_class_reader(hint: type, nested: Nested) -> Reader:
    if hint in SCALARS:
        return SCALARS[hint]
    if issubclass(hint, Enum):
        return Reader(_enum_reader(hint))
    if is_dataclass(hint):
        return Reader(nested(hint))
    if hint in (list, tuple, dict, set, frozenset):
        return _container_reader(hint, (), hint, nested)
    raise unknown_type(hint)


def _union_reader(args: tuple[Any, ...], nested: Nested) -> Reader:
    """The first alternative that takes the value; for `X | None` that is one test and X's own reader."""
    readers = [reader_for(arg, nested) for arg in args if arg is not type(None)]
    optional = type(None) in args
    if len(readers) == 1 and optional:
        only = readers[0]
        return Reader(lambda value: None if value is None else only.read(value), only.plain)

    def read(value: object) -> object:
        if value is None and optional:
            return None
        for reader in readers:
            try:
                return reader.read(value)
            except UnfitValue:
                continue
        raise unfit(value, " or ".join(map(type_name, args)))

    return Reader(read)


def _literal_reader(choices: tuple[Any, ...]) -> Read:
    known = {(type(choice), choice): choice for choice in choices}

    def read(value: object) -> object:
        found = known.get((type(value), value)) if type(value) in (str, int, bool) else None
        if found is None:
            raise unfit(value, f"one of {', '.join(map(repr, choices))}")
        return found

    return read


def _enum_reader(cls: type[Enum]) -> Read:
    members = {member.value: member for member in cls}

    def read(value: object) -> Enum:
        try:
            return members[value]
        except (KeyError, TypeError):
            raise unfit(value, f"{cls.__name__} (one of {', '.join(map(repr, members))})") from None

    return read


def _container_reader(origin: type, args: tuple[Any, ...], hint: object, nested: Nested) -> Reader:
    if origin in (list, set, frozenset, Sequence):
        collect: Any = list if origin is Sequence else origin
        return Reader(_list_reader(reader_for(args[0] if args else Any, nested).read, collect))
    if origin is tuple:
        return Reader(_tuple_reader(args, nested))
    if origin in (dict, Mapping):
        keys, values = args or (str, Any)
        return Reader(_dict_reader(_key_reader(keys), reader_for(values, nested).read))
    raise unknown_type(hint)


def _list_reader(read_one: Read, collect: Callable[[list[Any]], Any]) -> Read:
    def read(value: object) -> object:
        if type(value) is not list:
            raise unfit(value, "list")
        found: list[Any] = []
        try:
            for one in value:
                found.append(read_one(one))  # noqa: PERF401  # how many were read is where the fault stands
        except UnfitValue as fault:
            raise fault.below(f"[{len(found)}]") from None
        return collect(found)

    return read


def _tuple_reader(args: tuple[Any, ...], nested: Nested) -> Read:
    if not args or args[-1] is Ellipsis:
        return _list_reader(reader_for(args[0] if args else Any, nested).read, tuple)
    readers = [reader_for(arg, nested).read for arg in args]

    def read(value: object) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(readers):
            raise unfit(value, f"list of {len(readers)}")
        return tuple(reader(one) for reader, one in zip(readers, value, strict=True))

    return read


def _dict_reader(read_key: Read, read_value: Read) -> Read:
    def read(value: object) -> dict[Any, Any]:
        if type(value) is not dict:
            raise unfit(value, "object")
        found = {}
        for key, one in value.items():
            try:
                found[read_key(key)] = read_value(one)
            except UnfitValue as fault:
                raise fault.below(f"[{key!r}]") from None
        return found

    return read


def _key_reader(hint: object) -> Read:
    """Keys of a JSON object are text: an int key is read from its digits."""
    if hint is int:
        return _parsed(int, "int")
    if hint is Any or hint in SCALARS or (isinstance(hint, type) and issubclass(hint, Enum)):
        return reader_for(hint, class_reader).read
    raise unknown_type(hint)


def unfit(value: object, wanted: str) -> UnfitValue:
    """The fault of a value of another type; long values are cut."""
    text = repr(value)
    return UnfitValue(f"{text if len(text) <= 60 else text[:57] + '…'} is no {wanted}")


def _exactly(cls: type, name: str) -> Read:
    def read(value: object) -> object:
        if type(value) is not cls:
            raise unfit(value, name)
        return value

    return read


def _parsed(parse: Callable[[str], Any], wanted: str) -> Read:
    def read(value: object) -> object:
        try:
            if type(value) is str:
                return parse(value)
        except ValueError:
            pass
        raise unfit(value, wanted)

    return read


def _float(value: Any) -> float:  # noqa: ANN401 (whatever JSON holds)
    if type(value) not in (float, int, Decimal):
        raise unfit(value, "float")
    return float(value)


def _decimal(value: Any) -> Decimal:  # noqa: ANN401 (whatever JSON holds)
    """From text, or from a number by the digits it was written with."""
    try:
        if type(value) in (str, int, float, Decimal):
            return Decimal(repr(value) if type(value) is float else value)
    except InvalidOperation:
        pass
    raise unfit(value, "Decimal")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)


SCALARS: Mapping[type, Reader] = {
    int: Reader(_exactly(int, "int"), int),
    float: Reader(_float, float),
    str: Reader(_exactly(str, "str"), str),
    bool: Reader(_exactly(bool, "bool"), bool),
    type(None): Reader(_exactly(type(None), "None"), type(None)),
    Decimal: Reader(_decimal),
    date: Reader(_parsed(date.fromisoformat, "date like '2026-01-31'")),
    datetime: Reader(_parsed(_moment, "datetime like '2026-01-31T12:00:00+00:00'")),
    UUID: Reader(_parsed(UUID, "UUID")),
}
