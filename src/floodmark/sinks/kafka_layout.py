"""How a batch is spread over a topic's partitions and writers: settled with its intent, the same at every attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.hwm import Json


@dataclass(frozen=True)
class Layout:
    """Rows of one key go through one writer; partitions that are added later are not used by this batch.

    `ends` are the next offsets when the batch was intended: whatever is written of it lies at or above them, which is
    how a lost ledger is made good. `token` names this very intent, so that half a batch is only continued by its own.
    """

    partitions: int
    writers: int
    ends: tuple[int, ...]
    token: str

    def pages_of(self, writer: int) -> list[int]:
        """The partitions under whose numbers the ledger keeps this writer's page; its rows may go to any."""
        return list(range(writer, self.partitions, self.writers))

    def to_json(self) -> dict[str, Json]:
        return {
            "partitions": self.partitions,
            "writers": self.writers,
            "ends": list(self.ends),
            "token": self.token,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Layout:
        return cls(stored["partitions"], stored["writers"], tuple(stored["ends"]), stored["token"])
