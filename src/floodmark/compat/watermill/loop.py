"""A mill that goes element by element in this program, by watermill's contract of a broker.

For brokers of one's own, whose elements are there once and in order only, and for results that are saved later under a
`DataKey`. Positions are committed after the output, so a crash between the two repeats it, as in the original.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from floodmark.compat.watermill.message_brokers import (
    DataKey,
    EndOfStreamError,
    Item,
    MessageBroker,
    RightJoinedStreamRanAhead,
    StreamsShift,
    StreamTimeoutError,
)
from floodmark.compat.watermill.on_spark import Deliver, injected_hints
from floodmark.compat.watermill.stream_join import JoinTree, JoinTreeNode, compare_streams, get_tree_pairs
from floodmark.logs import get_logger
from floodmark.mill.codec import Codec, Deserializer, Serializer
from floodmark.mill.injection import Pairing
from floodmark.mill.join_tree import EndOfStream, Stream, class_of, name_of
from floodmark.mill.signature import Process, mapping_of, return_type_of

log = get_logger(__name__)
Pairs = list[tuple[Any, list[Any]]]


@dataclass
class OpenWindow:
    """The elements that are given to the function together, and what is joined to them."""

    key: object = None
    elements: list[Any] = field(default_factory=list)
    pairs: Pairs = field(default_factory=list)


@dataclass(frozen=True)
class LoopDeclaration:
    """What a mill was given, for one that goes element by element."""

    tree: JoinTree
    function: Process
    serializers: Mapping[Stream, Serializer]
    deserializers: Mapping[Stream, Deserializer]
    explicit_return_types: Sequence[Stream]

    def read(self, stream: Stream, item: Item) -> object:
        own = self.deserializers.get(stream) or self.deserializers.get(class_of(stream))
        return own(item) if own else Codec(stream).decode(item)

    def item(self, stream: Stream, element: object) -> Item:
        """An element as a broker sends it."""
        own = self.serializers.get(stream) or self.serializers.get(class_of(stream))
        if own:
            return own(element)
        codec = Codec(stream)
        item: Item = json.loads(codec.texts([codec.snapshot(element)])[0])
        return item


class ElementLoop:
    """Reads the master, joins what belongs to it, calls the function, sends what it gives, and commits."""

    def __init__(
        self, declared: LoopDeclaration, broker: MessageBroker, output_broker: MessageBroker, deliver: Deliver
    ) -> None:
        self.declared, self.broker, self.output_broker, self.deliver = declared, broker, output_broker, deliver
        hints = get_type_hints(declared.function)
        self._mappings = {name: pair for name, hint in hints.items() if (pair := mapping_of(hint)) is not None}
        self._injected = injected_hints(declared.function)
        self._returns = return_type_of(hints.get("return"), declared.function.__qualname__)
        self._saves_later = DataKey in self._injected.values()
        self._window, self._has_ended, self._lock = OpenWindow(), False, threading.RLock()
        self._unsaved: dict[Any, DataKey] = {}

    @property
    def outputs(self) -> list[Stream]:
        """The streams that are told of the end."""
        own = [self._returns.stream] if self._returns.stream is not None else []
        return own or list(self.declared.explicit_return_types)

    def run(self) -> None:
        """Until a stream has ended, or the function says so."""
        while not self._has_ended:
            self._take_next()
        with self._lock:
            if not self._unsaved:
                self._send_end()

    def save(self, key: DataKey, data: object) -> None:
        """Send what belongs to a call, and commit its position; the last one after the end sends the end on."""
        with self._lock:
            if isinstance(data, EndOfStream):
                self._has_ended, self._unsaved = True, {key.key: key}
            for element in data if isinstance(data, list) else [data] if data is not None else []:
                if not isinstance(element, EndOfStream):
                    self.output_broker.send(type(element), self.declared.item(type(element), element))
            self.broker.commit(key)
            if self._unsaved.pop(key.key, None) is None:
                log.warning("results were saved under a key that waits for none", key=str(key.key))
            if self._has_ended and not self._unsaved:
                self._send_end()

    def _take_next(self) -> None:
        node = self.declared.tree.root_node
        try:
            item = next(iter(self.broker.get_elements(node.user_type, comparator=self._compare_window)))
        except RightJoinedStreamRanAhead:  # the next one begins another window
            self._give_window(None)
        except StreamTimeoutError:
            self._poll()
        except (EndOfStreamError, StopIteration):
            self._give_window(None)
            self._has_ended = True
        else:
            self._take(node, item)

    def _take(self, node: JoinTreeNode, item: Item) -> None:
        element, ends = self.declared.read(node.user_type, item), False
        pairs: Pairs = []
        try:
            self._join(node, item, element, pairs)
        except RightJoinedStreamRanAhead as ahead:
            if node.window_func is None:
                log.info("an element has no partner and is skipped", stream=name_of(node.user_type), of=str(ahead))
                return
        except EndOfStreamError:
            ends = True
        if not (ends and not pairs):
            self._give(node, item, element, pairs)
        if ends:
            self._give_window(None)
            self._has_ended = True

    def _give(self, node: JoinTreeNode, item: Item, element: object, pairs: Pairs) -> None:
        if node.window_func is None:
            self._call(element, pairs)
            return
        self._window.key = node.window_func(item)
        self._window.elements.append(element)
        self._window.pairs.extend(pairs)

    def _join(self, node: JoinTreeNode, item: Item, element: object, pairs: Pairs) -> None:
        """Add what belongs to an element. Raises EndOfStreamError, after all branches, if one of them has ended."""
        ended: EndOfStreamError | None = None
        for pair in get_tree_pairs(self.declared.tree, node):
            right, key = pair.right_node, pair.left_expression(item)
            partners: list[Any] = []
            try:
                for right_item in self.broker.get_elements(right.user_type, comparator=_against(key, pair)):
                    partners.append(self.declared.read(right.user_type, right_item))
                    if len(partners) == 1:
                        pairs.append((element, partners))
                    self._join(right, right_item, partners[-1], pairs)
            except EndOfStreamError as error:
                ended = error
        if ended is not None:
            raise ended

    def _compare_window(self, item: Item) -> StreamsShift:
        function = self.declared.tree.root_node.window_func
        is_over = function is not None and self._window.elements and function(item) != self._window.key
        return StreamsShift.Less if is_over else StreamsShift.Equal

    def _poll(self) -> None:
        """Nothing came in time: a window is asked whether it is over, and a stream without windows has ended."""
        function = self.declared.tree.root_node.window_func
        if function is None:
            self._has_ended = True
        elif self._window.elements and (key := function(None)) != self._window.key:
            self._give_window(key)

    def _give_window(self, key: object) -> None:
        window, self._window = self._window, OpenWindow(key)
        if window.elements:
            self._call(window.elements, window.pairs)

    def _call(self, first: object, pairs: Pairs) -> None:
        """Call the function; without a DataKey the position is committed once its output is sent."""
        mappings = {name: _of_types(pairs, *types) for name, types in self._mappings.items()}
        returned = self.declared.function(first, **mappings, **self._provided())
        stream = self._returns.stream
        for element in self._returns.elements(returned):
            if isinstance(element, EndOfStream):
                self._has_ended = True
            elif stream is not None:
                self.output_broker.send(stream, self.declared.item(stream, element))
        if not self._saves_later:
            self.broker.commit()

    def _provided(self) -> dict[str, object]:
        return {
            name: self._data_key() if hint is DataKey else self.deliver(hint) for name, hint in self._injected.items()
        }

    def _data_key(self) -> DataKey:
        with self._lock:
            key = self.broker.get_data_key() or DataKey()
            self._unsaved[key.key] = key
            return key

    def _send_end(self) -> None:
        for stream in self.outputs:
            self.output_broker.send_eos(stream)
        if not self._saves_later:
            self.broker.commit()


def _against(key: object, pair: Any) -> Callable[[Item], StreamsShift]:  # noqa: ANN401 (a JoinTreePair)
    return lambda item: compare_streams(key, pair.right_expression(item))


def _of_types(pairs: Pairs, left: Any, right: Any) -> Pairing[Any, Any]:  # noqa: ANN401 (type hints)
    """What a mapping of these types holds; several branches of one type follow each other."""
    found: dict[int, tuple[Any, list[Any]]] = {}
    for element, partners in pairs:
        own = [each for each in partners if isinstance(each, class_of(right))]
        if own and isinstance(element, class_of(left)):
            found.setdefault(id(element), (element, []))[1].extend(own)
    return Pairing(list(found.values()))
