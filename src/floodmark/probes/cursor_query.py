"""What a source reads from: a table by name, or a user's query in which :after, :upto and :first_run are put."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from floodmark.errors import ConfigError

SKIPPED = r"""
    [eE]'(?:[^'\\]|\\.|'')*'          # a text with backslashes
  | '(?:[^']|'')*'                    # a text
  | "(?:[^"]|"")*"                    # a name
  | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$   # a text in dollars
  | --[^\n]*                          # a comment to the end of the line
  | /\*.*?\*/                         # a comment
"""
PLACE = re.compile(rf"{SKIPPED}|(?<![\w:\]])(?P<place>:(?P<name>after|upto|first_run)\b)", re.VERBOSE | re.DOTALL)
QUESTION = re.compile(rf"{SKIPPED}|(?P<place>\?)", re.VERBOSE | re.DOTALL)
PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')


@dataclass(frozen=True)
class Relation:
    """A table or a query, exactly one of both."""

    table: str | None = None
    query: str | None = None

    def __post_init__(self) -> None:
        if (self.table is None) == (self.query is None):
            raise ConfigError("a source reads a table or a query.", hint="give either table or query")
        named = self.named
        if len(named & {"after", "upto"}) == 1 or named == {"first_run"}:
            raise ConfigError(
                f"the query names {', '.join(f':{name}' for name in sorted(named))} only.",
                hint="name both :after and :upto, or neither: then the bounds are put around the query",
            )

    @property
    def is_bounded(self) -> bool:
        """Whether the query applies the bounds itself."""
        return "after" in self.named

    @cached_property
    def named(self) -> set[str]:
        """Which of :after, :upto and :first_run the query names."""
        return {found["name"] for found in PLACE.finditer(self.query or "") if found["name"]}

    def sql(self, quote: Callable[[str], str], values: Mapping[str, str]) -> str:
        """What stands behind FROM; `values` are literals for the names in the query."""
        if self.table is not None:
            return ".".join(map(quote, self.parts()))
        filled = PLACE.sub(lambda found: values[found["name"]] if found["name"] else found[0], self.query or "")
        return f"({filled.strip().rstrip(';')}\n)"  # on a line of its own: the query may end in a comment

    def parts(self) -> tuple[str, ...]:
        """The table's name, piece by piece: `public.orders`, or with `"…"` around a piece that has a dot."""
        found = PART.findall(self.table or "")
        parts = tuple(quoted.replace('""', '"') or plain for quoted, plain in found)
        if not parts or not re.fullmatch(rf"(?:{PART.pattern})(?:\.(?:{PART.pattern}))*", self.table or ""):
            raise ConfigError(f"table: {self.table!r} is not the name of a table.", hint="write it like public.orders")
        return parts


def for_jdbc(sql: str) -> str:
    """The statement with its question marks doubled, since JDBC would take each for a parameter."""
    return QUESTION.sub(lambda found: "??" if found["place"] else found[0], sql)
