"""Marks of etl-entities in the stores of Floodmark: for its door, and for programs that run with the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from floodmark import stores
from floodmark.hwm import HWM, FileListHWM, FileModifiedTimeHWM, deserialize
from floodmark.stores import MarkStore


class OpenedStore:
    """A store of Floodmark that takes and gives the dicts of etl-entities; opened by its first use."""

    def __init__(self, url: str | Sequence[str], namespace: str) -> None:
        self.url, self.namespace = url, namespace
        self._opened: MarkStore | None = None

    def get(self, name: str) -> dict[str, Any] | None:
        """The mark of that name as etl-entities writes it, or None."""
        mark = self._store.get_hwm(name)
        return None if mark is None else to_etl_entities(mark)

    def set(self, fields: Mapping[str, Any]) -> str:
        """Keep the mark, durably, and say where."""
        self._store.set_hwm(from_etl_entities(fields))
        return self.describe()

    def describe(self) -> str:
        """Where the marks are, without a secret."""
        return self._store.describe()

    def close(self) -> None:
        """Let go of files and connections; a later use opens them again. What is only in memory stays there."""
        if self._opened is not None and self.url != "memory":
            self._opened.close()
            self._opened = None

    @property
    def _store(self) -> MarkStore:
        if self._opened is None:
            self._opened = stores.open(self.url, namespace=self.namespace)
        return self._opened


def hwm_store_class(base: Any, registry: Any) -> type[Any]:  # noqa: ANN401  (the original's classes, or the door's)
    """A store for etl-entities, below its `BaseHWMStore`, that keeps its marks in a store of Floodmark."""

    class FloodmarkHWMStore(base):  # type: ignore[misc]  # known only where it is called
        """Keeps marks where `floodmark marks` shows them, and where no crash leaves half a mark."""

        url: str | list[str]
        namespace: str = "default"

        def __init__(self, url: str | Sequence[str], namespace: str = "default") -> None:
            super().__init__(url=url, namespace=namespace)
            # not a field: pydantic would copy, compare and print it
            object.__setattr__(self, "_opened", OpenedStore(self.url, self.namespace))

        def get_hwm(self, name: str) -> Any:  # noqa: ANN401  (a mark of that registry, or None)
            fields = self._opened.get(name)
            return registry.parse(fields) if fields else None

        def set_hwm(self, hwm: Any) -> str:  # noqa: ANN401  (a mark of that registry)
            return str(self._opened.set(hwm.serialize()))

        def __exit__(self, *failure: object) -> None:
            super().__exit__(*failure)
            self._opened.close()

        def __repr__(self) -> str:
            return f"FloodmarkHWMStore({self._opened.describe()})"  # a url may hold a password

        def _log_parameters(self) -> None:
            """Without the original's list of options: a url may hold a password."""

    return FloodmarkHWMStore


def from_etl_entities(fields: Mapping[str, Any]) -> HWM[Any]:
    """The immutable mark; raises UnknownKind for a type that Floodmark does not have."""
    # There a time without a zone is of this machine's zone; here every time has one.
    modified_time = datetime.fromisoformat(fields["modified_time"].replace("Z", "+00:00")).astimezone()
    return deserialize({**fields, "modified_time": modified_time})


def to_etl_entities(mark: HWM[Any]) -> dict[str, Any]:
    """What etl-entities reads back; of a file's size and time, and of a path beside a time, it knows nothing."""
    here = mark.modified_time.astimezone().replace(tzinfo=None)
    return {**mark.serialize(), "value": _value(mark), "modified_time": here.isoformat()}


def _value(mark: HWM[Any]) -> object:
    if isinstance(mark, FileListHWM):
        return sorted(mark.value)
    return _modified(mark) if isinstance(mark, FileModifiedTimeHWM) else mark.dump()


def _modified(mark: FileModifiedTimeHWM) -> str | None:
    if mark.value is None:
        return None
    # With a path, other files of the same instant may still be unread: rather again than never.
    before = timedelta(microseconds=1 if mark.value.path else 0)
    return (mark.value.modified - before).isoformat()
