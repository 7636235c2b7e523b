"""Closures that read and write elements of a class, made once, so that nothing is looked up per element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields
from operator import attrgetter
from typing import Any, NoReturn

from floodmark.errors import ConfigError
from floodmark.mill.decoding import reader_for
from floodmark.mill.encoding import Write, writer_for
from floodmark.mill.field_types import hints_of
from floodmark.mill.scalars import Read, Unfit, wrong


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
