"""A cluster of Spark from the installed PySpark: a master and two workers, each with a disk and a Python of its own.

A worker is a namespace of the kernel in which the folders of the driver are empty; all of them share one folder.
Its Python has what is installed here, and neither this package nor anybody's modules. Each has an address of its own:
Spark puts no second copy of a task on the host of the first.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest

from floodmark.spark.java import find_java

STARTED_SECONDS = 60.0
EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Cluster:
    """A running cluster: where its master is, what all machines share, and what the driver has alone."""

    master: str
    shared: Path
    private: Path
    python: Path
    workers: Sequence[subprocess.Popen[bytes]] = field(default=())

    def environment(self) -> dict[str, str]:
        """Of a driver."""
        own = {"PYSPARK_PYTHON": str(self.python), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(find_java().home)}
        return {**os.environ, **own}

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        return [pid for worker in self.workers for pid in _descendants(worker.pid) if EXECUTOR in _command(pid)]

    def python_of(self, executor: int) -> list[int]:
        """The Python processes that work for an executor now."""
        return [pid for pid in _descendants(executor) if "python" in _command(pid)]

    def kill_executor_of(self, worker: int) -> None:
        """End the executor whose child this Python process is, as the kernel does that has no memory left."""
        owners = [pid for pid in self.executors() if worker in _descendants(pid)]
        assert owners, f"process {worker} is of no executor, or has ended"
        os.kill(owners[0], signal.SIGKILL)


@contextmanager
def running_cluster(home: Path) -> Iterator[Cluster]:
    """A master and two workers with a core each, until the block ends."""
    shared, private = home / "shared", home / "private"
    for folder in (shared, private):
        folder.mkdir()
    port, java = free_port(), find_java().program
    classes = f"{Path(pyspark.__file__).parent}/jars/*"
    command = [str(java), "-Xmx512m", "-cp", classes]
    deploy = "org.apache.spark.deploy"
    log = (home / "cluster.log").open("wb")
    own = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_SCALA_VERSION": "2.13"}  # as Spark's scripts do
    settings = {**os.environ, **own}
    settings.pop("PYTHONPATH", None)
    place = ["--webui-port", "0", "--host"]
    master = subprocess.Popen(
        [*command, f"{deploy}.master.Master", *place, "127.0.0.1", "--port", str(port)],
        stdout=log,
        stderr=log,
        env=settings | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )
    workers: list[subprocess.Popen[bytes]] = []
    try:
        wait_for(port)
        url = f"spark://127.0.0.1:{port}"
        for number in range(2):
            host, work = f"127.0.0.{number + 2}", home / f"worker-{number}"
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
            worker = [*command, f"{deploy}.worker.Worker", *place, host, *size, url]
            environment = settings | {"SPARK_LOCAL_IP": host}
            workers.append(
                subprocess.Popen(
                    without_folder(private, worker), stdout=log, stderr=log, env=environment, start_new_session=True
                )
            )
        yield Cluster(url, shared, private, bare_python(home / "python"), workers)
    finally:
        for process in workers:
            for pid in [*_descendants(process.pid), process.pid]:
                _kill(pid)
            process.wait()
        master.kill()
        master.wait()
        log.close()


def require_namespaces() -> None:
    """Skip the test where this user may make none."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
        pytest.skip("this user may make no namespaces")


def without_folder(folder: Path, command: Sequence[str]) -> list[str]:
    """The command on a machine of its own, as far as this folder goes: it is empty there."""
    return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {folder} && exec "$@"', "sh", *command]


def bare_python(folder: Path) -> Path:
    """A Python with all that is installed here, but not this package: it is here by a link, which is not followed."""
    venv.create(folder, symlinks=True)
    [packages] = (folder / "lib").glob("python*/site-packages")
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def run_floodmark(cluster: Cluster, folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """Start the command line in a folder, as a driver of the cluster."""
    return subprocess.Popen(
        [sys.executable, "-m", "floodmark", *words],
        cwd=folder,
        env={**cluster.environment(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_until(happened: Callable[[], bool], driver: subprocess.Popen[str], seconds: float = 240.0) -> None:
    """Until it has happened; a driver that ends before, or takes too long, fails the test with what it has said."""
    until = time.monotonic() + seconds
    while not happened():
        if driver.poll() is not None or time.monotonic() > until:
            driver.kill()
            output, _ = driver.communicate()
            raise AssertionError(f"what the test waits for did not happen:\n{output}")
        time.sleep(0.05)


def _descendants(pid: int) -> list[int]:
    """A child is known to the thread that started it, and a JVM has many."""
    children: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += map(int, thread.read_text().split())
    return [each for child in children for each in (child, *_descendants(child))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    """Until somebody listens there."""
    until = time.monotonic() + STARTED_SECONDS
    while time.monotonic() < until:
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nobody listens on port {port}")
