"""Text that comes in from outside: files, JSON and SQL here, YAML beside; each within bounds, or refused by name.

Nothing here knows what the text means. The bounds lie far above what people write by hand, and keep any text from
costing more than about a second and some hundred megabytes.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from sqlglot import Token, exp
    from sqlglot.errors import SqlglotError

MEBIBYTE = 2**20
LARGEST_FILE = 64 * MEBIBYTE
"""Of any text: marks with hundreds of thousands of files are exported in less."""
LARGEST_DOCUMENT = MEBIBYTE
"""Of what people write: some five thousand jobs, or a workflow of as many tasks."""
DEEPEST = 64
"""How many levels of lists and mappings may stand in each other; a project file has eight."""
LONGEST_SQL, MOST_TOKENS = 100_000, 25_000
"""Of one query: its characters, and the words and signs in it."""


def read_text(file: Path, *, hint: str, what: str = "", largest: int = LARGEST_FILE) -> str:
    """The text of a UTF-8 file, with or without a byte order mark. Raises ConfigError with the file, and the byte."""
    named = f"{what} {file}".lstrip()
    try:
        with file.open("rb") as stream:
            stored = stream.read(largest + 1)  # bounded: a device never ends
    except (OSError, ValueError) as error:  # ValueError: a path that no system call takes
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{named} cannot be read: {reason}.", hint=hint) from error
    if len(stored) > largest:
        raise ConfigError(f"{named} cannot be read: it is larger than {largest // MEBIBYTE} MiB.", hint=hint)
    try:
        return stored.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = error.start + len(stored) - len(error.object)  # a byte order mark that was taken off counts too
        line = stored.count(b"\n", 0, at) + 1
        reason = f"byte {at + 1} (0x{stored[at]:02X}, on line {line}) is not UTF-8"
        raise ConfigError(f"{named} cannot be read: {reason}.", hint="save it as UTF-8 text") from error


def parse_json(text: str, **settings: Any) -> Any:  # noqa: ANN401  (as json.loads)
    """As `json.loads`, with ValueError for every text that is not JSON, or is nested too deeply to be used."""
    try:
        found = json.loads(text, **settings)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    _require_shallow(found)
    return found


TOO_DEEP = f"more than {DEEPEST} lists and objects stand in each other"


def _require_shallow(value: object) -> None:
    level: list[object] = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    raise ValueError(TOO_DEEP)


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def parse_sql(sql: str, *, read: str | None = "spark", into: type[exp.Expr] | None = None) -> exp.Expr:
    """As `sqlglot.parse_one`, with sqlglot's ParseError for all that it cannot take: too long, or nested too deeply."""
    statements = _parse(sql, read, into)
    if not statements or statements[0] is None:
        raise _refused("there is no statement in it")
    return statements[0]


def parse_statements(sql: str, *, read: str | None = "spark") -> list[exp.Expr]:
    """As `sqlglot.parse`, the empty statements left out; raises as `parse_sql` does."""
    return [statement for statement in _parse(sql, read, None) if statement is not None]


def sql_tokens(sql: str, *, read: str | None = "spark") -> list[Token]:
    """As `sqlglot.tokenize`. Raises sqlglot's TokenError, or ParseError for a text that is too long."""
    return list(_tokens(sql, read))


def parse_mistake(error: SqlglotError) -> str:
    """What is wrong and where in the query; sqlglot's own text is coloured for a terminal, and names its classes."""
    listed = getattr(error, "errors", None)
    first = listed[0] if listed else {}
    if not first:
        return "the SQL cannot be parsed"
    near = f"line {first.get('line')}, column {first.get('col')}, near '{first.get('highlight')}'"
    said = str(first.get("description") or "it ends too early").rstrip(".")
    return f"the SQL cannot be parsed ({near}): {'something is missing here' if '<class' in said else said}"


def _parse(sql: str, read: str | None, into: type[exp.Expr] | None) -> list[exp.Expr | None]:
    from sqlglot.dialects.dialect import Dialect

    parser, tokens = Dialect.get_or_raise(read).parser(), list(_tokens(sql, read))
    try:
        return parser.parse_into(into, tokens, sql) if into else parser.parse(tokens, sql)
    except RecursionError:
        raise _refused("its brackets, cases or signs stand in each other too deeply") from None


@lru_cache(maxsize=8)  # a query is looked at from several sides, and most of its cost is here
def _tokens(sql: str, read: str | None) -> tuple[Token, ...]:
    import sqlglot

    if len(sql) > LONGEST_SQL:
        raise _refused(f"it has {len(sql):,} characters, and at most {LONGEST_SQL:,} are read")
    tokens = sqlglot.tokenize(sql, read=read)
    if len(tokens) > MOST_TOKENS:
        raise _refused(f"it has {len(tokens):,} words and signs, and at most {MOST_TOKENS:,} are read")
    return tuple(tokens)


def _refused(reason: str) -> Exception:
    from sqlglot.errors import ParseError

    return ParseError.new(f"the SQL cannot be parsed: {reason}", description=reason)
