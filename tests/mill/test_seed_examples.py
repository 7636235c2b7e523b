"""Every code example of seed 003, with the import line changed, as its users wrote them; then run on files."""

# ruff: noqa: UP006, UP035  # List and Mapping as the seed writes them
from __future__ import annotations

import json
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from sqlite3 import Connection, connect
from typing import TYPE_CHECKING, Any, List, Mapping, NoReturn

import pytest

from floodmark import stores
from floodmark.mill import (
    JoinWith,
    JsonFileMessageBroker,
    KafkaMessageBroker,
    WaterMill,
    get_field,
    get_fields,
    join_streams,
    window,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAME_DURATION_SECONDS = 2


@dataclass
class RobotLocation:
    """Where a robot is."""

    time: int
    x: float
    y: float


@dataclass
class RobotLocationNextStep:
    """The same stream, one step later."""

    time: int
    x: float
    y: float


@dataclass
class RobotSpeed:
    """How fast it goes."""

    time: int
    speed: float


@dataclass
class InsideArea:
    """Whether it is near."""

    x: float
    y: float
    inside: bool


@dataclass
class AudioFrame:
    """A sound."""

    time_seconds: int
    data: float


@dataclass
class VideoFrame:
    """A picture."""

    time_ms: int
    data: float
    frame_index: int
    first_frame_ts_seconds: int


@dataclass
class AudioVideoFrame:
    """A sound and the numbers of its pictures."""

    time_seconds: int
    frames: List[int]


@dataclass
class GoodsItem:
    """Something to buy."""

    name: str
    price: float


def calculate_robot_speed(
    prev_location: RobotLocation, next_locations: Mapping[RobotLocation, List[RobotLocationNextStep]]
) -> RobotSpeed:
    following = next_locations[prev_location][0]
    metres = hypot(following.x - prev_location.x, following.y - prev_location.y)
    return RobotSpeed(prev_location.time, metres / (following.time - prev_location.time))


def store_robot_path(location: RobotLocation, db_connection: Connection) -> NoReturn:  # type: ignore[misc]  # the seed's
    db_connection.execute("insert into path values (?, ?, ?)", (location.time, location.x, location.y))
    db_connection.commit()


def check_inside_area(x: float, y: float) -> bool:
    return hypot(x, y) <= 20


def is_inside_area(location: RobotLocation) -> InsideArea:
    return InsideArea(x=location.x, y=location.y, inside=check_inside_area(location.x, location.y))


def merge_audio_video(audio_frame: AudioFrame, video_frames: Mapping[AudioFrame, List[VideoFrame]]) -> AudioVideoFrame:
    return AudioVideoFrame(audio_frame.time_seconds, [frame.frame_index for frame in video_frames[audio_frame]])


def average_speed(prev_location: List[RobotLocation]) -> RobotSpeed:
    first, last = prev_location[0], prev_location[-1]
    return RobotSpeed(first.time, (last.x - first.x) / max(last.time - first.time, 1))


def average_speed_of_steps(
    prev_location: List[RobotLocation],
    next_locations: Mapping[RobotLocation, List[RobotLocationNextStep]],
) -> RobotSpeed:
    steps = [(here, next_locations[here][0]) for here in prev_location]
    return RobotSpeed(prev_location[0].time, sum(there.x - here.x for here, there in steps) / len(steps))


BY_TIME = join_streams(
    AudioFrame,
    JoinWith(
        with_type=VideoFrame,
        left_expression=get_field("time_seconds"),
        right_expression=get_field("time_ms") // 1000,
    ),
)
BY_FRAME = join_streams(
    AudioFrame,
    JoinWith(
        with_type=VideoFrame,
        left_expression=get_field("time_seconds"),
        right_expression=get_field("frame_index") * FRAME_DURATION_SECONDS + get_fields("first_frame_ts_seconds"),
    ),
)
NEXT_STEP = JoinWith(
    with_type=RobotLocationNextStep, left_expression=get_field("time") + 10, right_expression=get_field("time")
)
IN_WINDOWS = window(cls=RobotLocation, window_expression=get_field("time") // 30)

LOCATIONS = [{"time": time, "x": time / 2, "y": 0.0} for time in (0, 10, 20, 30, 40, 50, 60)]
AUDIO = [{"time_seconds": second, "data": 0.5} for second in (1, 3, 5)]
VIDEO = [
    {"time_ms": ms, "data": 0.5, "frame_index": index, "first_frame_ts_seconds": 1}
    for index, ms in enumerate((1000, 1500, 3100, 4000))
]
STREAMS: Mapping[type, list[dict[str, Any]]] = {
    RobotLocation: LOCATIONS,
    RobotLocationNextStep: LOCATIONS,
    AudioFrame: AUDIO,
    VideoFrame: VIDEO,
}


def files(folder: Path) -> JsonFileMessageBroker:
    """Every stream in a file of its name; output too."""
    for cls, rows in STREAMS.items():
        (folder / f"{cls.__name__}.json").write_text(json.dumps(rows))
    outputs = (RobotSpeed, InsideArea, AudioVideoFrame)
    return JsonFileMessageBroker({cls: folder / f"{cls.__name__}.json" for cls in (*STREAMS, *outputs)})


def output_of(folder: Path, spark: SparkSession, output: type, **declared: Any) -> Any:  # noqa: ANN401  # parsed JSON
    """The output of a mill that ran to its end."""
    store = stores.open("sqlite:///marks.db", folder=folder)
    WaterMill(broker=files(folder), name="mill", spark=spark, store=store, **declared).run()
    return json.loads((folder / f"{output.__name__}.json").read_text())


@pytest.mark.spark
def test_robot_speed_by_a_self_join(spark: SparkSession, tmp_path: Path) -> None:
    """The first example: each location with the one of the next time step; the last one has none."""
    tree = join_streams(RobotLocation, NEXT_STEP)
    rows = output_of(tmp_path, spark, RobotSpeed, process_func=calculate_robot_speed, join_tree=tree)
    assert rows == [{"time": time, "speed": 0.5} for time in (0, 10, 20, 30, 40, 50)]


@pytest.mark.spark
def test_one_stream_needs_no_more_than_its_function(spark: SparkSession, tmp_path: Path) -> None:
    """The simplest example: the stream is the type of the first argument."""
    rows = output_of(tmp_path, spark, InsideArea, process_func=is_inside_area)
    assert [row["inside"] for row in rows] == [True, True, True, True, True, False, False]


@pytest.mark.spark
def test_audio_and_video_are_joined_by_expressions(spark: SparkSession, tmp_path: Path) -> None:
    """Both trees of the seed: by time, and by the number of a frame."""
    (tmp_path / "time").mkdir()
    (tmp_path / "frame").mkdir()
    by_time = output_of(tmp_path / "time", spark, AudioVideoFrame, process_func=merge_audio_video, join_tree=BY_TIME)
    by_frame = output_of(tmp_path / "frame", spark, AudioVideoFrame, process_func=merge_audio_video, join_tree=BY_FRAME)
    assert by_time == [{"time_seconds": 1, "frames": [0, 1]}, {"time_seconds": 3, "frames": [2]}]
    assert by_frame == [{"time_seconds": second, "frames": [number]} for number, second in enumerate((1, 3, 5))]


@pytest.mark.spark
def test_windows_are_given_as_lists(spark: SparkSession, tmp_path: Path) -> None:
    """`List` in the signature, `window` in the declaration."""
    rows = output_of(tmp_path, spark, RobotSpeed, process_func=average_speed, stream_cls=IN_WINDOWS)
    assert rows == [{"time": 0, "speed": 0.5}, {"time": 30, "speed": 0.5}, {"time": 60, "speed": 0.0}]


@pytest.mark.spark
def test_windows_are_joined_too(spark: SparkSession, tmp_path: Path) -> None:
    """The mapping holds the partners of each element of the window; the last location has none and is left out."""
    tree = join_streams(IN_WINDOWS, NEXT_STEP)
    rows = output_of(tmp_path, spark, RobotSpeed, process_func=average_speed_of_steps, join_tree=tree)
    assert rows == [{"time": 0, "speed": 5.0}, {"time": 30, "speed": 5.0}]


@pytest.mark.spark
def test_a_connection_is_injected_by_its_type(spark: SparkSession, tmp_path: Path) -> None:
    """A function for its side effects alone; each task opens a connection of its own."""
    database = tmp_path / "path.db"
    with connect(database) as made:
        made.execute("create table path (time int, x real, y real)")
    made.close()
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    WaterMill(
        broker=files(tmp_path),
        process_func=store_robot_path,
        injector={Connection: lambda: connect(database, timeout=30)},
        spark=spark,
        store=store,
    ).run()
    found = connect(database)
    assert found.execute("select count(*), max(time) from path").fetchall() == [(7, 60)]
    found.close()


def test_brokers_are_made_as_in_the_seed() -> None:
    """A file or a topic per class; nothing is opened before a mill runs."""
    goods = JsonFileMessageBroker({GoodsItem: Path("/samples/goods.json")})
    topics = KafkaMessageBroker(
        topic_names={
            RobotLocation: "robot-locations",
            RobotLocationNextStep: "robot-locations",
            RobotSpeed: "robot-speed",
        },
        kafka_url="kafka:9092",
    )
    assert goods.inlet(GoodsItem).source.name == "GoodsItem"
    assert topics.inlet(RobotLocationNextStep).source.name == "RobotLocationNextStep"
    mill = WaterMill(topics, calculate_robot_speed, join_tree=join_streams(RobotLocation, NEXT_STEP))
    assert mill.name == "calculate_robot_speed"
