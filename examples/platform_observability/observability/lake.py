"""Where everything lies: the system tables, the three layers, the views, the marks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import floodmark as fm
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore

ROOT = Path(__file__).resolve().parents[1]
"""The folder of this example: its rules, tags, views and notebooks."""
HOME, CATALOG, SCHEMA, MARKS = "PLATFORM_HOME", "PLATFORM_CATALOG", "PLATFORM_SCHEMA", "PLATFORM_MARKS"


@dataclass(frozen=True)
class Lake:
    """One home with all that is stored: a local folder here, an external location on Databricks.

    `catalog` has the system tables, and is called `system` on Databricks. `schema` is where tables and views get their
    names. `marks` is a store that outlives the cluster; without it the marks lie in the home, which a local disk is.
    """

    home: str
    catalog: str = "spark_catalog"
    schema: str = "observability"
    marks: str | None = None

    @classmethod
    def at(cls, home: str | Path | None = None, **others: str | None) -> Lake:
        """What is named, else what the environment says, else a hidden folder where one stands."""
        where = str(home or os.environ.get(HOME) or ".platform")
        names: Mapping[str, str] = {"catalog": CATALOG, "schema": SCHEMA, "marks": MARKS}
        given = {name: others.get(name) or os.environ.get(variable) for name, variable in names.items()}
        is_url = bool(urlsplit(where).scheme)
        return cls(where if is_url else str(Path(where).absolute()), **{n: v for n, v in given.items() if v})

    @property
    def disk(self) -> Path | None:
        """The home as a folder; None if it is an external location, where no plain file can be written."""
        return None if urlsplit(self.home).scheme else Path(self.home)

    def inside(self, path: str | None) -> str:
        return f"{self.home}/{path}" if path else self.home

    def system(self, table: str) -> str:
        """Where the made-up system tables are, if this lake has any."""
        return self.inside(f"system/{table.replace('.', '/')}")

    def bronze(self, table: str) -> str:
        return self.inside(f"bronze/brz_{table}")

    def silver(self, table: str) -> str:
        return self.inside(f"silver/{table}")

    def gold(self, table: str) -> str:
        return self.inside(f"gold/{table}")

    def views(self) -> str:
        """Where the rows of views are kept if no catalog keeps the views themselves."""
        return self.inside("views")

    def quarantine(self, job: str) -> str:
        return self.inside(f"quarantine/{job}")

    def store(self, given: MarkStore | None = None) -> MarkStore:
        """The marks: where a parameter says, else in a store that is given, else in the home, if that is a disk."""
        if self.marks:
            return fm.stores.open(self.marks)
        if given is not None:
            return given
        if self.disk is None:
            raise ConfigError(
                f"the marks cannot lie in {self.home}, and the disk of a cluster goes with it.",
                hint="give the parameter marks: postgresql://…, or file:/Volumes/main/observability/marks",
            )
        self.disk.mkdir(parents=True, exist_ok=True)
        return fm.stores.open("sqlite:///marks.db", folder=self.disk)
