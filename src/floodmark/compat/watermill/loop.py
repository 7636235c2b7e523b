"""A mill that goes element by element in this program, by watermill's contract of a broker.

For brokers of one's own, whose elements are there once and in order only, and for results that are saved later under a
`DataKey`. Positions are committed after the output, so a crash between the two repeats it, as in the original.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.compat.watermill.message_brokers import (
    DataKey,
    EndOfStreamError,
    Item,
    MessageBroker,
    RightJoinedStreamRanAhead,
    StreamsShift,
    StreamTimeoutError,
)
from floodmark.compat.watermill.stream_join import compare_streams
from floodmark.logs import get_logger
from floodmark.mill.codec import Codec, Serializer
from floodmark.mill.declaration import Declaration
from floodmark.mill.elements import Pairs
from floodmark.mill.injection import Pairing
from floodmark.mill.join_tree import Edge, EndOfStream, Stream, class_of, name_of
from floodmark.mill.process import merged_edges

log = get_logger(__name__)


@dataclass
class OpenWindow:
    """The elements that are given to the function together, and what is joined to them, by the number of the edge."""

    pairs: list[Pairs]
    key: object = None
    elements: list[Any] = field(default_factory=list)


@dataclass
class ElementLoop:
    """Reads the master, joins what belongs to it, calls the function, sends what it gives, and commits."""

    declared: Declaration
    broker: MessageBroker
    output_broker: MessageBroker
    serializers: Mapping[Stream, Serializer]
    explicit_return_types: Sequence[Stream]
    saves_later: bool

    def __post_init__(self) -> None:
        self._window, self._has_ended, self._lock = OpenWindow(self._no_pairs()), False, threading.RLock()
        self._unsaved: dict[Any, DataKey] = {}

    def run(self) -> None:
        """Until a stream has ended, or the function says so."""
        while not self._has_ended:
            self._take_next()
        with self._lock:
            if not self._unsaved:
                self._send_end()

    def data_key(self) -> DataKey:
        """What the result of the call that begins now is saved under."""
        with self._lock:
            key = self.broker.get_data_key() or DataKey()
            self._unsaved[key.key] = key
            return key

    def save(self, key: DataKey, data: object) -> None:
        """Send what belongs to a call, and commit its position; the last one after the end sends the end on."""
        with self._lock:
            if isinstance(data, EndOfStream):
                self._has_ended, self._unsaved = True, {key.key: key}
            for element in data if isinstance(data, list) else [data] if data is not None else []:
                if not isinstance(element, EndOfStream):
                    self._send(type(element), element)
            self.broker.commit(key)
            if self._unsaved.pop(key.key, None) is None:
                log.warning("results were saved under a key that waits for none", key=str(key.key))
            if self._has_ended and not self._unsaved:
                self._send_end()

    def _take_next(self) -> None:
        master = self.declared.tree.root
        try:
            item = next(iter(self.broker.get_elements(master, comparator=self._compare_window)))
        except RightJoinedStreamRanAhead:  # the next one begins another window
            self._give_window(None)
        except StreamTimeoutError:
            self._poll()
        except (EndOfStreamError, StopIteration):
            self._give_window(None)
            self._has_ended = True
        else:
            self._take(master, item)

    def _take(self, master: Stream, item: Item) -> None:
        element, pairs, ends = self.declared.codecs[master].decode(item), self._no_pairs(), False
        try:
            self._join(master, item, element, pairs)
        except RightJoinedStreamRanAhead as ahead:
            if self.declared.tree.window is None:
                log.info("an element has no partner and is skipped", stream=name_of(master), of=str(ahead))
                return
        except EndOfStreamError:
            ends = True
        if any(pairs) or not ends:
            self._give(item, element, pairs)
        if ends:
            self._give_window(None)
            self._has_ended = True

    def _give(self, item: Item, element: object, pairs: list[Pairs]) -> None:
        function = self.declared.tree.window
        if function is None:
            self._call(element, pairs)
            return
        self._window.key = function(item)
        self._window.elements.append(element)
        for own, more in zip(self._window.pairs, pairs, strict=True):
            own.extend(more)

    def _join(self, stream: Stream, item: Item, element: object, pairs: list[Pairs]) -> None:
        """Add what belongs to an element. Raises EndOfStreamError, after all branches, if one of them has ended."""
        ended: EndOfStreamError | None = None
        for edge in self.declared.tree.edges_from(stream):
            partners: list[Any] = []
            try:
                for right_item in self.broker.get_elements(edge.right, comparator=_comparator(edge, item)):
                    partners.append(self.declared.codecs[edge.right].decode(right_item))
                    if len(partners) == 1:
                        pairs[self.declared.tree.edges.index(edge)].append((element, partners))
                    self._join(edge.right, right_item, partners[-1], pairs)
            except EndOfStreamError as error:
                ended = error
        if ended is not None:
            raise ended

    def _compare_window(self, item: Item) -> StreamsShift:
        function = self.declared.tree.window
        is_over = function is not None and self._window.elements and function(item) != self._window.key
        return StreamsShift.Less if is_over else StreamsShift.Equal

    def _poll(self) -> None:
        """Nothing came in time: a window is asked whether it is over, and a stream without windows has ended."""
        function = self.declared.tree.window
        if function is None:
            self._has_ended = True
        elif self._window.elements and (key := function(None)) != self._window.key:
            self._give_window(key)

    def _give_window(self, key: object) -> None:
        window, self._window = self._window, OpenWindow(self._no_pairs(), key)
        if window.elements:
            self._call(window.elements, window.pairs)

    def _call(self, first: object, pairs: list[Pairs]) -> None:
        """Call the function; without a DataKey the position is committed once its output is sent."""
        signature = self.declared.signature
        by_edges = {each.name: [pairs[edge] for edge in each.edges] for each in signature.mapped_arguments}
        mappings = {name: Pairing(merged_edges(own)) for name, own in by_edges.items()}
        for element in signature.returns.elements(signature.function(first, **mappings)):
            if isinstance(element, EndOfStream):
                self._has_ended = True
            elif signature.returns.stream is not None:
                self._send(signature.returns.stream, element)
        if not self.saves_later:
            self.broker.commit()

    def _send(self, stream: Stream, element: object) -> None:
        own = self.serializers.get(stream) or self.serializers.get(class_of(stream))
        self.output_broker.send(stream, own(element) if own else as_item(Codec(stream), element))

    def _send_end(self) -> None:
        """To the stream of the function, or to those that results are saved to."""
        own = self.declared.signature.returns.stream
        for stream in self.explicit_return_types if own is None else [own]:
            self.output_broker.send_eos(stream)
        if not self.saves_later:
            self.broker.commit()

    def _no_pairs(self) -> list[Pairs]:
        return [[] for _ in self.declared.tree.edges]


def as_item(codec: Codec, element: object) -> Item:
    """An element as a broker sends it."""
    item: Item = json.loads(codec.texts([codec.snapshot(element)])[0])
    return item


def _comparator(edge: Edge, left: Item) -> Callable[[Item], StreamsShift]:
    key = edge.left_expression(left)
    return lambda item: compare_streams(key, edge.right_expression(item))
