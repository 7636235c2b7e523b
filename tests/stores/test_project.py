"""The store of a stream or a mill that names none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError, VariableMissing
from floodmark.stores.file import FileMarkStore
from floodmark.stores.project import open_default
from floodmark.stores.sqlite import SqliteMarkStore

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.stores.contract import MarkStore


def place_of(store: MarkStore, top: Path) -> str:
    """Where a store is, from the project's folder."""
    assert isinstance(store, SqliteMarkStore | FileMarkStore)
    return str(store.folder.relative_to(top))


def test_without_a_project_file_it_lies_in_the_working_folder(tmp_path: Path) -> None:
    """As it does for a job in Python."""
    assert place_of(open_default(tmp_path), tmp_path) == "."


def test_the_store_is_the_projects_where_a_project_file_is_there(tmp_path: Path) -> None:
    """Also from a folder below it: `floodmark marks` finds what the stream has done."""
    (tmp_path / "floodmark.yaml").write_text("name: shop\nstore: file:deep/marks\nnamespace: ${TEAM:billing}\n")
    (tmp_path / "streams").mkdir()
    store = open_default(tmp_path / "streams", {"TEAM": "refunds"})
    assert place_of(store, tmp_path) == "deep/marks"
    assert store.namespace == "refunds"
    assert open_default(tmp_path, {}).namespace == "billing"


def test_a_project_file_that_names_no_store_has_the_projects_own(tmp_path: Path) -> None:
    """The same one that the command line opens."""
    (tmp_path / "floodmark.yaml").write_text("name: shop\n")
    assert place_of(open_default(tmp_path), tmp_path) == "state"


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    """A stream must not begin anew in another store."""
    (tmp_path / "floodmark.yaml").write_text("store: postgresql://${PG_HOST}/marks\n")
    with pytest.raises(VariableMissing, match="PG_HOST"):
        open_default(tmp_path, {})


def test_a_project_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """It may name another store than the one that would be opened without it."""
    (tmp_path / "floodmark.yaml").write_text("store: [unclosed\n")
    with pytest.raises(ConfigError, match=r"floodmark\.yaml cannot be read"):
        open_default(tmp_path)
