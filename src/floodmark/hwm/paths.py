"""Paths of files as text: absolute and under their directory, on a disk or behind a scheme such as `s3a://bucket`."""

from __future__ import annotations

import os
import re

from floodmark.errors import MarkInvalid

_ROOT = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?(?=/)")


def directory_path(kind: str, path: object) -> str:
    """The absolute path of a directory, without the slash at its end."""
    text = _text(kind, path)
    found = absolute_path(kind, text if text.endswith("/") else text + "/")
    return (found.rstrip("/") or "/") if found.startswith("/") else found[:-1]


def file_path(kind: str, path: object, directory: str | None) -> str:
    """The absolute path of a file below the directory; any other is refused, also if it leaves it by `..`."""
    found = absolute_path(kind, _text(kind, path))
    if directory is not None and not found.startswith(directory if directory == "/" else directory + "/"):
        raise MarkInvalid(kind, path, reason=f"it is not under {directory}")
    return found


def absolute_path(kind: str, path: str) -> str:
    """The path without `.` and `..`; a relative one is refused."""
    local = path.startswith("/")
    if local and "/." not in path and "//" not in path:
        return path
    root = _ROOT.match(path)
    if not root:
        raise MarkInvalid(kind, path, reason="a path must be absolute")
    return f"{root[0]}/{'/'.join(_segments(kind, path[root.end() + 1 :], local))}"


def _segments(kind: str, path: str, local: bool) -> list[str]:
    kept: list[str] = []
    for segment in path.split("/"):
        # `a//b` is `a/b` on a disk, but another object in an object store.
        if segment == "." or (local and not segment):
            continue
        if segment == ".." and not kept:
            raise MarkInvalid(kind, path, reason="it leads above the root")
        kept.pop() if segment == ".." else kept.append(segment)
    return kept


def _text(kind: str, path: object) -> str:
    if isinstance(path, str):
        return path
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise MarkInvalid(kind, path, reason="a path is text")
    return text
