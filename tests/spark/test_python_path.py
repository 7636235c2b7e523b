"""Modules beside a script or a project file: Spark's Python workers find them as the program itself does."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import pytest

from floodmark.locations import importable
from floodmark.spark.session import own_folders, session_settings

if TYPE_CHECKING:
    from pathlib import Path

BESIDE = """
def parsed(record):
    return {"id": int(record["v"])}
"""
SCRIPT = """
import floodmark as fm
from beside import parsed
from floodmark.testing import ListSink, RowsSource

sink = ListSink()
job = fm.Job("ids", RowsSource([{"v": "7"}], "v string"), [sink], fm.heal(parsed, schema="id long"))
job.run(fm.spark_session({"master": "local[1]", "driver.memory": "1g"}), fm.stores.open("memory"))
print([row["id"] for row in sink.rows])
"""


def test_what_is_installed_is_left_out_and_the_working_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In front of the standard library, an installed backport would take the place of a module there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    installed = [sysconfig.get_path("stdlib"), f"{sysconfig.get_path('purelib')}/some", sysconfig.get_path("scripts")]
    found = own_folders(["", *installed, str(tmp_path / "shop"), str(tmp_path / "none"), "shop"])
    assert found == (str(tmp_path), str(tmp_path / "shop"))


def test_the_folder_of_a_project_file_is_among_those_of_a_local_session_and_a_users_own_comes_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster's executors do not see this machine's folders."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    importable(tmp_path)
    name = "spark.executorEnv.PYTHONPATH"
    chosen = {name: "/theirs"}
    assert session_settings(chosen, ())[name].split(os.pathsep)[:: len(own_folders())] == [str(tmp_path), "/theirs"]
    assert session_settings({"spark.master": "yarn", **chosen}, ())[name] == "/theirs"


@pytest.mark.crash
@pytest.mark.spark
def test_a_function_of_a_module_beside_the_script_runs_in_sparks_workers(tmp_path: Path) -> None:
    """Run from another folder, with no variable set."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "beside.py").write_text(BESIDE)
    (tmp_path / "shop" / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "shop/script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.stdout, done.returncode) == ("[7]\n", 0), done.stderr
