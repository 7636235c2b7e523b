"""`to_kafka` at work: messages go out as they come, and each element goes on when the broker has its message."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.streams.elements import Element, RecordTracker, record_of

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from floodmark.streams.operators import ToKafka


DEFAULTS = {"linger.ms": 20, "enable.idempotence": True, "log_level": 0, "client.id": "floodmark"}
FULL_SECONDS = 0.05


class Undelivered(Exception):
    """The broker did not take a message."""


class DeliveryWorker:
    """Holds each element until its message is confirmed, and gives them on in order."""

    runs_anywhere = False

    def __init__(self, operator: ToKafka, step: str) -> None:
        self.operator, self.step = operator, step
        self.messages: deque[SentMessage] = deque()
        self._producer: Producer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_producer": None}

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        message, sent = message_of(element.value), SentMessage(element)
        self._send(message, sent)
        tracker.hold(element)
        self.messages.append(sent)
        self.producer.poll(0)
        return self._confirm(tracker)

    def due(self, tracker: RecordTracker) -> Sequence[Element]:
        return self.await_io(tracker)

    def await_io(self, tracker: RecordTracker) -> Sequence[Element]:
        if self.messages:
            self.producer.flush()  # ends: the client gives a message up after delivery.timeout.ms
        return self._confirm(tracker)

    def flush(self, tracker: RecordTracker) -> Sequence[Element]:
        return self.await_io(tracker)

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = producer_of(self.operator)
        return self._producer

    def _send(self, message: bytes | str | None, sent: SentMessage) -> None:
        while True:
            try:
                return self.producer.produce(self.operator.topic, value=message, on_delivery=sent.answer)
            except BufferError:  # its queue is full: let the broker catch up
                self.producer.poll(FULL_SECONDS)

    def _confirm(self, tracker: RecordTracker) -> Sequence[Element]:
        """The elements whose turn it is and whose messages the broker has."""
        delivered = []
        while self.messages and self.messages[0].is_answered:
            sent = self.messages.popleft()
            tracker.let_go((sent.element,))
            if sent.refusal:
                tracker.fail(sent.element.lineage, self.step, Undelivered(sent.refusal))
            else:
                delivered.append(sent.element.child(sent.element.value, self.step))
        return delivered


@dataclass
class SentMessage:
    """A message under way."""

    element: Element
    is_answered: bool = False
    refusal: str = ""

    def answer(self, error: object, message: object) -> None:
        """Called by the client, inside `poll` or `flush`."""
        self.is_answered, self.refusal = True, "" if error is None else str(error)


def message_of(value: object) -> bytes | str | None:
    """What is written: the element itself, or the value of a row `(uuid, value)`."""
    if isinstance(value, (tuple, list)) and len(value) == 2 and record_of(value[0]) is not None:
        value = value[1]
    if value is None or isinstance(value, (bytes, str)):
        return value
    raise TypeError(f"to_kafka writes bytes or text, not {type(value).__name__}: map it first, as with json.dumps")


def producer_of(operator: ToKafka) -> Producer:
    """A producer with the user's options over ours."""
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError as error:
        raise ConfigError("writing to Kafka needs confluent-kafka.", hint="pip install 'floodmark[kafka]'") from error
    try:
        return Producer({**DEFAULTS, **operator.producer_params})
    except KafkaException as error:
        raise ConfigError(f"{operator}: the producer's options are refused: {error}", hint="correct them") from error
