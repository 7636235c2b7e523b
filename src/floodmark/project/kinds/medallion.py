"""What the project file may say about the tables that a fact is built from."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from floodmark.jobs.kinds import Columns, Name, PathOrTable, Site, SourceModel, Text
from floodmark.jobs.python_names import load_name

if TYPE_CHECKING:
    from floodmark.sources.contract import Source

TOUCHED_DATES = "floodmark.medallion.fact_source:touched_dates"
"""Facts stand a layer above the project file, so they are found by their name, as a user's own source is."""


class FactTable(PathOrTable):
    """A table under the name that the SQL calls it by."""

    name: Name

    def given(self, site: Site) -> dict[str, Any]:
        """Its fields as the library takes them."""
        return {**self.model_dump(), "path": self.place(site)}


class RowsTable(FactTable):
    """The rows that are counted or summed, and the column that says to which date each belongs."""

    date: Text = "date_sk"


class LookupTable(FactTable):
    """A table that rows are joined to; with `at`, the rows' moment, to the version that was valid then."""

    on: Mapping[str, str] = Field(min_length=1)
    at: Text | None = None
    when_moved: Literal["restate", "freeze"] = "restate"
    columns: Columns = ()


class FactSource(SourceModel):
    """The tables of a fact: what changed in them says which dates are built again."""

    type: Literal["fact"]
    rows: RowsTable
    lookups: tuple[LookupTable, ...] = ()

    @model_validator(mode="after")
    def _names_of_their_own(self) -> "FactSource":
        twice = [name for name, times in Counter(self.names()).items() if times > 1]
        if twice:
            raise ValueError(f"two tables are called '{twice[0]}': give each a name of its own")
        return self

    def names(self) -> list[str]:
        """What the SQL may read; a fact without lookups has one table, which is also `source`."""
        return [self.rows.name, *(each.name for each in self.lookups)]

    def build(self, site: Site) -> "Source":
        made: Callable[..., Source] = load_name(TOUCHED_DATES, site.folder)  # type: ignore[assignment]
        return made(self.rows.given(site), [each.given(site) for each in self.lookups])
