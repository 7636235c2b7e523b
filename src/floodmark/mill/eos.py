"""The end of a stream, as an element among the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MARKER = "eos__"


@dataclass(frozen=True)
class EndOfStream:
    """Nothing follows. Returned, or yielded last, by a process function it stops the mill; it is sent on as it is."""

    eos__: bool = True


def is_end(raw: Mapping[str, object]) -> bool:
    """Whether an element as it stands in a stream is the end of it."""
    return raw.get(MARKER) is True
