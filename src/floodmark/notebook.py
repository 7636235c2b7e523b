"""How values show themselves in a notebook: small tables of HTML; every text is escaped, no secret is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from html import escape

from floodmark.logs import redact

TEXT_SHOWN = 300


def fact_table(title: str, facts: Mapping[str, object]) -> str:
    """One value: its name, and a row for each fact that there is."""
    known = {name: fact for name, fact in facts.items() if not is_nothing(fact)}
    rows = "".join(f"<tr>{_head(name)}{_field(fact)}</tr>" for name, fact in known.items())
    return f"<table><caption>{cell(title)}</caption><tbody>{rows}</tbody></table>"


def row_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Many values of one kind, a row each."""
    heads = "".join(map(_head, header))
    lines = "".join(f"<tr>{''.join(map(_field, row))}</tr>" for row in rows)
    return f"<table><caption>{cell(title)}</caption><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _head(name: str) -> str:
    return f'<th style="text-align:left">{cell(name)}</th>'


def _field(value: object) -> str:
    return f'<td style="text-align:left">{cell(value)}</td>'


def cell(value: object) -> str:
    """A value as escaped text, cut where nobody reads on."""
    text = redact(plain_text(value))
    return escape(text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}… ({len(text):,} characters)")


def plain_text(value: object) -> str:
    """A value as people write it: NULL for nothing, numbers with their thousands apart, moments in UTC."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return f"{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value if not isinstance(value, Mapping) else dict(value), ensure_ascii=False, default=str)
    return str(value)


def is_nothing(fact: object) -> bool:
    """Whether a fact is left out: None and what is empty; 0 is a fact."""
    return fact is None or (isinstance(fact, (str, Mapping, list, tuple)) and not fact)
