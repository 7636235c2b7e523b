"""The table of the specification: streams in, rows out; each case serves every broker and every test that wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, List  # noqa: UP035  # as the seed's users write it

from floodmark.mill import JoinWith, get_field, join_streams, window


@dataclass(frozen=True)
class L:
    """An element of the master."""

    k: int
    name: str


@dataclass(frozen=True)
class R:
    """An element of the joined stream."""

    k: int
    name: str


@dataclass(frozen=True)
class S:
    """An element of another joined stream."""

    k: int
    name: str


@dataclass(frozen=True)
class Joined:
    """A master element and the names of its partners."""

    k: int
    names: List[str]  # noqa: UP006  # the same


@dataclass(frozen=True)
class Location:
    """Where a robot is."""

    time: int
    x: float


@dataclass(frozen=True)
class NextLocation:
    """The same stream, read as what comes next."""

    time: int
    x: float


@dataclass(frozen=True)
class Speed:
    """How fast it went."""

    time_from: int
    time_to: int
    speed: float


@dataclass(frozen=True)
class Size:
    """How many elements a window had, and its first time."""

    time: int
    size: int


@dataclass(frozen=True)
class AudioFrame:
    """Sound of one second."""

    time_seconds: int
    data: float


@dataclass(frozen=True)
class VideoFrame:
    """A picture."""

    time_ms: int
    data: float


@dataclass(frozen=True)
class AudioVideoFrame:
    """Sound, and how many pictures go with it."""

    time_seconds: int
    pictures: int


def join_names(left: L, rights: Mapping[L, list[R]]) -> Joined:
    return Joined(left.k, [right.name for right in rights[left]])


def join_two(left: L, rights: Mapping[L, list[R]], others: Mapping[L, list[S]]) -> Joined:
    return Joined(left.k, [each.name for each in [*rights[left], *others[left]]])


def identity(left: L) -> Joined:
    return Joined(left.k, [left.name])


def robot_speed(before: Location, after: Mapping[Location, list[NextLocation]]) -> Iterator[Speed]:
    for following in after[before]:
        passed = following.time - before.time
        yield Speed(before.time, following.time, abs(following.x - before.x) / passed)


def window_size(locations: list[Location]) -> Size:
    return Size(locations[0].time, len(locations))


def merge_audio_video(audio: AudioFrame, video: Mapping[AudioFrame, list[VideoFrame]]) -> AudioVideoFrame:
    return AudioVideoFrame(audio.time_seconds, len(video[audio]))


@dataclass(frozen=True)
class Case:
    """What goes in by stream, the declaration, and the rows that come out, in order."""

    name: str
    streams: Mapping[type, list[dict[str, Any]]]
    process: Callable[..., Any]
    output: type
    expected: list[dict[str, Any]]
    declared: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


BY_K = {"join_tree": join_streams(L, JoinWith(R, get_field("k"), get_field("k")))}
BY_K_TWICE = {
    "join_tree": join_streams(
        L, JoinWith(R, get_field("k"), get_field("k")), JoinWith(S, get_field("k"), get_field("k"))
    )
}
SELF_JOIN = {"join_tree": join_streams(Location, JoinWith(NextLocation, get_field("time") + 10, get_field("time")))}
WINDOWS = {"stream_cls": window(cls=Location, window_expression=get_field("time") // 30)}
FRAMES = {
    "join_tree": join_streams(AudioFrame, JoinWith(VideoFrame, get_field("time_seconds"), get_field("time_ms") // 1000))
}


def keyed(letter: str, *keys: int) -> list[dict[str, Any]]:
    return [{"k": key, "name": f"{letter}{number}"} for number, key in enumerate(keys)]


def joined(*rows: tuple[int, list[str]]) -> list[dict[str, Any]]:
    return [{"k": key, "names": names} for key, names in rows]


def locations(*times: int) -> list[dict[str, Any]]:
    return [{"time": time, "x": time * 2.0} for time in times]


CASES = [
    Case(
        "one to one",
        {L: keyed("l", 1, 2, 3), R: keyed("r", 1, 2, 3)},
        join_names,
        Joined,
        joined((1, ["r0"]), (2, ["r1"]), (3, ["r2"])),
        BY_K,
    ),
    Case(
        "several partners",
        {L: keyed("l", 1, 2, 3), R: keyed("r", 1, 1, 2, 3, 3)},
        join_names,
        Joined,
        joined((1, ["r0", "r1"]), (2, ["r2"]), (3, ["r3", "r4"])),
        BY_K,
    ),
    Case(
        "the right begins before the master",
        {L: keyed("l", 3, 4), R: keyed("r", 1, 2, 3, 4)},
        join_names,
        Joined,
        joined((3, ["r2"]), (4, ["r3"])),
        BY_K,
    ),
    Case(
        "the right begins after the master",
        {L: keyed("l", 1, 2, 3), R: keyed("r", 3)},
        join_names,
        Joined,
        joined((3, ["r0"])),
        BY_K,
    ),
    Case(
        "masters with an equal key share their partners",
        {L: keyed("l", 1, 1, 2), R: keyed("r", 1, 2)},
        join_names,
        Joined,
        joined((1, ["r0"]), (1, ["r0"]), (2, ["r1"])),
        BY_K,
    ),
    Case("the right is empty", {L: keyed("l", 1, 2), R: []}, join_names, Joined, [], BY_K),
    Case(
        "a self-join for speed",
        {Location: locations(0, 10, 20, 30, 40, 50, 60), NextLocation: locations(0, 10, 20, 30, 40, 50, 60)},
        robot_speed,
        Speed,
        [{"time_from": time, "time_to": time + 10, "speed": 2.0} for time in (0, 10, 20, 30, 40, 50)],
        SELF_JOIN,
    ),
    Case(
        "windows and the tail",
        {Location: locations(0, 10, 20, 30, 40, 50, 60)},
        window_size,
        Size,
        [{"time": 0, "size": 3}, {"time": 30, "size": 3}, {"time": 60, "size": 1}],
        WINDOWS,
    ),
    Case(
        "a window whose key is 0 counts",
        {Location: locations(0, 10, 20)},
        window_size,
        Size,
        [{"time": 0, "size": 3}],
        WINDOWS,
    ),
    Case(
        "an expression on the right",
        {
            AudioFrame: [{"time_seconds": second, "data": 0.5} for second in (1, 2, 3)],
            VideoFrame: [{"time_ms": ms, "data": 0.5} for ms in (900, 1000, 1500, 1999, 2000, 2500, 3100)],
        },
        merge_audio_video,
        AudioVideoFrame,
        [{"time_seconds": 1, "pictures": 3}, {"time_seconds": 2, "pictures": 2}, {"time_seconds": 3, "pictures": 1}],
        FRAMES,
    ),
    Case(
        "two streams joined to one",
        {L: keyed("l", 1, 2, 3), R: keyed("r", 1, 2, 3), S: keyed("s", 1, 3)},
        join_two,
        Joined,
        joined((1, ["r0", "s0"]), (3, ["r2", "s1"])),
        BY_K_TWICE,
    ),
    Case(
        "one stream alone",
        {L: keyed("l", 1, 2, 3)},
        identity,
        Joined,
        joined((1, ["l0"]), (2, ["l1"]), (3, ["l2"])),
    ),
]
