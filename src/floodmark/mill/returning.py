"""What a process function gives back: one element, none, many, or the end."""

from __future__ import annotations

import types
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from inspect import Signature
from typing import Any, NoReturn, Union, get_args, get_origin

from floodmark.errors import SignatureInvalid
from floodmark.mill.aliases import Stream, StreamAlias, class_of, name_of
from floodmark.mill.eos import EndOfStream
from floodmark.mill.scalars import shown_type

MANY = (Iterator, Iterable, Generator, list, Sequence)
NOTHING = (None, type(None), NoReturn, Signature.empty)


@dataclass(frozen=True)
class Returned:
    """The output stream, if there is one, and whether a call gives several elements."""

    stream: Stream | None
    is_many: bool = False

    @cached_property
    def cls(self) -> type | None:
        """What comes back is nearly always one of these, and needs no further look."""
        return class_of(self.stream) if self.stream is not None else None

    def elements(self, returned: object) -> Iterator[object]:
        """What one call gave, an EndOfStream last if it ends the stream.

        Raises TypeError for what the signature did not say, and for anything after the end.
        """
        ended = False
        for element in self._each(returned):
            if ended:
                raise TypeError(f"it gave {element!r} after EndOfStream")
            ended = isinstance(element, EndOfStream)
            if not ended:
                self._require_expected(element)
            yield element

    def _each(self, returned: object) -> Iterable[object]:
        if returned is None:
            return ()
        is_several = isinstance(returned, Iterator) or (self.is_many and isinstance(returned, Iterable))
        return (one for one in returned if one is not None) if is_several else (returned,)  # type: ignore[attr-defined]

    def _require_expected(self, element: object) -> None:
        if self.stream is None:
            raise TypeError(f"it gave {element!r}, but its signature returns nothing")
        if not isinstance(element, class_of(self.stream)):
            raise TypeError(f"it gave {element!r}, but its signature returns {name_of(self.stream)}")


def returned_by(hint: object, function: str) -> Returned:
    """The return type of a process function. Raises SignatureInvalid for what cannot be sent to one stream."""
    if get_origin(hint) in MANY:
        return Returned(_stream(get_args(hint)[0], function), is_many=True)
    many = [arg for arg in _alternatives(hint) if get_origin(arg) in MANY]
    if many:
        return Returned(_stream(get_args(many[0])[0], function), is_many=True)
    return Returned(_stream(hint, function))


def _stream(hint: object, function: str) -> Stream | None:
    streams = [each for each in _alternatives(hint) if each not in NOTHING and each is not EndOfStream]
    for each in streams:
        if not isinstance(each, StreamAlias) and not (isinstance(each, type) and is_dataclass(each)):
            raise _wrong(
                function, f"{shown_type(each)} is no dataclass", "return an element, or several by Iterator[…]"
            )
    if len(streams) > 1:
        names = ", ".join(map(name_of, streams))
        raise _wrong(function, f"{names} are several streams", "a mill has one output: make a mill for each of them")
    return streams[0] if streams else None


def _alternatives(hint: object) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _wrong(function: str, reason: str, hint: str) -> SignatureInvalid:
    return SignatureInvalid(function, argument="return type", reason=reason, hint=hint)
