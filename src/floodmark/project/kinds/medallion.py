"""What the project file may say about facts and dimensions: the tables of a fact, the members of a dimension."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from floodmark.project.kinds import Columns, Model, Name, PathOrTable, Site, SourceModel, Text

if TYPE_CHECKING:
    from floodmark.medallion.dimensions import Members
    from floodmark.sources.contract import Source


class FactTable(PathOrTable):
    """A table under the name that the SQL calls it by."""

    name: Name

    def fields(self, site: Site) -> dict[str, Any]:
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
        from floodmark.medallion.facts import FactRows, Lookup, TouchedDates

        lookups = tuple(Lookup(**each.fields(site)) for each in self.lookups)
        return TouchedDates(FactRows(**self.rows.fields(site)), lookups)


class DimensionMembers(Model):
    """Members with a surrogate key: a hash of the natural key, and of `valid_from` where the table has versions."""

    key: Text = Field(description="the column that the surrogate key gets")
    natural: Columns = Field(min_length=1, description="columns of a member that say who it is")
    columns: Mapping[Text, Text] = Field(min_length=1, description="by name, SQL over a row of the source")
    versions: bool = Field(default=True, description="whether the source has versions, as scd2 keeps them")
    keep_superseded: bool = Field(
        default=False, description="keep versions that a late event moved, with their successor, for frozen facts"
    )

    @model_validator(mode="after")
    def _names_its_own_columns(self) -> "DimensionMembers":
        missing = [name for name in self.natural if name not in self.columns]
        if missing:
            raise ValueError(f"`natural` names '{missing[0]}', and `columns` does not say what that is")
        if self.key in self.columns:
            raise ValueError(f"`columns` has '{self.key}', which is the surrogate key")
        if self.keep_superseded and not self.versions:
            raise ValueError("`keep_superseded` needs versions: members without them stay anyway")
        return self

    def build(self) -> "Members":
        """The transform itself."""
        from floodmark.medallion.dimensions import Members

        return Members(self.key, self.natural, dict(self.columns), self.versions, self.keep_superseded)
