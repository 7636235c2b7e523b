"""Which data files a Delta table would need to be as it was, and which of them are no longer there."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from floodmark.probes.delta_stand import stand_at
from floodmark.probes.places import native_uri


def files_gone(where: str, version: int, latest: int) -> tuple[str, ...] | None:
    """Files of a version that the latest one does not have, and that are not in the table's folder any more.

    None if the log no longer reaches back to the version. Files that lie outside the folder (of a shallow clone) are
    another table's, and are not looked for.
    """
    then, now = stand_at(where, version), stand_at(where, latest)
    if then is None or now is None:
        return None
    given_up = [unquote(path) for path in then.files.keys() - now.files.keys() if not urlsplit(path).scheme]
    return _absent(where, sorted(given_up)) if given_up else ()


def _absent(where: str, paths: list[str]) -> tuple[str, ...]:
    """One question per file: what vacuum took away is nowhere in the log."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import FileType, PyFileSystem

    found = PyFileSystem(DeltaStorageHandler(native_uri(where))).get_file_info(paths)
    return tuple(each.path for each in found if each.type == FileType.NotFound)
