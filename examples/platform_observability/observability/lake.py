"""Where everything lies: what arrived, the three layers, the marks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import floodmark as fm

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore

ROOT = Path(__file__).resolve().parents[1]
"""The folder of this example: its rules, tags, views and notebooks."""
HOME = "PLATFORM_HOME"


@dataclass(frozen=True)
class Lake:
    """One home folder with all that is stored: a local folder here, a volume on Databricks."""

    home: Path

    @classmethod
    def at(cls, home: str | Path | None = None) -> Lake:
        """The home that is named, or that of the environment, or a hidden folder where one stands."""
        return cls(Path(home or os.environ.get(HOME) or ".platform").absolute())

    def inside(self, path: str | None) -> str:
        return str(self.home / (path or ""))

    def incoming(self, table: str) -> str:
        return str(self.home / "incoming" / table)

    def has_arrived(self, table: str) -> bool:
        return Path(self.incoming(table)).is_dir()

    def bronze(self, table: str) -> str:
        return str(self.home / "bronze" / f"brz_{table}")

    def silver(self, table: str) -> str:
        return str(self.home / "silver" / table)

    def gold(self, table: str) -> str:
        return str(self.home / "gold" / table)

    def quarantine(self, job: str) -> str:
        return str(self.home / "quarantine" / job)

    def store(self) -> MarkStore:
        """The marks, unless somebody brings a store."""
        self.home.mkdir(parents=True, exist_ok=True)
        return fm.stores.open("sqlite:///marks.db", folder=self.home)
