"""A host dies with its disk, and another one goes on: its own folder is empty, and nobody lives where the lease says.

A host is a namespace of the kernel with a host's name and processes of its own, as a container is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import hosts, shop
from tests.crash.killing import ids_in_files, ids_in_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = ("unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
SETTINGS = {"FLOODMARK_LEASE_SECONDS": "3", "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)}
"""A lease whose owner is silent is taken over after three seconds instead of thirty; no name server knows our hosts."""
ROWS = list(range(50))


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The disk that all hosts see, with a day's rows."""
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], check=False).returncode != 0:
        pytest.skip("this user may make no namespaces")
    shop.deliver(tmp_path / "shared", "day1", range(50))
    return tmp_path / "shared"


def run_on(host: str, shared: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Exit code and answer of a run on a host, whose working folder and disk are new if nothing has run there yet.

    Python is not the first process of its host: a kill at a failpoint would not reach that one. Once it is gone, the
    kernel ends all others, the JVM too.
    """
    own = shared.parent / host
    own.mkdir(exist_ok=True)
    command = f'hostname {host}; cd {own}; "$@"; exit $?'
    program = [sys.executable, hosts.__file__, str(shared), str(own), *words]
    found = subprocess.run(
        [*NAMESPACE, "sh", "-c", command, "sh", *program],
        env={**os.environ, **SETTINGS, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=200,
    )
    return found.returncode, found.stdout.strip()


def lose(host: str, shared: Path) -> None:
    shutil.rmtree(shared.parent / host)


@pytest.mark.crash
@pytest.mark.parametrize("point", ["after_intent", "after_read", "during_sink:1"])
def test_another_host(spark: SparkSession, shared: Path, point: str) -> None:
    """No sink has the batch: it is dropped, for nobody here can see what was frozen, and planned again."""
    killed, _ = run_on("host-a", shared, FLOODMARK_CRASH_AT=point)
    lose("host-a", shared)
    finished = run_on("host-b", shared)
    assert (killed != 0, finished) == (True, (0, "2 50 50"))
    assert (ids_in_table(spark, shared / "lake"), ids_in_files(shared / "out")) == (ROWS, ROWS)


@pytest.mark.crash
def test_a_spool_that_died_with_its_host_while_a_sink_has_the_batch_is_a_decision(
    spark: SparkSession, shared: Path
) -> None:
    """Exit 5 on the other host; what a person then allows writes the rest, and nothing twice."""
    run_on("host-a", shared, FLOODMARK_CRASH_AT="after_sink:1")
    lose("host-a", shared)
    assert run_on("host-b", shared) == (5, "SpoolLost")
    assert run_on("host-b", shared, "finish") == (0, "1 50 50")
    assert (ids_in_table(spark, shared / "lake"), ids_in_files(shared / "out")) == (ROWS, ROWS)


@pytest.mark.crash
def test_a_host_that_comes_back_with_its_disk_finishes_its_batch(spark: SparkSession, shared: Path) -> None:
    """Another one was asked in between, and left everything as it was."""
    disk = shared.parent / "host-a"
    run_on("host-a", shared, FLOODMARK_CRASH_AT="after_sink:1")
    away = disk.rename(shared.parent / "away")  # as seen from another host
    assert run_on("host-b", shared) == (5, "SpoolLost")
    away.rename(disk)
    assert run_on("host-a", shared) == (0, "1 50 50")
    assert (ids_in_table(spark, shared / "lake"), ids_in_files(shared / "out")) == (ROWS, ROWS)
