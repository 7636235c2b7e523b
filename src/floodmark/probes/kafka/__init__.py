"""The topics of a Kafka cluster: where they begin and end, how long they keep messages, how far a consumer group got.

No JVM, and no record is read. How a cluster is reached is in `client`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from floodmark.errors import SourceUnreadable
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.errors.known_causes import server_hint
from floodmark.patience import patiently
from floodmark.probes.kafka.client import KafkaOptions, driver, driver_message

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient


T = TypeVar("T")

Place: TypeAlias = tuple[str, int]
"""A partition of a topic."""
Offsets: TypeAlias = Mapping[Place, int]

REQUEST_SECONDS = 10.0
LEADER_SECONDS = 5.0
COORDINATOR_SECONDS = 15.0
PAUSE_SECONDS = 0.1
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Topic:
    """A topic as it is now; a topic that was deleted and made anew has the name and another id."""

    name: str
    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class PartitionBounds:
    """What a partition holds: from `earliest`, for readers of committed records to before `stable`; `end` is where
    the records of open transactions end."""

    earliest: int
    stable: int
    end: int


@dataclass(frozen=True)
class Retention:
    """How long a topic keeps its messages; None is for ever."""

    hours: float | None
    bytes: int | None
    is_compacted: bool

    def __str__(self) -> str:
        time = "for ever" if self.hours is None else f"for {self.hours:g} h"
        size = f", at most {self.bytes} bytes of a partition" if self.bytes is not None else ""
        return f"{time}{size}"

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Retention:
        """From the topic's own settings."""
        policy = settings.get("cleanup.policy", "delete")
        deletes = "delete" in policy
        milliseconds, size = (int(settings.get(name, "-1")) for name in ("retention.ms", "retention.bytes"))
        hours = milliseconds / HOUR_MS if deletes and milliseconds >= 0 else None
        return cls(hours, size if deletes and size >= 0 else None, "compact" in policy)


class KafkaProbe:
    """Answers about one cluster, over a connection that is kept. Every answer is as of the moment it was asked for.

    Every method raises SourceUnreadable if the cluster does not answer within `request_seconds`. A partition between
    two leaders is asked again for `leader_seconds`.
    """

    def __init__(
        self, options: KafkaOptions, *, request_seconds: float | None = None, leader_seconds: float | None = None
    ) -> None:
        self.options = options
        self._request_seconds = REQUEST_SECONDS if request_seconds is None else request_seconds
        self._leader_seconds = LEADER_SECONDS if leader_seconds is None else leader_seconds
        self._complaint: str | None = None

    @cached_property
    def cluster_id(self) -> str:
        """The cluster's own name for itself."""
        answer = self._ask(lambda: self._admin.describe_cluster(request_timeout=self._request_seconds), "the cluster")
        return str(self._result(answer, "the cluster").cluster_id)

    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic of the cluster has. Asking never makes a topic."""
        answer = self._ask(lambda: self._admin.list_topics(timeout=self._request_seconds), "the topics")
        return {name: len(topic.partitions) for name, topic in answer.topics.items() if topic.error is None}

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics with their ids and partitions. Raises SourceUnreadable if one is not there."""
        driver()
        from confluent_kafka import TopicCollection

        wanted = list(names)
        answers = self._ask(
            lambda: self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._request_seconds),
            f"kafka topic {', '.join(wanted)}",
        )
        found = {name: self._result(answers[name], f"kafka topic {name}") for name in wanted}
        return {
            name: Topic(name, str(topic.topic_id), tuple(sorted(each.id for each in topic.partitions)))
            for name, topic in found.items()
        }

    def bounds(self, topics: Iterable[Topic]) -> dict[Place, PartitionBounds]:
        """The bounds of every partition, asked for at once. Raises SourceUnreadable if one stays without a leader."""
        driver()
        places = [(topic.name, partition) for topic in topics for partition in topic.partitions]
        return patiently(
            lambda: self._bounds(places),
            seconds=self._leader_seconds,
            passing=lambda error: isinstance(error, SourceUnreadable) and is_between_leaders(error.__context__),
            pause_seconds=PAUSE_SECONDS,
        )

    def group_offsets(self, group: str, topics: Iterable[Topic]) -> dict[Place, int]:
        """The next offsets that a consumer group has committed; partitions without one are left out.

        A coordinator that loads them, moves, or is made for the first group of a broker is waited for.
        By a consumer and not by the admin client, whose process dies where the coordinator has moved or is not there
        yet (librdkafka's issue 5040, in 2.16 still).
        """
        driver()
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        consumer = self.options.consumer(**{"group.id": group})

        def ask() -> list[TopicPartition]:
            offsets = consumer.committed(places, timeout=self._request_seconds)
            for refusal in (each.error for each in offsets if each.error is not None):
                raise KafkaException(refusal)
            return offsets

        try:
            offsets = patiently(
                ask, seconds=COORDINATOR_SECONDS, passing=is_between_coordinators, pause_seconds=PAUSE_SECONDS
            )
        except KafkaException as error:
            raise self._unreadable(f"kafka group {group}", error) from None
        finally:
            consumer.close()
        return {(each.topic, each.partition): each.offset for each in offsets if each.offset >= 0}

    def retention(self, topics: Sequence[str]) -> dict[str, Retention]:
        """How long each topic keeps its messages."""
        driver()
        from confluent_kafka import admin

        names: Any = admin  # the driver does not say that it exports these two
        wanted = [names.ConfigResource(names.ResourceType.TOPIC, topic) for topic in topics]
        what = f"the settings of {', '.join(topics)}"
        answers = self._ask(lambda: self._admin.describe_configs(wanted, request_timeout=self._request_seconds), what)
        settings = {resource.name: self._result(future, what) for resource, future in answers.items()}
        return {
            topic: Retention.parse({name: str(entry.value) for name, entry in entries.items()})
            for topic, entries in settings.items()
        }

    def create_topic(self, name: str, partitions: int, replication: int) -> None:
        """Make a topic; one that somebody else made meanwhile will do."""
        driver()
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        new = NewTopic(name, partitions, replication)
        future = self._admin.create_topics([new], operation_timeout=self._request_seconds)[name]
        try:
            self._result(future, f"making kafka topic {name}")
        except SourceUnreadable as error:
            cause = error.__context__
            is_there = isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            if not is_there:
                raise

    @cached_property
    def _admin(self) -> AdminClient:
        return self.options.admin(error_cb=self._note_complaint)

    def _note_complaint(self, error: KafkaError) -> None:
        """librdkafka tells the cause here, and a mere timeout to whoever asked."""
        self._complaint = str(error.str())

    def _bounds(self, places: Sequence[Place]) -> dict[Place, PartitionBounds]:
        from confluent_kafka import admin

        spec: Any = admin.OffsetSpec  # type: ignore[attr-defined]
        answers = (
            # In this order: what is stable never lies above an end that was asked for later.
            self._list_offsets(places, spec.earliest(), committed=True),
            self._list_offsets(places, spec.latest(), committed=True),
            self._list_offsets(places, spec.latest(), committed=False),
        )
        earliest, stable, end = (self._offsets_in(futures) for futures in answers)
        return {
            place: PartitionBounds(earliest[place], stable[place], max(end[place], stable[place])) for place in places
        }

    def _list_offsets(self, places: Iterable[Place], spec: Any, *, committed: bool) -> dict[Place, Future[Any]]:  # noqa: ANN401 (the driver's)
        from confluent_kafka import IsolationLevel, TopicPartition

        wanted = {TopicPartition(topic, partition): spec for topic, partition in places}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        seconds = self._request_seconds
        answers = self._ask(
            lambda: self._admin.list_offsets(wanted, isolation_level=level, request_timeout=seconds), "offsets"
        )
        return {(place.topic, place.partition): future for place, future in answers.items()}

    def _offsets_in(self, futures: Mapping[Place, Future[Any]]) -> dict[Place, int]:
        return {
            (topic, partition): int(self._result(future, f"kafka topic {topic}, partition {partition}").offset)
            for (topic, partition), future in futures.items()
        }

    def _ask(self, question: Callable[[], T], what: str) -> T:
        driver()
        from confluent_kafka import KafkaException

        try:
            return question()
        except KafkaException as error:
            raise self._unreadable(what, error) from None

    def _result(self, future: Future[T], what: str) -> T:
        from concurrent.futures import TimeoutError as NoAnswer

        from confluent_kafka import KafkaException

        try:
            return future.result(self._request_seconds + 5)
        except (KafkaException, NoAnswer) as error:
            raise self._unreadable(what, error) from None  # the driver's own text may hold a secret

    def _unreadable(self, what: str, error: Exception) -> SourceUnreadable:
        self._complaint = None
        self._admin.poll(0)
        cause = f" ({self._complaint})" if self._complaint else ""
        reason = self.options.without_secrets(f"{driver_message(error) or type(error).__name__}{cause}".rstrip("."))
        hint = server_hint(reason) or "check that the broker runs and may be read"
        return SourceUnreadable(f"{what} at {self.options.servers}", reason=reason, hint=hint)


def similar_topics(name: str, topics: Iterable[str]) -> str:
    """`did you mean …?` with up to three names that are like this one; nothing if none is."""
    return did_you_mean(nearest_names(name, topics, most=3))


def is_between_coordinators(error: BaseException | None) -> bool:
    """Whether the same question about a group has an answer a moment later."""
    from confluent_kafka import KafkaError, KafkaException

    passing = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE}
    passing |= {KafkaError.NOT_COORDINATOR, KafkaError._WAIT_COORD, KafkaError._TIMED_OUT}
    return isinstance(error, KafkaException) and error.args[0].code() in passing


def is_between_leaders(error: BaseException | None) -> bool:
    """Whether the same question has an answer a moment later: the topic was made just now, or its leader changes."""
    from confluent_kafka import KafkaError, KafkaException

    passing = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
    passing |= {KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH}
    return isinstance(error, KafkaException) and error.args[0].code() in passing
