"""Errors of sources and of what they hold."""

from __future__ import annotations

from floodmark.errors.root import FloodmarkError


class SourceUnreadable(FloodmarkError):
    """The source could not be looked at; this is never taken for "no rows"."""

    def __init__(self, source: str, *, reason: str, hint: str = "check that it is there and may be read") -> None:
        super().__init__(f"{source} cannot be read: {reason}.", hint=hint)
        self.source, self.reason = source, reason


class RecordMalformed(SourceUnreadable):
    """A record that cannot be parsed, and no dead letters to keep it in."""

    def __init__(self, source: str, *, file: str, line: int | None, text: str) -> None:
        place = f"{file}, line {line}" if line else file
        super().__init__(
            source,
            reason=f"malformed record in {place}: {text[:120]!r}",
            hint="mend the record, or add `dead_letters: {path: …}` to the job to put such records aside",
        )
        self.file, self.line, self.text = file, line, text


class ElementInvalid(FloodmarkError):
    """An element of a stream does not fit its class; `position` is empty while nobody has said where it stands."""

    def __init__(self, stream: str, *, field: str, reason: str, position: str = "") -> None:
        where = f" at {position}" if position else ""
        what = f", field {field}" if field else ""
        super().__init__(
            f"element of {stream}{where}{what}: {reason}.",
            hint="mend the element, change the class, or give WaterMill a deserializer for it",
        )
        self.stream, self.field, self.reason, self.position = stream, field, reason, position

    def at(self, position: str) -> ElementInvalid:
        """The same error, told where the element stands."""
        return ElementInvalid(self.stream, field=self.field, reason=self.reason, position=position)

    def __reduce__(self) -> tuple[object, ...]:
        """It is raised beside the data and has to come back to the driver."""
        return _element_invalid, (self.stream, self.field, self.reason, self.position)


def _element_invalid(stream: str, field: str, reason: str, position: str) -> ElementInvalid:
    return ElementInvalid(stream, field=field, reason=reason, position=position)


class ElementFailed(FloodmarkError):
    """A process function raised; nothing of this turn was written."""

    def __init__(self, stream: str, *, position: str, reason: str, element: str = "") -> None:
        what = f" ({element})" if element else ""
        super().__init__(
            f"the process function failed on the element of {stream} at {position}{what}: {reason}.",
            hint="mend the function, or the element, and run again: the same turn is tried anew",
        )
        self.stream, self.position, self.reason, self.element = stream, position, reason, element


class KeyDecreased(FloodmarkError):
    """A key is lower than one before it in its partition: what it belongs to was joined already."""

    def __init__(self, stream: str, *, position: str, key: str, before: str) -> None:
        super().__init__(
            f"element of {stream} at {position}: its key {key} is lower than {before} before it.",
            hint="keys must not decrease within a partition: order the stream by its key, or join by another one",
        )
        self.stream, self.position, self.key, self.before = stream, position, key, before
