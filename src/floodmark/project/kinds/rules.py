"""What the project file may say about a quality rule: one condition, a name, and what happens to what breaks it."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from floodmark.hwm.parsing import seconds_in
from floodmark.project.kinds import Columns, Duration, Model, Site, Text

if TYPE_CHECKING:
    from floodmark.rules import Rule


Scalar = int | float | date | datetime | str
KINDS = (
    *("check", "not_null", "range", "accepted", "matches", "time_order"),
    *("unique", "references", "row_count", "fresh"),
)


class Range(Model):
    """Bounds, both included."""

    column: Text
    min: Scalar | None = None
    max: Scalar | None = None


class Accepted(Model):
    """The values a column may have."""

    column: Text
    values: tuple[bool | Scalar, ...]


class Matches(Model):
    """A regular expression that is found in the column."""

    column: Text
    pattern: Text


class TimeOrder(Model):
    """Two times, the first not after the second."""

    earlier: Text
    later: Text


class Unique(Model):
    """A key, unique in the batch and, where a table is given, against that table."""

    columns: Columns
    path: Text | None = None
    table: Text | None = None


def _as_key(value: object) -> object:
    """`unique: id` is `unique: {columns: [id]}`."""
    return {"columns": value} if isinstance(value, str | list | tuple) else value


Key = Annotated[Unique, BeforeValidator(_as_key, json_schema_input_type=Unique | Columns)]


class References(Model):
    """A key of another Delta table."""

    columns: Columns
    key: Columns
    path: Text | None = None
    table: Text | None = None


class RowCount(Model):
    """How many rows a batch has."""

    min: int = Field(default=1, ge=0)
    max: int | None = Field(default=None, ge=0)


class Fresh(Model):
    """How old the newest row may be."""

    column: Text
    within: Duration


class RuleModel(Model):
    """A quality rule: one condition, and what happens to rows that break it."""

    name: Text | None = None
    action: Literal["fail", "quarantine", "drop", "warn"] = "fail"
    check: Text | None = Field(default=None, description="SQL that is true for a good row; NULL is not")
    not_null: Columns | None = None
    range: Range | None = None
    accepted: Accepted | None = None
    matches: Matches | None = None
    time_order: TimeOrder | None = None
    unique: Key | None = None
    references: References | None = None
    row_count: RowCount | None = None
    fresh: Fresh | None = None

    @model_validator(mode="after")
    def _one_condition(self) -> "RuleModel":
        if len(self.conditions()) != 1:
            raise ValueError(f"give one condition: {', '.join(KINDS)}")
        return self

    def conditions(self) -> tuple[str, ...]:
        """The conditions that the file gives."""
        return tuple(kind for kind in KINDS if getattr(self, kind) is not None)

    def columns(self) -> tuple[str, ...]:
        """The columns that the rule names outright; those of a `check` stand in its SQL."""
        [kind] = self.conditions()
        facts = self._facts(kind)
        named = [facts.get(word) for word in ("column", "columns", "earlier", "later")]
        return tuple(column for each in named if each for column in ([each] if isinstance(each, str) else each))

    def build(self, site: Site) -> "Rule":
        """The rule itself. Raises ConfigError if its options contradict each other."""
        from floodmark import rules

        [kind] = self.conditions()
        facts: dict[str, Any] = {word: _exact(value) for word, value in self._facts(kind).items()}
        if facts.get("path"):
            facts["path"] = site.path(facts["path"])
        if "within" in facts:
            facts["within"] = timedelta(seconds=seconds_in(facts["within"], field="within"))
        named = {"name": self.name} if self.name else {}
        rule: Rule = getattr(rules, kind)(**facts, action=self.action, **named)
        return rule

    def _facts(self, kind: str) -> dict[str, Any]:
        """What the condition says, by the names of the rule's own fields."""
        value = getattr(self, kind)
        if isinstance(value, Model):
            return value.model_dump(exclude_none=True)
        return {"condition": value} if kind == "check" else {"columns": value}


def _exact(value: object) -> object:
    """0.1 in the file is meant as it is written, not as the nearest binary fraction."""
    return Decimal(str(value)) if isinstance(value, float) else value
