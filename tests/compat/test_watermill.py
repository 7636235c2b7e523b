"""Programs for watermill 3.6 with their import lines changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, List  # noqa: UP035 (as the original's programs write it)

import pytest
from floodmark.compat.watermill.expressions import Expression, function_call, get_field
from floodmark.compat.watermill.message_brokers.json_file_message_broker import JsonFileMessageBroker
from floodmark.compat.watermill.message_brokers.kafka_message_broker import KafkaMessageBroker
from floodmark.compat.watermill.message_brokers.message_broker import (
    DataKey,
    EndOfStream,
    EndOfStreamError,
    MessageBroker,
    RightJoinedStreamRanAhead,
    StreamsShift,
    StreamTimeoutError,
)
from floodmark.compat.watermill.stream_types import type_alias
from floodmark.compat.watermill.windows import window

from floodmark import stores
from floodmark.compat.watermill.mill import WaterMill
from floodmark.compat.watermill.stream_join import JoinTreeNode, JoinWith, get_tree_pairs, join_streams
from floodmark.errors import ConfigError
from tests.mill.cases import L, R, keyed
from tests.mill.mills import END, Topics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

K = get_field("k")
BY_K = join_streams(L, JoinWith(R, K, K))
IN_THREES = join_streams(window(L, K // 3), JoinWith(R, K, K))


@dataclass(frozen=True)
class Names:
    """A key, and who belongs to it."""

    k: int
    names: List[str]  # noqa: UP006 (as the original's programs write it)


def join_names(left: L, rights: Mapping[L, List[R]]) -> Names:  # noqa: UP006
    return Names(left.k, [right.name for right in rights[left]])


def window_names(lefts: List[L], rights: Mapping[L, List[R]]) -> Names:  # noqa: UP006
    return Names(lefts[0].k, [f"{left.name}:{len(rights.get(left, []))}" for left in lefts])


@dataclass
class ListBroker(MessageBroker):
    """A broker of one's own, by the original's contract: elements in lists, and what was sent."""

    lists: dict[Any, list[Any]]
    sent: list[Any] = field(default_factory=list)
    commits: list[DataKey | None] = field(default_factory=list)

    def send(self, item_type: Any, item: dict[str, Any]) -> None:  # noqa: ANN401
        self.sent.append(item)

    def send_eos(self, item_type: Any) -> None:  # noqa: ANN401
        self.sent.append("end")

    def commit(self, data_key: DataKey | None = None) -> None:
        self.commits.append(data_key)

    def get_elements(self, element_type: Any, comparator: Any = None) -> Iterator[dict[str, Any]]:  # noqa: ANN401
        waiting = self.lists[element_type]
        while waiting and comparator(self._first(element_type)) is StreamsShift.Greater:
            waiting.pop(0)
        if comparator(self._first(element_type)) is StreamsShift.Less:
            raise RightJoinedStreamRanAhead(element_type)
        while comparator(self._first(element_type)) is StreamsShift.Equal:
            yield waiting.pop(0)

    def _first(self, element_type: Any) -> dict[str, Any]:  # noqa: ANN401
        waiting = self.lists[element_type]
        if not waiting:
            raise EndOfStreamError(element_type)
        if waiting[0] == "nothing":
            waiting.pop(0)
            raise StreamTimeoutError(element_type)
        found: dict[str, Any] = waiting[0]
        return found


def test_an_expression_may_be_made_of_a_function() -> None:
    """And whatever `get_field` gives is one too, which can be called."""
    assert isinstance(get_field("k") + 1, Expression)
    assert (Expression(lambda element: element["k"]) + get_field("by"))({"k": 2, "by": 3}) == 5


def test_a_tree_has_the_parts_of_the_original() -> None:
    """Nodes and pairs, those of a chain below the pair that leads to it."""
    chain = join_streams(L, JoinWith(join_streams(R, JoinWith(Names, K, K)), K, K))
    assert chain.root_node == JoinTreeNode(L)
    assert [pair.right_node for pair in get_tree_pairs(chain, chain.root_node)] == [JoinTreeNode(R)]
    assert [pair.right_node for pair in get_tree_pairs(chain, JoinTreeNode(R))] == [JoinTreeNode(Names)]


def test_a_broker_of_ones_own_is_asked_element_by_element() -> None:
    """Masters without partners are skipped, the end is sent on, and positions are committed after the output."""
    broker = ListBroker({L: [*keyed("l", 1, 2, 4, 5, 7)], R: [*keyed("r", 0, 1, 1, 2, 3, 5, 6)]})
    WaterMill(broker, join_names, join_tree=BY_K).run()
    rows = [{"k": 1, "names": ["r1", "r2"]}, {"k": 2, "names": ["r3"]}, {"k": 5, "names": ["r5"]}]
    assert broker.sent == [*rows, "end"]
    assert len(broker.commits) == 4


NEXT, LAST = type_alias(L, "next"), type_alias(L, "last")


def alias_both(left: L, nexts: Mapping[L, List[NEXT]], lasts: Mapping[L, List[LAST]]) -> Names:  # type: ignore[valid-type]  # noqa: UP006
    return Names(left.k, [f"{right.name}" for right in nexts[left]] + [f"last {right.name}" for right in lasts[left]])


def test_two_streams_of_one_class_come_each_in_its_own_mapping() -> None:
    """Element by element too, where both have the class of the master."""
    broker = ListBroker({L: [*keyed("l", 1)], NEXT: [*keyed("n", 1)], LAST: [*keyed("e", 1, 2)]})
    tree = join_streams(L, JoinWith(NEXT, K, K), JoinWith(LAST, K, K))
    WaterMill(broker, alias_both, join_tree=tree).run()
    assert broker.sent == [{"k": 1, "names": ["n0", "last e0"]}, "end"]


def test_a_signature_that_does_not_fit_is_refused_when_the_mill_is_made() -> None:
    """With a broker of one's own too, before any element is taken from it."""
    with pytest.raises(ConfigError, match="join_names, argument 'rights': R is not in the join tree"):
        WaterMill(ListBroker({L: []}), join_names, stream_cls=L)


def test_in_a_window_an_element_without_partners_stays() -> None:
    """Its mapping has no entry; what lies behind the end of the joined stream is not given."""
    broker = ListBroker({L: [*keyed("l", 0, 1, 2, 3, 4, 5)], R: [*keyed("r", 0, 0, 3, 4)]})
    WaterMill(broker, window_names, join_tree=IN_THREES).run()
    rows = [{"k": 0, "names": ["l0:2", "l1:0", "l2:0"]}, {"k": 3, "names": ["l3:1", "l4:1"]}]
    assert broker.sent == [*rows, "end"]


def test_a_window_of_ones_own_broker_is_asked_when_nothing_comes() -> None:
    """With None, as documented, and the window closes when the answer changes."""
    answers = iter([1, 1, 2, 3])
    broker = ListBroker({L: [*keyed("l", 5), "nothing", "nothing", *keyed("m", 6)]})
    by_clock = window(L, function_call(lambda _: next(answers)))
    WaterMill(broker, lambda_free_sizes, stream_cls=by_clock).run()
    assert broker.sent == [{"k": 1, "names": ["l0"]}, {"k": 1, "names": ["m0"]}, "end"]


def lambda_free_sizes(lefts: List[L]) -> Names:  # noqa: UP006
    return Names(len(lefts), [left.name for left in lefts])


class Later:
    """Collects what a mill gives out, to save it when it likes."""

    def __init__(self) -> None:
        self.calls: list[tuple[DataKey, str]] = []


def keep_for_later(left: L, key: DataKey, later: Later) -> None:
    later.calls.append((key, left.name))


@dataclass
class BotoxLike:
    """What the door asks of botox's injector."""

    values: dict[Any, Any] = field(default_factory=dict)

    def prepare(self, token: Any, value: Any = None) -> None:  # noqa: ANN401
        self.values[token] = value

    def deliver(self, token: Any, strict: bool = True) -> Any:  # noqa: ANN401
        return self.values[token]


def test_results_are_saved_under_their_keys_and_the_end_comes_last() -> None:
    """From another thread, and after the run; the mill itself can be injected."""
    broker, injector, later = ListBroker({L: [*keyed("l", 1, 2)]}), BotoxLike(), Later()
    mill = WaterMill(broker, keep_for_later, stream_cls=L, injector=injector, explicit_return_types=[Names])
    injector.prepare(Later, later)
    mill.run()
    assert (broker.sent, broker.commits) == ([], [])
    for key, name in later.calls:
        thread = threading.Thread(target=injector.deliver(WaterMill).save_results, args=(key, [Names(1, [name])]))
        thread.start()
        thread.join()
    assert broker.sent == [{"k": 1, "names": ["l0"]}, {"k": 1, "names": ["l1"]}, "end"]
    assert broker.commits == [key for key, _ in later.calls]


def test_the_end_may_be_saved_too() -> None:
    """What is not saved yet is let be then."""
    broker, injector, later = ListBroker({L: [*keyed("l", 1, 2)]}), BotoxLike({}), Later()
    mill = WaterMill(broker, keep_for_later, stream_cls=L, injector=injector, explicit_return_types=[Names])
    injector.prepare(Later, later)
    mill.run()
    mill.save_results(later.calls[1][0], EndOfStream())
    assert broker.sent == ["end"]


def test_saving_without_a_key_is_refused() -> None:
    """Nothing would be committed by it."""
    mill = WaterMill(JsonFileMessageBroker({}), join_names, join_tree=BY_K)
    with pytest.raises(ConfigError, match="save_results needs a DataKey"):
        mill.save_results(DataKey(), None)


@pytest.fixture
def topics(kafka: Broker, tmp_path: Path) -> Topics:
    return Topics(kafka, tmp_path)


def kafka_broker_of(topics: Topics, group: str, **options: Any) -> KafkaMessageBroker:  # noqa: ANN401
    return KafkaMessageBroker({**topics.names}, topics.broker.bootstrap, consumer_group_name=group, **options)


def test_positions_follow_the_oldest_result_that_is_not_saved(topics: Topics) -> None:
    """A crash after the second was saved, and before the first, gives both again."""
    topics.make(L, Names).put(L, *keyed("l", 1, 2), END)

    def run() -> tuple[WaterMill, Later]:
        injector, later = BotoxLike(), Later()
        broker = kafka_broker_of(topics, "manual")
        mill = WaterMill(broker, keep_for_later, stream_cls=L, injector=injector, explicit_return_types=[Names])
        injector.prepare(Later, later)
        mill.run()
        return mill, later

    mill, later = run()
    mill.save_results(later.calls[1][0], Names(2, []))
    mill, later = run()
    assert [name for _, name in later.calls] == ["l0", "l1"]
    mill.save_results(later.calls[0][0], Names(1, []))
    mill, later = run()
    assert [name for _, name in later.calls] == ["l1"]
    mill.save_results(later.calls[0][0], Names(2, []))
    assert topics.rows_of(Names) == [{"k": 2, "names": []}, {"k": 1, "names": []}, {"k": 2, "names": []}, END]


def test_a_topic_whose_elements_have_no_order_is_not_read_one_by_one(topics: Topics) -> None:
    """It would be half of the elements, or a stream whose keys go up and down."""
    topics.partitions = {L: 2}
    topics.make(L, Names)
    injector = BotoxLike({Later: Later()})
    mill = WaterMill(kafka_broker_of(topics, "two"), keep_for_later, stream_cls=L, injector=injector)
    with pytest.raises(ConfigError, match="has 2 partitions"):
        mill.run()


def test_a_topic_that_is_gone_has_not_ended(topics: Topics) -> None:
    """The mill stops with an error, and no end is sent to those who read its output."""
    topics.make(L).put(L, *keyed("l", 1))
    broker = kafka_broker_of(topics, "gone", data_timeout=500)
    assert next(broker.get_elements(L)) == {"k": 1, "name": "l0"}
    admin = topics.broker.admin()
    admin.delete_topics([topics.names[L]])[topics.names[L]].result(10)
    with pytest.raises(ConfigError, match="there is no topic"):
        next(broker.get_elements(L))


@dataclass
class Files:
    """The streams of a test as JSON files."""

    folder: Path

    def put(self, stream: type, rows: list[dict[str, Any]]) -> Files:
        (self.folder / f"{stream.__name__}.json").write_text(json.dumps(rows))
        return self

    def rows_of(self, stream: type) -> Any:  # noqa: ANN401
        return json.loads((self.folder / f"{stream.__name__}.json").read_text())

    def broker(self, *streams: type) -> JsonFileMessageBroker:
        return JsonFileMessageBroker({stream: self.folder / f"{stream.__name__}.json" for stream in streams})

    def own(self, spark: SparkSession) -> dict[str, Any]:
        return {"spark": spark, "store": stores.open("sqlite:///marks.db", folder=self.folder)}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.spark
def test_a_run_on_files_begins_anew_each_time(spark: SparkSession, files: Files) -> None:
    """The original remembers no position in a file, and writes its output whole."""
    files.put(L, keyed("l", 1, 2)).put(R, keyed("r", 1, 2))
    mill = WaterMill(files.broker(L, R, Names), join_names, join_tree=BY_K, **files.own(spark))
    mill.run()
    files.put(R, keyed("s", 2))
    mill.run()
    assert files.rows_of(Names) == [{"k": 2, "names": ["s0"]}]


class Counter:
    """Something that lives in the program, and cannot be sent anywhere."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.lock = threading.Lock()


def count_names(left: L, rights: Mapping[L, List[R]], counter: Counter) -> Names:  # noqa: UP006
    counter.seen.append(left.name)
    return join_names(left, rights)


@pytest.mark.spark
def test_a_function_that_is_given_an_instance_runs_in_this_program(
    spark: SparkSession, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the master; it is said, and its output is what Spark's would be."""
    files.put(L, keyed("l", 1, 1, 2, 3)).put(R, keyed("r", 1, 2, 2))
    injector, counter = BotoxLike(), Counter()
    broker = files.broker(L, R, Names)
    mill = WaterMill(broker, count_names, join_tree=BY_K, injector=injector, **files.own(spark))
    injector.prepare(Counter, counter)
    mill.run()
    assert counter.seen == ["l0", "l1", "l2"]
    names = [{"k": 1, "names": ["r0"]}, {"k": 1, "names": ["r0"]}, {"k": 2, "names": ["r1", "r2"]}]
    assert files.rows_of(Names) == names


@pytest.mark.spark
def test_windows_on_spark_keep_elements_without_partners_too(spark: SparkSession, files: Files) -> None:
    """The same as element by element, up to what lies behind the end of the joined stream."""
    files.put(L, keyed("l", 0, 1, 2, 3, 4, 5)).put(R, keyed("r", 0, 0, 3, 4))
    WaterMill(files.broker(L, R, Names), window_names, join_tree=IN_THREES, **files.own(spark)).run()
    assert files.rows_of(Names) == [
        {"k": 0, "names": ["l0:2", "l1:0", "l2:0"]},
        {"k": 3, "names": ["l3:1", "l4:1"]},
    ]


def alias_names(left: L, rights: Mapping[L, List[L]]) -> Names:  # noqa: UP006
    return Names(left.k, [right.name for right in rights[left]])


@pytest.mark.spark
def test_a_stream_on_kafka_goes_on_where_its_group_stands(spark: SparkSession, topics: Topics) -> None:
    """What the original has read is not read again; aliases have groups of their own names."""
    topics.make(L, Names)
    one, other = type_alias(L, "one"), type_alias(L, "other")
    names = {one: topics.names[L], other: topics.names[L], Names: topics.names[Names]}
    topics.put(L, *keyed("l", 1, 2, 3), END)
    broker = KafkaMessageBroker(names, topics.broker.bootstrap, consumer_group_name=f"mill-{topics.names[L]}")
    next(broker.get_elements(one))
    broker.commit()
    tree = join_streams(one, JoinWith(other, K, K))
    store = stores.open("sqlite:///marks.db", folder=topics.folder)
    WaterMill(broker, alias_names, join_tree=tree, spark=spark, store=store).run()
    assert topics.rows_of(Names) == [{"k": 2, "names": ["l1"]}, {"k": 3, "names": ["l2"]}, END]
