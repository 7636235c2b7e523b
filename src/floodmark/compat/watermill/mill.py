"""watermill's `WaterMill`, and which of three ways a mill goes.

With the shipped brokers its streams are read on Spark; its function runs on the executors, or in this program if it is
given something that lives here. With a broker of one's own, or a DataKey, it goes element by element (`loop.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from floodmark.compat.watermill.loop import ElementLoop
from floodmark.compat.watermill.message_brokers import (
    DataKey,
    EndOfStream,
    JsonFileMessageBroker,
    KafkaMessageBroker,
    MessageBroker,
    ShippedBroker,
)
from floodmark.compat.watermill.on_spark import DoorMill, adapted, injected_hints
from floodmark.compat.watermill.stream_join import JoinTree, Window, mill_tree, tree_of
from floodmark.errors import ConfigError
from floodmark.logs import get_logger
from floodmark.mill.declaration import declare
from floodmark.mill.join_tree import class_of
from floodmark.mill.signature import return_type_of
from floodmark.mill.watermill import plain_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.mill.join_tree import Stream
    from floodmark.mill.signature import Process
    from floodmark.stores.contract import MarkStore

__all__ = ["DataKey", "EndOfStream", "JoinTree", "MessageBroker", "WaterMill", "Window"]
log = get_logger(__name__)
LOOP_REASON = "a broker of one's own gives its elements once, and results under a DataKey are saved later"


class Injector(Protocol):
    """What the door asks of botox's injector; botox itself need not be installed."""

    def prepare(self, token: Any, value: Any = None) -> None: ...  # noqa: ANN401

    def deliver(self, token: Any, strict: bool = True) -> Any: ...  # noqa: ANN401


class WaterMill:
    """Gives every element of the master stream, with what is joined to it, to a function.

    `name`, `spark` and `store` are Floodmark's own, as `floodmark.mill.WaterMill` takes them.
    """

    def __init__(
        self,
        broker: MessageBroker,
        process_func: Process,
        stream_cls: Stream | Window | None = None,
        join_tree: JoinTree | None = None,
        serializers: Mapping[Stream, Any] | None = None,
        deserializers: Mapping[Stream, Any] | None = None,
        injector: Injector | None = None,
        output_broker: MessageBroker | None = None,
        explicit_return_types: Sequence[Stream] | None = None,
        *,
        name: str | None = None,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        store: MarkStore | None = None,
    ) -> None:
        self._broker, self._output_broker, self._injector = broker, output_broker or broker, injector
        self._function, self._tree = process_func, mill_tree(tree_of(stream_cls, join_tree))
        self._codecs = {"serializers": dict(serializers or {}), "deserializers": dict(deserializers or {})}
        self._outputs, self._own = list(explicit_return_types or ()), {"name": name, "spark": spark, "store": store}
        self._shipped = [each for each in (broker, self._output_broker) if isinstance(each, ShippedBroker)]
        if injector is not None:
            injector.prepare(WaterMill, self)
        saves_later = DataKey in injected_hints(process_func).values()
        is_own = len(self._shipped) < len(("broker", "output_broker"))
        self._loop = self._element_loop(saves_later=saves_later) if is_own or saves_later else None

    def run(self) -> None:
        """Turn until a stream has ended, or the function says so."""
        if self._loop is not None:
            log.warning("the mill goes element by element, in this program", why=LOOP_REASON)
            self._loop.run()
            return
        mill = self._mill_on_spark()
        if isinstance(self._broker, JsonFileMessageBroker):
            mill.begin_anew()
        mill.run()

    def save_results(self, data_key: DataKey, data: object) -> None:
        """Send what belongs to the call that was given this key, and commit its position; from any thread.

        An element, several in a list, None, or EndOfStream.
        """
        if self._loop is None:
            raise ConfigError(
                "save_results needs a DataKey.", hint="let the process function take one, and save with it"
            )
        self._loop.save(data_key, data)

    def _element_loop(self, *, saves_later: bool) -> ElementLoop:
        function, codecs = adapted(self._function, self._deliver, is_windowed=False), self._used_codecs()
        deserializers, serializers = codecs["deserializers"], codecs["serializers"]
        declared = declare(function, join_tree=self._tree, deserializers=deserializers, serializers=serializers)
        own = self._codecs["serializers"]  # results that are saved later may be of any class
        return ElementLoop(declared, self._broker, self._output_broker, own, self._outputs, saves_later)

    def _deliver(self, hint: Any) -> object:  # noqa: ANN401 (a type)
        if hint is DataKey and self._loop is not None:
            return self._loop.data_key()
        if self._injector is not None:
            return self._injector.deliver(hint, strict=True)
        if hint is WaterMill:
            return self
        raise ConfigError(f"nothing provides {hint}.", hint="give WaterMill an injector that was prepared for it")

    def _mill_on_spark(self) -> DoorMill:
        """Made when it runs: until then an injector may be prepared."""
        injected = injected_hints(self._function)
        if injected:
            log.warning("the process function runs in this program: it is given what lives here", arguments=[*injected])
        name = self._own["name"] or plain_name(self._group() or str(getattr(self._function, "__qualname__", "mill")))
        return DoorMill(
            self._function,
            self._deliver if injected else None,
            broker=self._shipped[0].core(),
            output_broker=self._shipped[1].core(),
            join_tree=self._tree,
            **{**self._own, **self._used_codecs(), "name": name},
        )

    def _used_codecs(self) -> dict[str, dict[Stream, Any]]:
        """Without functions for classes that this mill does not meet: several mills may share a mapping."""
        returned = return_type_of(get_type_hints(self._function).get("return"), "the process function").stream
        streams = {"serializers": [returned] if returned is not None else [], "deserializers": self._tree.nodes}
        known = {name: {*own, *map(class_of, own)} for name, own in streams.items()}
        return {name: {each: own[each] for each in own if each in known[name]} for name, own in self._codecs.items()}

    def _group(self) -> str | None:
        return self._broker.group_name if isinstance(self._broker, KafkaMessageBroker) else None
