"""A mark on a text column, whose order is that of the bytes and says so."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from floodmark.errors import MarkInvalid
from floodmark.hwm.columns import ColumnHWM
from floodmark.hwm.kinds import register
from floodmark.hwm.mark import NOT_GIVEN, Json

if TYPE_CHECKING:
    from datetime import datetime

BYTE_ORDERS = ("C", "POSIX", "C.UTF-8", "ucs_basic", "BINARY", "UTF8_BINARY")
"""The names under which databases and Spark sort text by its bytes; the order of any other is theirs alone."""

_UUID = re.compile(
    r"[{]?[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}[}]?", re.IGNORECASE
)
_VERSIONS_WITHOUT_ORDER = "12345"


@register
@dataclass(frozen=True, init=False, eq=False, repr=False)
class ColumnTextHWM(ColumnHWM[str]):
    """A text that grows, such as a ULID or a UUIDv7; `collation` names the order that the source must use with it."""

    kind: ClassVar[str] = "column_text"

    collation: str

    def __init__(
        self,
        name: str,
        value: object = NOT_GIVEN,
        *,
        collation: str = "C",
        entity: str | None = None,
        expression: str | None = None,
        description: str = "",
        modified_time: datetime | str | None = None,
        **alias: str | None,
    ) -> None:
        if collation not in BYTE_ORDERS:
            known = ", ".join(BYTE_ORDERS)
            raise MarkInvalid(self.kind, collation, reason=f"only the database knows this order; compare by {known}")
        vars(self).update(collation=collation)
        super().__init__(
            name,
            value,
            entity=entity,
            expression=expression,
            description=description,
            modified_time=modified_time,
            **alias,
        )

    def means_none(self, value: object) -> bool:
        return value is None  # the text "null" is a text here

    def read(self, value: object) -> str:
        text = str(value) if isinstance(value, UUID) else value
        if not isinstance(text, str):
            raise MarkInvalid(self.kind, value, reason="not text")
        found = _UUID.fullmatch(text)
        if found and found[1] in _VERSIONS_WITHOUT_ORDER:
            raise MarkInvalid(
                self.kind, value, reason=f"a UUID of version {found[1]} does not grow, so rows would be missed"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MarkInvalid(self.kind, value, reason="not valid Unicode") from error
        return text  # Python compares by code points, which is the order of the UTF-8 bytes

    def serialize(self) -> dict[str, Json]:
        return {**super().serialize(), "collation": self.collation}
