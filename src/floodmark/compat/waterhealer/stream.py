"""streamz's `Stream` as water-healer's programs use it: its steps, with its spellings of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark import streams
from floodmark.compat.waterhealer import inside
from floodmark.compat.waterhealer.inside import OwnFunction, calls_healing
from floodmark.streams.operators import Call, Function, Map
from floodmark.streams.picture import KINDS, SVG, Picture
from floodmark.streams.stream import Stream as CoreStream

if TYPE_CHECKING:
    from floodmark.compat.waterhealer.source import KafkaSource

STEPS: dict[Any, Function] = {inside.healing: streams.healing, inside.healing_batch: streams.healing_batch}
OF_STREAMZ = ("stream_name", "loop", "ensure_io_loop")
"""What streamz takes with every step; it has no meaning here."""
RENAMED = {"interval": "interval_length", "producer_config": "producer_params"}
"""Arguments that have another name in streamz."""


class DoorSteps(CoreStream):
    """The steps, with what only the original's programs say."""

    def map(self, func: Function, *args: object, **kwargs: object) -> Stream:
        """As `Stream.map`; a function that calls `healing` runs in this program."""
        call = without_names(Call(func, args, kwargs))
        if calls_healing(call.func):
            return as_door(self._then(OwnFunction(call)))
        return as_door(super().map(step_of(call.func), *call.args, **call.kwargs))

    def sink(self, func: Function, *args: object, **kwargs: object) -> Stream:  # type: ignore[override]  # a stream
        """As `Stream.sink`, and the stream behind it: what follows gets nothing, as in streamz."""
        call = without_names(Call(func, args, kwargs))
        source: Any = self.source
        if calls_healing(call.func) or getattr(source, "gives_plain_values", False):
            heals_all = not calls_healing(call.func)
            end = self._then(OwnFunction(call, heals_all=heals_all, ends=True))
            source.on_sink()
            return as_door(end)
        before = list(self.node.downstreams)
        super().sink(step_of(call.func), *call.args, **call.kwargs)
        end = self.step_type.__new__(self.step_type)
        end.source, end.clock = source, source.clock
        end.node = next(node for node in self.node.downstreams if node not in before)
        return as_door(end)

    def foreach_map(self, func: Function, *args: object, **kwargs: object) -> Stream:
        """As `Stream.foreach_map`."""
        call = without_names(Call(func, args, kwargs))
        if calls_healing(call.func):
            each = Call(lambda items: tuple(call(item) for item in items))
            return as_door(self._then(OwnFunction(each)))
        return as_door(super().foreach_map(step_of(call.func), *call.args, **call.kwargs))

    def foreach_async(self, func: Function, *args: object, at_once: int = 32, **kwargs: object) -> Stream:
        """As `Stream.foreach_async`."""
        call = without_names(Call(func, args, kwargs))
        if calls_healing(call.func):
            return self.foreach_map(call.func, *call.args, **call.kwargs)
        return as_door(super().foreach_async(step_of(call.func), *call.args, at_once=at_once, **call.kwargs))

    def scan(self, *args: Any, **kwargs: Any) -> Stream:  # noqa: ANN401 (handed on as they are)
        """streamz's other name of `accumulate`."""
        return as_door(self.accumulate(*args, **kwargs))

    def concat(self, **kwargs: Any) -> Stream:  # noqa: ANN401 (handed on as they are)
        """streamz's other name of `flatten`."""
        return as_door(self.flatten(**kwargs))

    def frequencies(self, **kwargs: Any) -> Stream:  # noqa: ANN401 (handed on as they are)
        """How often each element came so far."""
        return self.scan(count_one_more, start={}, **kwargs)

    def visualize(self, filename: str | PathLike[str] | None = "mystream.png", **_: object) -> Picture:
        """As `Stream.visualize`; in the place of the bitmap that streamz lets Graphviz draw there is an SVG."""
        path = Path(filename) if filename is not None else None
        return super().visualize(path if path is None or path.suffix in KINDS else path.with_suffix(SVG))


def _as_in_streamz(name: str) -> Callable[..., CoreStream]:
    """A step of the core with streamz's names of its arguments, without what streamz takes with every step."""
    step = getattr(CoreStream, name)
    # Of other steps an argument of that name may be one for the user's function.
    names = {old: new for old, new in RENAMED.items() if new in inspect.signature(step).parameters}

    @wraps(step)
    def add_step(self: CoreStream, *args: object, **kwargs: object) -> CoreStream:
        given = {key: each for key, each in kwargs.items() if key not in OF_STREAMZ}
        own: CoreStream = step(self, *args, **{names.get(key, key): each for key, each in given.items()})
        return own

    return add_step


for _name in (
    *("starmap", "filter", "pluck", "flatten", "union", "zip", "zip_latest", "combine_latest", "accumulate", "unique"),
    *("partition", "partition_time", "timed_window", "sliding_window", "collect", "delay", "rate_limit"),
    *("scatter", "buffer", "gather", "to_kafka"),
):
    setattr(DoorSteps, _name, _as_in_streamz(_name))


class Stream(DoorSteps):
    """A stream that is pushed by `emit`, or a step behind a source; what streamz takes for its loop means nothing."""

    def __init__(self, **_: object) -> None:
        super().__init__()

    @staticmethod
    def from_kafka(topics: Any, consumer_params: Any, poll_interval: Any = 0.1, **options: Any) -> KafkaSource:  # noqa: ANN401
        """streamz's own source: plain values, without a uuid. A record is healed when its sinks had it."""
        from floodmark.compat.waterhealer.source import KafkaSource, settings_of

        source = KafkaSource(settings_of(topics, consumer_params, poll_interval, options), options)
        source.gives_plain_values = True
        return source

    @staticmethod
    def from_kafka_batched(*args: Any, **kwargs: Any) -> KafkaSource:  # noqa: ANN401 (handed on as they are)
        """The same as `from_kafka_batched`."""
        from floodmark.compat.waterhealer.source import from_kafka_batched

        return from_kafka_batched(*args, **kwargs)


DoorSteps.step_type = Stream
Stream.step_type = Stream


def count_one_more(counts: dict[Any, int], element: object) -> dict[Any, int]:
    """The counts with this element too."""
    return {**counts, element: counts.get(element, 0) + 1}


def as_door(stream: CoreStream) -> Stream:
    """A step behind a stream of this door is one of this door too."""
    return stream  # type: ignore[return-value]  # step_type says so


def step_of(func: Function) -> Function:
    """The step that a function of this door stands for, where it is `healing`."""
    if isinstance(func, partial) and func.func in STEPS:
        return partial(STEPS[func.func], *func.args, **func.keywords)
    return STEPS.get(func, func) if getattr(func, "__hash__", None) else func


def without_names(call: Call) -> Call:
    """The call without what streamz would take out of its arguments."""
    return Call(call.func, call.args, {name: each for name, each in call.kwargs.items() if name not in OF_STREAMZ})


VALUE = Map(Call(lambda row: row[1]))
"""What a stream of plain values begins with."""
