"""What the project file may say about tables with history: the latest row of each key, or every version."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from floodmark.jobs.kinds import Columns, PathOrTable, SinkModel, Site, Text

if TYPE_CHECKING:
    from floodmark.sinks.contract import Sink


class Scd1Sink(PathOrTable, SinkModel):
    """The latest row of each key, whatever the order in which events come."""

    type: Literal["scd1"]
    key: Columns = Field(description="the columns that tell what an event is about")
    sequence: Columns = Field(default=(), description="the moment from which an event holds, and what decides ties")
    track: Columns = Field(default=(), description="columns whose change counts; by default all")
    delete_when: Text | None = None
    ties: Literal["error", "quarantine", "last_arrival"] = "error"
    changes: Literal["log", "feed", "snapshot"] = "log"
    allow_empty: bool = False

    def build(self, site: Site) -> "Sink":
        from floodmark.sinks import Scd1

        fields = self.model_dump(exclude={"type", "name", "path", "table"})
        return Scd1(path=self.place(site), table=self.table, name=self.ledger_name(), **fields)


class Scd2Sink(Scd1Sink):
    """Every version of each key, with `valid_from`, `valid_to` and `is_current`."""

    type: Literal["scd2"]  # type: ignore[assignment]
    valid_from: Text | None = Field(default=None, description="the column that says when a key began")

    def build(self, site: Site) -> "Sink":
        from floodmark.sinks import Scd2

        fields = self.model_dump(exclude={"type", "name", "path", "table"})
        return Scd2(path=self.place(site), table=self.table, name=self.ledger_name(), **fields)
