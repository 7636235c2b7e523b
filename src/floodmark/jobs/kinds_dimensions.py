"""What the project file may say about a dimension: how rows of a silver table become its members."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from floodmark.jobs.kinds import Columns, Model, Site, Text
from floodmark.jobs.python_names import load_name

if TYPE_CHECKING:
    from floodmark.sinks.contract import Sink
    from floodmark.step.transform import Transform

MEMBERS, GUARDED = "floodmark.medallion.dimension:Members", "floodmark.medallion.dimension:guarded"
"""Dimensions stand a layer above the project file, so they are found by their name, as facts are."""


class DimensionMembers(Model):
    """Members with a surrogate key: a hash of the natural key, and of `valid_from` where the table has versions."""

    key: Text = Field(description="the column that the surrogate key gets")
    natural: Columns = Field(min_length=1, description="columns of a member that say who it is")
    columns: Mapping[Text, Text] = Field(min_length=1, description="by name, SQL over a row of the source")
    versions: bool = Field(default=True, description="whether the source has versions, as scd2 keeps them")

    @model_validator(mode="after")
    def _names_its_own_columns(self) -> "DimensionMembers":
        missing = [name for name in self.natural if name not in self.columns]
        if missing:
            raise ValueError(f"`natural` names '{missing[0]}', and `columns` does not say what that is")
        if self.key in self.columns:
            raise ValueError(f"`columns` has '{self.key}', which is the surrogate key")
        return self

    def build(self, site: Site) -> "Transform":
        """The transform itself."""
        made: Callable[..., Transform] = load_name(MEMBERS, site.folder)  # type: ignore[assignment]
        return made(self.key, self.natural, dict(self.columns), self.versions)

    def guarded(self, sink: "Sink", site: Site) -> "Sink":
        """The table as it refuses a member whose key it has for another one."""
        keep: Callable[[Transform, Sink], Sink] = load_name(GUARDED, site.folder)  # type: ignore[assignment]
        return keep(self.build(site), sink)
