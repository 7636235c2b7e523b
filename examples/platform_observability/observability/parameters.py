"""What a notebook is told: the widgets of its task on Databricks, or nothing where it runs alone."""

from __future__ import annotations

from typing import Protocol

NAMES = ("home", "catalog", "schema", "marks")
"""The parameters of the workflow; an empty one leaves it to the environment, or to its default."""


class Widgets(Protocol):
    """The part of `dbutils.widgets` that is used."""

    def text(self, name: str, defaultValue: str, label: str | None = None) -> None: ...  # noqa: N803 - its name there
    def get(self, name: str) -> str: ...


def widgets_of(dbutils: object) -> dict[str, str]:
    """By name what the widgets hold."""
    widgets: Widgets | None = getattr(dbutils, "widgets", None)
    if widgets is None:
        return {}
    for name in NAMES:
        widgets.text(name, "")
    return {name: widgets.get(name) for name in NAMES}
