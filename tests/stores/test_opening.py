"""Stores by their text."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from floodmark import stores
from floodmark.errors import ConfigError, UnknownKind
from floodmark.stores import opening
from floodmark.testing.laws.records import record, save

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "kind", "file"),
    [
        ("sqlite:///state/marks.db", "SqliteMarkStore", "state/marks.db"),
        ("file:state/marks/", "FileMarkStore", "state/marks/default/orders.mark.jsonl"),
        ("file:marks", "FileMarkStore", "marks/default/orders.mark.jsonl"),
    ],
)
def test_relative_paths_start_from_the_folder(text: str, kind: str, file: str, tmp_path: Path) -> None:
    """Which is the project file's, and is created if it is missing."""
    store = stores.open(text, folder=tmp_path / "project")
    save(store, record(1))
    assert (type(store).__name__, (tmp_path / "project" / file).is_file()) == (kind, True)


@pytest.mark.parametrize("text", ["sqlite:///{}/a.db", "file:{}/a", "file://{}/a"])
def test_absolute_paths_stay_where_they_are(text: str, tmp_path: Path) -> None:
    """Whatever the folder is."""
    save(stores.open(text.format(tmp_path), folder="/nowhere"), record(1))
    assert [path.name.partition(".")[0] for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["a"]


def test_opening_and_looking_creates_nothing(tmp_path: Path) -> None:
    """A plan touches nothing, not even the store's folder."""
    opened = [stores.open(text, folder=tmp_path) for text in ("sqlite:///s/m.db", "file:f", "memory")]
    assert [(store.read("orders"), list(store.jobs())) for store in opened] == [(None, [])] * 3
    assert list(tmp_path.iterdir()) == []


def test_a_list_is_levels(tmp_path: Path) -> None:
    """Nearest first, the truth last."""
    store = stores.open(["memory", "sqlite:///m.db"], namespace="prod", folder=tmp_path)
    assert (store.describe(), store.namespace) == (f"memory over sqlite:///{tmp_path}/m.db", "prod")


def test_a_list_of_one_is_that_one() -> None:
    """No layers where there is nothing to layer."""
    assert type(stores.open(["memory"])).__name__ == "MemoryMarkStore"


def test_an_unknown_type_lists_the_known_ones_and_shows_no_secret() -> None:
    """What stands behind the scheme may be a password."""
    with pytest.raises(UnknownKind) as unknown:
        stores.open("redis://user:hunter2@host/0")
    assert (unknown.value.kind, {"memory", "file", "sqlite"} <= set(unknown.value.known)) == ("redis", True)
    assert "hunter2" not in str(unknown.value)


@pytest.mark.parametrize("text", [["memory", "memory"], ["file:a", "memory", "file:b"], []])
def test_a_doubled_type_or_an_empty_list_is_refused(text: list[str]) -> None:
    """With the known ones."""
    with pytest.raises(ConfigError, match="file, memory"):
        stores.open(text)


@pytest.mark.parametrize("text", ["sqlite:marks.db", "sqlite://marks.db", "sqlite:///", "sqlite:///dir/", "file:"])
def test_a_text_without_a_place_is_refused(text: str) -> None:
    """The hint shows how it is written."""
    with pytest.raises(ConfigError):
        stores.open(text)


def test_a_store_of_ones_own_is_opened_by_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line makes it known."""
    monkeypatch.setattr(opening, "LOADERS", dict(opening.LOADERS))
    stores.register("mine", lambda text, namespace, folder: stores.MemoryMarkStore(namespace=f"{namespace} of {text}"))
    assert stores.open("mine:shelf").namespace == "default of mine:shelf"


def test_importing_the_stores_loads_neither_spark_nor_a_database() -> None:
    """The command line starts fast."""
    program = (
        "import sys, floodmark.stores as s; s.open('memory'); "
        "print([name for name in ('pyspark', 'sqlite3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
