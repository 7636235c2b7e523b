"""A span: what one batch reads from one source, fixed before any row is read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.hwm.mark import HWM, Json, deserialize

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Span:
    """Everything above `after`, up to and with `upto`; `after` None reads from the beginning.

    `detail` is what the source needs to read exactly these rows again (a list of files, a pinned version).
    The mark after the batch is `mark.update(upto.value)`, so `upto` of an itemised kind names only what is new.
    """

    after: HWM[Any] | None
    upto: HWM[Any]
    detail: Mapping[str, Json] = field(default_factory=dict)

    def serialize(self) -> dict[str, Json]:
        after = self.after.serialize() if self.after else None
        return {"after": after, "upto": self.upto.serialize(), "detail": dict(self.detail)}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Span:
        after = deserialize(stored["after"]) if stored["after"] else None
        return cls(after, deserialize(stored["upto"]), stored["detail"])


def digest(spans: Mapping[str, Span]) -> str:
    """A short text that two batches share only if they read the same rows."""

    def without_time(span: Span) -> dict[str, Json]:
        stored: dict[str, Any] = span.serialize()
        for end in ("after", "upto"):
            stored[end] = stored[end] and {k: v for k, v in stored[end].items() if k != "modified_time"}
        return stored

    text = json.dumps({name: without_time(span) for name, span in spans.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
