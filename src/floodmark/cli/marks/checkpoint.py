"""Marks out of a checkpoint of Spark Structured Streaming: how far its last committed batch had read.

The folder has a file per batch in `offsets/` when it is planned, and one in `commits/` when its sink is done. Only the
second says that rows were read for good. The offset of a Kafka source is the next one to read, by topic and partition.
That of a Delta source is a version and an index in it: below zero none of that version's files was read, a large index
that Delta calls its end means all of them, and one in between a part, which no version can say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.hwm import VersionHWM
from floodmark.inputs import parse_json, read_text
from floodmark.locations import arrow_place, is_remote

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from floodmark.sources import Delta, Kafka
    from floodmark.sources.contract import Source


KNOWN_VERSION = "v1"
END_INDEX = 2**63 - 1 - 100
"""Delta's index behind the last file of a version."""
FINISH = "let the stream finish what it has begun (trigger availableNow), stop it, and import again"


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint, read as it is now: stop its stream before."""

    folder: str

    def value_for(self, source: Source, session: Callable[[], SparkSession]) -> object:
        """What the job's source has read by this checkpoint. Raises ConfigError where it does not say so exactly."""
        from floodmark.sources import Delta, Kafka

        offsets = self.committed_offsets()
        if isinstance(source, Kafka):
            return self._kafka(source, offsets)
        if isinstance(source, Delta):
            return self._delta(source, offsets, session)
        raise ConfigError(
            f"source '{source.name}' is neither Kafka nor a Delta table.",
            hint="offsets of other sources say nothing outside of their stream: start the job with --from",
        )

    def uncommitted(self) -> int | None:
        """The batch that was planned and not committed, if there is one: its sink may have some of its rows."""
        planned, committed = self._batches("offsets"), self._batches("commits")
        return max(planned) if planned and (not committed or max(planned) > max(committed)) else None

    def committed_offsets(self) -> list[dict[str, Any]]:
        """The offsets of each source after the last committed batch. Raises ConfigError if there is none."""
        done = self._batches("commits") & self._batches("offsets")
        if not done:
            raise ConfigError(f"{self.folder} has no committed batch.", hint="name the folder of a checkpoint that ran")
        version, _, *lines = self._read(f"offsets/{max(done)}").splitlines()
        if version != KNOWN_VERSION:
            raise ConfigError(
                f"the offsets in {self.folder} are of format {version}, and {KNOWN_VERSION} is known.",
                hint="upgrade Floodmark, or start the job with --from",
            )
        try:
            return [offset for line in lines if isinstance(offset := parse_json(line), dict)]
        except ValueError as error:
            raise ConfigError(f"the offsets in {self.folder} are not JSON: {error}.", hint=FINISH) from error

    def _kafka(self, source: Kafka, offsets: list[dict[str, Any]]) -> object:
        wanted = set(source.topics)
        found = [each for each in offsets if wanted <= set(each) and all(isinstance(v, dict) for v in each.values())]
        [mine] = self._only_one(found, f"topic {', '.join(source.topics)}")
        nested = {topic: {int(place): int(next_one) for place, next_one in mine[topic].items()} for topic in wanted}
        return nested[source.topics[0]] if len(source.topics) == 1 else nested

    def _delta(self, source: Delta, offsets: list[dict[str, Any]], session: Callable[[], SparkSession]) -> VersionHWM:
        table = source.fingerprint(session)
        found = [each for each in offsets if f"table id {each.get('reservoirId')}" in table]
        [mine] = self._only_one(found, table)
        return VersionHWM(source.name, self._version(mine), entity=source.path or source.table)

    def _version(self, offset: Mapping[str, Any]) -> int:
        """The last version that was read as a whole."""
        version, index = int(offset["reservoirVersion"]), int(offset["index"])
        is_snapshot = bool(offset.get("isStartingVersion", offset.get("isInitialSnapshot", False)))
        if index >= END_INDEX and not is_snapshot:
            return version
        if index >= 0 or is_snapshot:
            what = f"its snapshot of version {version}" if is_snapshot else f"version {version}"
            raise ConfigError(f"{self.folder}: the stream has read a part of {what}.", hint=FINISH)
        if version == 0:
            raise ConfigError(f"{self.folder}: the stream has read nothing yet.", hint="run the job without a mark")
        return version - 1

    def _only_one(self, found: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
        if len(found) != 1:
            count = "no source" if not found else f"{len(found)} sources"
            raise ConfigError(f"{self.folder} has {count} of {what}.", hint="check that the job reads what it read")
        return found

    def _batches(self, log: str) -> set[int]:
        return {int(name) for name in self._names(log) if name.isdigit()}

    def _names(self, log: str) -> Iterator[str]:
        if not is_remote(self.folder):
            return (file.name for file in Path(self.folder, log).glob("*"))
        from pyarrow.fs import FileSelector

        system, path = arrow_place(self.folder)
        return (file.base_name for file in system.get_file_info(FileSelector(f"{path}/{log}", allow_not_found=True)))

    def _read(self, name: str) -> str:
        if not is_remote(self.folder):
            return read_text(Path(self.folder, name), hint="name the folder of a checkpoint that ran")
        system, path = arrow_place(self.folder)
        with system.open_input_stream(f"{path}/{name}") as stream:
            return bytes(stream.read()).decode()
