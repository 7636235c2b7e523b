"""What a path or URL means: a folder on this machine's disks, or something a native driver has its own name for."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "az", "wasbs": "az"}
"""Hadoop's names of object stores, and what native readers call the same."""


def local_path(where: str) -> Path | None:
    """The absolute folder on a local disk, or None for a URL that leads elsewhere."""
    parts = urlsplit(where)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(where).expanduser().absolute() if not parts.scheme else None


def native_uri(where: str) -> str:
    """The place as a driver without Hadoop takes it."""
    local = local_path(where)
    if local is not None:
        return str(local)
    scheme, rest = where.split(":", 1)
    return f"{SCHEMES.get(scheme, scheme)}:{rest}"
