"""The door of etl-entities: its marks change in place, its stores are entered, and both reach Floodmark's stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from pydantic import ValidationError

from floodmark import stores
from floodmark.compat import etl_entities
from floodmark.compat.etl_entities.hwm import (
    HWM,
    ColumnDateHWM,
    ColumnDateTimeHWM,
    ColumnHWM,
    ColumnIntHWM,
    FileListHWM,
    FileModifiedTimeHWM,
    HWMTypeRegistry,
    KeyValueHWM,
    KeyValueIntHWM,
    register_hwm_type,
)
from floodmark.compat.etl_entities.hwm_store import (
    BaseHWMStore,
    FloodmarkHWMStore,
    HWMStoreClassRegistry,
    HWMStoreStackManager,
    MemoryHWMStore,
    detect_hwm_store,
    register_hwm_store_class,
)
from floodmark.errors import UnknownKind
from floodmark.hwm import FileModifiedTimeHWM as CoreFileModifiedTimeHWM
from floodmark.hwm import FileMoment

EARLIER = datetime(2024, 5, 1, 12, 30)  # noqa: DTZ001  (naive, as etl-entities has its times)


def test_the_snippet_of_the_documentation_runs_with_its_import_line_changed() -> None:
    """A function that raises the mark it is given needs no other line: the caller's mark is the raised one."""
    new_batch_data = {0: 110, 1: 155}

    def run_etl_process(hwm: KeyValueIntHWM, batch: dict[int, int]) -> None:
        hwm.update(batch)

    initial_offsets = {
        0: 100,  # Partition 0 offset 100
        1: 150,  # Partition 1 offset 150
        2: 200,  # Partition 2 offset 200
    }

    # Creating an instance of KeyValueIntHWM with initial offsets
    hwm = KeyValueIntHWM(value=initial_offsets, name="orders")

    # Running some ETL process, which updates the HWM value after finish
    run_etl_process(hwm, new_batch_data)

    # HWM values after running the ETL process
    assert hwm.value == {0: 110, 1: 155, 2: 200}


def test_update_raises_the_mark_in_place_and_never_lowers_it() -> None:
    """What holds of every mark holds here, but the object stays the same."""
    hwm = ColumnIntHWM(name="id", value=5)
    assert (hwm.update(3) is hwm, hwm.value) == (True, 5)
    assert (hwm.update(7) is hwm, hwm.value) == (True, 7)
    assert hwm.reset().value is None


def test_a_value_that_changes_nothing_leaves_the_modification_time() -> None:
    """Whoever compares times sees only real moves."""
    hwm = ColumnDateHWM(name="day", value="2024-05-01", modified_time=EARLIER)
    assert hwm.update(date(2024, 5, 1)).modified_time == EARLIER
    assert hwm.update(date(2024, 5, 2)).modified_time > EARLIER


def test_a_refused_value_leaves_the_mark_as_it_was() -> None:
    """`set_value` validates before it changes anything."""
    hwm = ColumnIntHWM(name="id", value=5)
    with pytest.raises(ValidationError, match=r"column_int refuses '1\.5'"):
        hwm.set_value("1.5")
    assert hwm.value == 5


@pytest.mark.parametrize(("kind", "value"), [(ColumnIntHWM, True), (ColumnDateTimeHWM, 1.5), (ColumnDateTimeHWM, 1)])
def test_a_value_of_another_type_is_not_taken_for_one(kind: type[HWM[Any]], value: object) -> None:
    """What a value may be is asked from the kinds of the core."""
    with pytest.raises(ValidationError):
        kind(name="mark", value=value)


def test_a_field_cannot_be_assigned_to() -> None:
    """The error is the one of etl-entities 2 and the one of etl-entities 3."""
    hwm = ColumnIntHWM(name="id", value=5)
    with pytest.raises(TypeError) as raised:
        hwm.value = 6
    assert isinstance(raised.value, ValidationError)
    assert hwm.value == 5


def test_an_offset_that_is_not_whole_is_refused_by_update_too() -> None:
    """etl-entities cuts 150.9 to 150 here without a word."""
    with pytest.raises(ValueError, match=r"1: 150\.9"):
        KeyValueIntHWM(name="orders", value={1: 100}).update({1: 150.9})  # type: ignore[dict-item]


@pytest.mark.parametrize("act", [KeyValueIntHWM.set_value, KeyValueIntHWM.update])
def test_offsets_are_no_text(act: Callable[[KeyValueIntHWM, str], object]) -> None:
    """Not even the JSON of a map, which the marks of Floodmark read."""
    with pytest.raises(ValueError, match="not a text"):
        act(KeyValueIntHWM(name="orders"), '{"0": 5}')


def test_a_map_of_other_types_validates_its_keys_and_values() -> None:
    """The two types of `KeyValueHWM` are those of its keys and of its values."""
    marks = KeyValueHWM[str, date](name="days", value={"a": "2024-05-01"})
    assert marks.update({"b": date(2024, 5, 2)}).value == {"a": date(2024, 5, 1), "b": date(2024, 5, 2)}
    with pytest.raises(ValidationError):
        KeyValueHWM[str, date](name="days", value={"a": "soon"})


def test_a_list_of_files_takes_paths_and_lists_and_answers_in() -> None:
    """A path is text or a path object; a relative one is never in the list."""
    hwm = FileListHWM(name="files", directory="/data", value=["/data/a.csv", "/data/a.csv"])
    hwm.update("/data/b.csv")
    assert "/data/a.csv" in hwm
    assert PurePosixPath("/data/b.csv") in hwm
    assert "a.csv" not in hwm
    assert "/data/../a.csv" not in hwm
    assert (hwm - ["/data/a.csv"]).value == {PurePosixPath("/data/b.csv")}
    assert len(hwm.value) == 2


@pytest.mark.parametrize("path", ["data/a.csv", "/other/a.csv", "/data/../other/a.csv", 1, None])
def test_a_path_outside_of_the_directory_is_refused(path: object) -> None:
    """Also one that leaves it by `..`, which etl-entities 3 takes."""
    with pytest.raises(ValueError, match=r"path|Path|within"):
        FileListHWM(name="files", directory="/data", value=[path])


def test_the_newest_of_several_files_moves_the_modification_time(tmp_path: Path) -> None:
    """What is no file, or is not there, has no time."""
    file = tmp_path / "a.csv"
    file.touch()
    hwm = FileModifiedTimeHWM(name="files", directory=tmp_path)
    assert not hwm.covers(file)
    hwm.update([file, tmp_path, tmp_path / "missing"])
    assert hwm.covers(file)
    assert not hwm.covers(tmp_path / "missing")


def test_a_mark_is_written_as_the_original_writes_it() -> None:
    """Times have no zone unless the user gives one, partitions stay numbers, a path is text."""
    offsets = KeyValueIntHWM(name="orders", topic="orders", expression="offset", value={0: 1}, modified_time=EARLIER)
    assert offsets.serialize() == {
        "type": "key_value_int",
        "name": "orders",
        "value": {0: 1},
        "entity": "orders",
        "expression": "offset",
        "description": "",
        "modified_time": "2024-05-01T12:30:00",
    }
    assert json.loads(FileListHWM(name="files", value="/data/a.csv").json())["value"] == ["/data/a.csv"]
    assert ColumnIntHWM.parse_obj(ColumnIntHWM(name="id", value=1).dict()).value == 1


def test_a_mark_of_another_type_is_refused() -> None:
    """A class reads its own marks; the registry reads all of them."""
    with pytest.raises(ValueError, match="Type 'column_date' does not match class 'ColumnIntHWM'"):
        ColumnIntHWM.deserialize({"type": "column_date"})
    stored = ColumnIntHWM(name="id", value=1).serialize()
    assert HWMTypeRegistry.parse(stored) == ColumnIntHWM(name="id", value=1)


def test_a_type_of_ones_own_is_registered_by_a_decorator() -> None:
    """It is stored and read like the others of the door."""

    @register_hwm_type("shouting")
    class ShoutingHWM(ColumnHWM[str]):
        pass

    store = MemoryHWMStore()
    store.set_hwm(ShoutingHWM(name="word", value="A"))
    assert store.get_hwm("word") == ShoutingHWM(name="word", value="A")


def test_the_modules_of_the_original_are_found_under_their_own_paths() -> None:
    """A program may import from the module that defines a class there."""
    from floodmark.compat.etl_entities.hwm.column.int_hwm import ColumnIntHWM as FromItsModule
    from floodmark.compat.etl_entities.hwm_store.base_hwm_store import BaseHWMStore as BaseFromItsModule
    from floodmark.compat.etl_entities.instance import AbsolutePath, RelativePath

    assert FromItsModule is ColumnIntHWM
    assert BaseFromItsModule is BaseHWMStore
    assert (str(AbsolutePath("/a")), str(RelativePath("a"))) == ("/a", "a")


def test_a_store_is_the_current_one_inside_its_block() -> None:
    """Blocks nest, and the outer store is back after the inner one."""
    with MemoryHWMStore() as outer:
        with MemoryHWMStore() as inner:
            assert HWMStoreStackManager.get_current() is inner
        assert HWMStoreStackManager.get_current() is outer
    assert HWMStoreStackManager.get_current_level() == 0


def test_a_stored_mark_does_not_change_with_the_object() -> None:
    """It was written as it was."""
    store, hwm = MemoryHWMStore(), ColumnIntHWM(name="id", value=1)
    store.set_hwm(hwm)
    hwm.update(2)
    assert store.get_hwm("id") == ColumnIntHWM(name="id", value=1)


def test_a_setting_chooses_the_store_of_a_function(tmp_path: Path) -> None:
    """The alias alone, or with its arguments."""

    @detect_hwm_store("etl.hwm_store")
    def main(config: object) -> object:
        return HWMStoreStackManager.get_current()

    url = f"sqlite:///{tmp_path}/marks.db"
    assert isinstance(main({"etl": {"hwm_store": "memory"}}), MemoryHWMStore)
    assert isinstance(main({"etl": {"hwm_store": {"floodmark": {"url": url}}}}), FloodmarkHWMStore)
    with pytest.raises(ValueError, match=r"does not contain a required key 'etl\.hwm_store'"):
        main({"etl": {}})


def test_a_store_of_ones_own_is_registered_by_a_decorator() -> None:
    """Its alias gets whatever arguments the setting has."""

    @register_hwm_store_class("counting")
    class CountingHWMStore(MemoryHWMStore):
        start: int = 0

    assert HWMStoreClassRegistry.get("counting")(start=3).start == 3
    assert "counting" in HWMStoreClassRegistry.aliases()


@pytest.mark.parametrize(
    "hwm",
    [
        ColumnIntHWM(name="mark", source="shop.orders", expression="id", value=2**70),
        ColumnDateHWM(name="mark", value=date(2024, 5, 1)),
        ColumnDateTimeHWM(name="mark", value=datetime(2024, 5, 1, 12, 30, 1, 5)),  # noqa: DTZ001
        ColumnDateTimeHWM(name="mark", value=datetime(2024, 5, 1, 12, 30, tzinfo=timezone.utc)),
        KeyValueIntHWM(name="mark", topic="orders", value={0: 110, 1: 155}),
        FileListHWM(name="mark", directory="/data", value=["/data/a.csv", "/data/b.csv"]),
        FileModifiedTimeHWM(name="mark", value=datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=3)))),
        ColumnIntHWM(name="mark"),
    ],
)
def test_every_kind_goes_through_a_store_of_floodmark_and_comes_back(hwm: HWM[Any], tmp_path: Path) -> None:
    """Another process reads the mark that was saved; a mark without a value stays without one."""
    with FloodmarkHWMStore(f"sqlite:///{tmp_path}/marks.db") as store:
        assert store.get_hwm("mark") is None
        store.set_hwm(hwm)
    assert FloodmarkHWMStore(f"sqlite:///{tmp_path}/marks.db").get_hwm("mark") == hwm


def test_a_mark_set_through_the_door_is_one_of_floodmark(tmp_path: Path) -> None:
    """`floodmark marks show` and a job of that name see it; its time is UTC there."""
    url = f"sqlite:///{tmp_path}/marks.db"
    FloodmarkHWMStore(url).set_hwm(KeyValueIntHWM(name="orders", value={0: 110}, modified_time=EARLIER))
    mark = stores.open(url).get_hwm("orders")
    assert mark is not None
    assert (mark.show(), mark.modified_time) == ({"0": 110}, EARLIER.astimezone(timezone.utc))


def test_files_of_one_instant_are_read_again_rather_than_never(tmp_path: Path) -> None:
    """Floodmark's mark stands between two files of one instant; the original cannot, so it stands below both."""
    url = f"sqlite:///{tmp_path}/marks.db"
    stores.open(url).set_hwm(CoreFileModifiedTimeHWM("files", FileMoment(5_000_000, "/data/a.csv")))
    hwm = FloodmarkHWMStore(url).get_hwm("files")
    assert not hwm.covers(0.005)


def test_a_type_of_ones_own_needs_a_kind_of_floodmark_for_its_stores(tmp_path: Path) -> None:
    """It is refused by its name, and nothing is saved."""

    @register_hwm_type("whispering")
    class WhisperingHWM(ColumnHWM[str]):
        pass

    store = FloodmarkHWMStore(f"sqlite:///{tmp_path}/marks.db")
    with pytest.raises(UnknownKind, match="whispering"):
        store.set_hwm(WhisperingHWM(name="word", value="a"))
    assert store.get_hwm("word") is None


def test_a_password_is_not_printed() -> None:
    """Neither in the text of a store nor in the log when it is entered."""
    store = FloodmarkHWMStore("postgresql://etl:secret@localhost:1/marks")
    assert "secret" not in repr(store)


def install_plugin(folder: Path, name: str, code: str) -> None:
    (folder / f"{name}.py").write_text(code)
    metadata = folder / f"{name}-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[etl_entities.plugins]\n{name}-plugin = {name}\n")


def test_a_package_that_announces_itself_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stores are known by their alias without an import of one's own."""
    code = "from floodmark.compat.etl_entities.hwm_store import MemoryHWMStore, register_hwm_store_class\n"
    install_plugin(
        tmp_path, "whale", f"{code}register_hwm_store_class('whale')(type('Whale', (MemoryHWMStore,), {{}}))"
    )
    monkeypatch.syspath_prepend(tmp_path)
    etl_entities.plugins_auto_import()
    assert HWMStoreClassRegistry.get("whale").__name__ == "Whale"


def test_a_plugin_that_fails_is_named_and_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables are the original's."""
    install_plugin(tmp_path, "shark", "raise RuntimeError('no')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"plugin 'shark-plugin' from package 'shark' v0\.1\.0"):
        etl_entities.plugins_auto_import()
    monkeypatch.setenv("ETL_ENTITIES_PLUGINS_BLACKLIST", "shark-plugin")
    etl_entities.plugins_auto_import()
