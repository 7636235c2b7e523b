"""Streams in JSON files: an array of objects each, read from the beginning, written when the stream has ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from floodmark.mill.aliases import Stream, name_of
from floodmark.mill.brokers import Inlet, Outlet, place_of
from floodmark.mill.json_sink import JsonParts
from floodmark.mill.json_source import JsonArray


@dataclass(frozen=True)
class JsonFileMessageBroker:
    """The file of every stream, by the class of its elements; on a cluster, on a disk that all of it sees."""

    stream_paths: Mapping[Stream, str | os.PathLike[str]]

    def inlet(self, stream: Stream) -> Inlet:
        return Inlet(JsonArray(self._path(stream), name_of(stream)), ends="with_source")

    def outlet(self, stream: Stream) -> Outlet:
        sink = JsonParts(self._path(stream), name_of(stream))
        return Outlet(sink, publish=sink.publish)

    def _path(self, stream: Stream) -> Path:
        return Path(place_of(self.stream_paths, stream, broker="JsonFileMessageBroker")).absolute()
