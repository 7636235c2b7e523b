"""Bytes of a record as text, in Base64, where they are kept in lines of JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode


def text_of(value: bytes | None) -> str | None:
    """Null stays null."""
    return None if value is None else b64encode(value).decode()


def bytes_of(text: str | None) -> bytes | None:
    """What `text_of` was given."""
    return None if text is None else b64decode(text)
