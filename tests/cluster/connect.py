"""A Spark Connect server from the installed PySpark, and a Python with the packages of its client."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

import floodmark
from floodmark.spark.connectors import connectors
from floodmark.spark.java import alone, cache_folder, find_java
from floodmark.spark.session import DELTA_CATALOG, DELTA_EXTENSION
from tests.cluster.standalone import bare_python, free_port, wait_for, without_folder

CLIENT = ("grpcio==1.76.0", "grpcio-status==1.76.0", "googleapis-common-protos==1.71.0", "zstandard==0.25.0")
SESSION_SECONDS = 15
"""After so long without a word the server forgets a session; by default after an hour."""


@dataclass(frozen=True)
class ConnectServer:
    """Where it listens, the Python of a client, and a folder of this machine that is empty for the server."""

    port: int
    client: Path
    hidden: Path

    @property
    def remote(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Of a client: this package from its sources, and no Java."""
        sources = str(Path(floodmark.__file__).parent.parent)
        return {**os.environ, "JAVA_HOME": "/nowhere", "PYTHONPATH": sources}


@contextmanager
def connect_server(home: Path) -> Iterator[ConnectServer]:
    """A server with Delta whose Python has neither this package nor anybody's modules, until the block ends."""
    port, spark_home = free_port(), Path(pyspark.__file__).parent
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, connectors())),
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.session.manager.defaultSessionTimeout": f"{SESSION_SECONDS}s",
        "spark.connect.session.manager.maintenanceInterval": "1s",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    own = {"JAVA_HOME": str(find_java().home), "SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment = {**os.environ, **own, "PYSPARK_PYTHON": str(bare_python(home / "python"))}
    environment.pop("PYTHONPATH", None)
    hidden = home / "hidden"
    hidden.mkdir()
    with (home / "connect.log").open("wb") as log:
        server = subprocess.Popen(
            without_folder(hidden, [str(spark_home / "bin" / "spark-submit"), *options, *main]),
            cwd=home,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(port)
        yield ConnectServer(port, client_python(), hidden)
    finally:
        server.kill()
        server.wait()


def client_python() -> Path:
    """A Python with all that is installed here, and with the client's packages; the first call ever makes it."""
    home = cache_folder() / "connect-client"
    program = home / "bin" / "python"
    with alone(home.with_suffix(".lock")):
        if not (home / "ready").exists():
            venv.create(home, with_pip=True, clear=True, symlinks=True)
            subprocess.run([str(program), "-m", "pip", "install", "--quiet", *CLIENT], check=True)
            (home / "ready").touch()
        [packages] = (home / "lib").glob("python*/site-packages")  # of this checkout: the cache serves all of them
        (packages / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return program
