"""Streams are told apart by the class of their elements, or by an alias where one class has several streams."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from typing import TypeAlias

from floodmark.errors import ConfigError


@dataclass(frozen=True)
class StreamAlias:
    """One of several streams whose elements are of one class; stands wherever the class could stand."""

    origin_cls: type
    alias: str

    @property
    def __name__(self) -> str:
        return self.alias

    def __call__(self, *values: object, **named: object) -> object:
        """An element; being callable also lets an alias stand in a type hint."""
        return self.origin_cls(*values, **named)


Stream: TypeAlias = "type | StreamAlias"


def type_alias(stream_type: type, alias: str) -> StreamAlias:
    """A second name for a class, for a topic or a node of a join tree of its own."""
    if not alias:
        raise ConfigError(
            f"an alias of {stream_type.__name__} is empty.", hint="its positions are saved under its name"
        )
    require_dataclass(stream_type)
    return StreamAlias(stream_type, alias)


def class_of(stream: Stream) -> type:
    """The class of the stream's elements."""
    return stream.origin_cls if isinstance(stream, StreamAlias) else stream


def name_of(stream: Stream) -> str:
    """What the stream's position is saved under."""
    return stream.__name__


def require_dataclass(stream: object) -> None:
    """Raises ConfigError for what cannot be the element of a stream."""
    cls = stream.origin_cls if isinstance(stream, StreamAlias) else stream
    if isinstance(cls, type) and is_dataclass(cls):
        return
    name = cls.__name__ if isinstance(cls, type) else repr(cls)
    raise ConfigError(f"{name} is no dataclass.", hint="the elements of a stream are dataclasses: put @dataclass on it")
