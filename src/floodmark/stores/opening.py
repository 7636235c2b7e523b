"""Stores by their text: `memory`, `file:marks/`, `sqlite:///marks.db`, `postgresql://…`, or a list, nearest first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ConfigError, UnknownKind
from floodmark.locations import require_path
from floodmark.stores.contract import FolderStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from floodmark.stores.contract import LevelStore, MarkStore
    from floodmark.stores.layered import LayeredMarkStore

DEFAULT_STORE = "sqlite:///floodmark.db"
"""Of jobs, streams and mills in Python that name no store."""
PROJECT_STORE = "sqlite:///state/marks.db"
"""Of a project file that names none."""
HIDDEN_FOLDER = Path(".floodmark")
"""In the working folder, for what belongs to the marks of a store without a folder."""
STREAMS_FOLDER = "streams"
"""Beside the marks: the state of streams for which nobody says another place."""

Loader: TypeAlias = "Callable[[str, str, Path], LevelStore]"
"""Takes the whole text, the namespace and the folder that relative paths start from; imports its backend itself."""


def folder_beside(store: MarkStore) -> Path:
    """Where the next run finds again what belongs to the marks: beside them, or hidden in the working folder."""
    return (store.folder if isinstance(store, FolderStore) else HIDDEN_FOLDER).absolute()


def spool_folder(store: MarkStore) -> str:
    """Where a batch is frozen if nobody says otherwise."""
    return str(folder_beside(store) / "spool")


def _memory(text: str, namespace: str, folder: Path) -> LevelStore:
    from floodmark.stores.memory import MemoryMarkStore

    return MemoryMarkStore(namespace=namespace)


def _file(text: str, namespace: str, folder: Path) -> LevelStore:
    from floodmark.stores.file import FileMarkStore

    path = text.partition(":")[2]
    if path.startswith("//"):
        path = path.removeprefix("//")
    if not path:
        raise ConfigError(f"store '{text}' names no folder.", hint="file:marks/")
    return FileMarkStore(folder / require_path(path, "the store"), namespace=namespace)


def _sqlite(text: str, namespace: str, folder: Path) -> LevelStore:
    from floodmark.stores.sqlite import SqliteMarkStore

    path = text.removeprefix("sqlite:///")
    if path == text or not path or path.endswith("/"):
        raise ConfigError(f"store '{text}' names no database file.", hint="sqlite:///marks.db, or sqlite:////full/path")
    return SqliteMarkStore(folder / require_path(path, "the store"), namespace=namespace)


def _postgres(text: str, namespace: str, folder: Path) -> LevelStore:
    from floodmark.stores.postgres import PostgresMarkStore

    return PostgresMarkStore(text, namespace=namespace)


LOADERS: dict[str, Loader] = {
    "memory": _memory,
    "file": _file,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
}
"""Scheme to loader; a backend of another package adds itself with `register`."""


def register(scheme: str, loader: Loader) -> None:
    """Make a store known by the scheme of its text.

    >>> register("ram", lambda text, namespace, folder: fm.stores.MemoryMarkStore(namespace=namespace))
    >>> fm.stores.open("ram:", namespace="dev").namespace
    'dev'
    """
    LOADERS[scheme] = loader


def open(  # noqa: A001 - it is read as stores.open
    store: str | Sequence[str], *, namespace: str = "default", folder: str | Path | None = None
) -> LevelStore | LayeredMarkStore:
    """The store of a text, or of a list of texts as levels; relative paths start from `folder` (the working folder).

    >>> open("memory", namespace="dev").jobs()
    []
    """
    start = Path(folder) if folder is not None else Path()
    if isinstance(store, str):
        return _open_one(store, namespace, start)
    schemes = [_scheme(text) for text in store]
    doubled = sorted({scheme for scheme in schemes if schemes.count(scheme) > 1})
    if doubled or not schemes:
        what = f"store type '{doubled[0]}' stands twice in the list" if doubled else "the list of stores is empty"
        raise ConfigError(f"{what}.", hint=f"one level of each: {', '.join(sorted(LOADERS))}")
    levels = [_open_one(text, namespace, start) for text in store]
    if len(levels) == 1:
        return levels[0]
    from floodmark.stores.layered import LayeredMarkStore

    return LayeredMarkStore(levels)


def _open_one(text: str, namespace: str, folder: Path) -> LevelStore:
    return LOADERS[_scheme(text)](text, namespace, folder)


def _scheme(text: str) -> str:
    scheme = text.partition(":")[0]
    if scheme not in LOADERS:
        # the scheme alone is shown: the rest may hold a password
        raise unknown_store(text)
    return scheme


def unknown_store(text: str, where: str = "") -> UnknownKind:
    """The error for a text whose kind nobody knows: of a path it shows all, of anything else, which may hold a
    password, how it begins."""
    kind = text.partition(":")[0]
    error = UnknownKind("store", kind, known=sorted(LOADERS), where=where)
    if kind == text and text.endswith((".db", ".sqlite", ".sqlite3")):
        error.hint = f"write sqlite:///{text}"
    elif kind == text and "/" in text:
        error.hint = f"write sqlite:///{text.rstrip('/')}/marks.db, or file:{text} for a file for each job"
    return error
