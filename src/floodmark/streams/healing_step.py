"""`healing` and `healing_batch`: what a stream's steps are given so that the mark follows what succeeded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError
from floodmark.streams import nodes

if TYPE_CHECKING:
    from floodmark.streams.stream import Stream

    Result = dict[str, object]


def healing(
    row: tuple[object, object], stream: Stream | None = None, ignore: bool = False, asynchronous: bool = False
) -> Result:
    """Make the record of a row done; to be given to `map`, `sink`, `foreach_map` or `foreach_async`.

    What follows gets `{data, success, reason, partition, offset, topic}`, in the driver, after the commit.

    row: `(uuid, value)`, with the uuid that the source gave.
    stream: the source that the records come from.
    ignore: a failed publication to the Kafka group is a warning and `success: False`; else it raises.
    asynchronous: publish the group's offsets in the background.
    """
    raise _called("healing")


def healing_batch(
    rows: tuple[tuple[object, object], ...],
    stream: Stream | None = None,
    ignore: bool = False,
    asynchronous: bool = False,
) -> list[Result]:
    """As `healing`, for several rows at once; what follows gets a list of results."""
    raise _called("healing_batch")


def _called(name: str) -> ConfigError:
    return ConfigError(
        f"{name} was called as a function; it is a step of a stream.",
        hint=f"give it to a step: source.map(work).sink({name}, stream=source)",
    )


def as_healing(call: nodes.Call, source: Stream, *, each: bool = False) -> nodes.Heal | None:
    """The healing step that a call of `healing` or `healing_batch` stands for; None for any other function."""
    func, given = _unwrapped(call)
    takes = _TAKES.get(func)
    if takes is None:
        return None
    names = ("stream", "ignore", "asynchronous")
    given |= dict(zip(names, call.args, strict=False))
    _refuse_unknown(func.__name__, given, names)
    _refuse_other_stream(func.__name__, given.get("stream"), source)
    return nodes.Heal(takes, each, bool(given.get("ignore")), bool(given.get("asynchronous")))


def _unwrapped(call: nodes.Call) -> tuple[nodes.Function, dict[str, object]]:
    func: object = call.func
    if isinstance(func, partial):
        return func.func, {**func.keywords, **call.kwargs}
    return call.func, dict(call.kwargs)


_TAKES: dict[object, Literal["row", "rows"]] = {healing: "row", healing_batch: "rows"}


def _refuse_unknown(name: str, given: dict[str, object], known: tuple[str, ...]) -> None:
    unknown = next((field for field in given if field not in known), None)
    if unknown is not None:
        raise ConfigError(f"{name} has no parameter '{unknown}'.", hint=f"one of: {', '.join(known)}")


def _refuse_other_stream(name: str, stream: object, source: Stream) -> None:
    if stream is None:
        raise ConfigError(
            f"{name} does not know whose marks to move: stream is None.",
            hint=f"pass the source: .sink({name}, stream=source)",
        )
    if getattr(stream, "source", None) is not source:
        raise ConfigError(
            f"{name} was given a stream that its rows do not come from.",
            hint="pass the source that this branch begins at, as from_kafka returned it",
        )
