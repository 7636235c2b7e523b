"""File names for jobs: two names that differ never share a file, on any disk."""

from __future__ import annotations

import hashlib

SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
LONGEST = 120


def file_name(name: str) -> str:
    """Lower case ASCII for every name; upper case is escaped too, since some disks do not tell `A` from `a`."""
    raw = name.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in SAFE else f"%{byte:02x}" for byte in raw) or "%"
    if len(text) <= LONGEST:
        return text
    # `~` is never in an escaped name, so a shortened one cannot be another's whole name
    return f"{text[:60]}~{hashlib.sha256(raw).hexdigest()}"
