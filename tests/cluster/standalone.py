"""A cluster of Spark from the installed PySpark: a master and two workers, each with a disk and a Python of its own.

A worker is a namespace of the kernel in which the folders of the driver are empty; all of them share one folder.
Its Python has what is installed here, and neither this package nor anybody's modules.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

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

    def kill_an_executor(self, patience_seconds: float = 60.0) -> None:
        """End one that runs, as the kernel does that has no memory left."""
        until = time.monotonic() + patience_seconds
        while not self.executors() and time.monotonic() < until:
            time.sleep(0.2)
        os.kill(self.executors()[0], signal.SIGKILL)


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
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    settings = {**os.environ, **own, "SPARK_SCALA_VERSION": "2.13"}  # what Spark's own scripts tell the workers
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = subprocess.Popen(
        [*command, f"{deploy}.master.Master", *place, "--port", str(port)], stdout=log, stderr=log, env=settings
    )
    workers: list[subprocess.Popen[bytes]] = []
    try:
        wait_for(port)
        url = f"spark://127.0.0.1:{port}"
        for number in range(2):
            work = home / f"worker-{number}"
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
            worker = [*command, f"{deploy}.worker.Worker", *place, *size, url]
            hidden = f'mount -t tmpfs none {private} && exec "$@"'
            alone = ["unshare", "--mount", "sh", "-c", hidden, "sh", *worker]
            workers.append(subprocess.Popen(alone, stdout=log, stderr=log, env=settings, start_new_session=True))
        yield Cluster(url, shared, private, bare_python(home / "python"), workers)
    finally:
        for process in workers:
            for pid in [*_descendants(process.pid), process.pid]:
                _kill(pid)
            process.wait()
        master.kill()
        master.wait()
        log.close()


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


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, children) for each in (child, *_descendants(child))]


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
