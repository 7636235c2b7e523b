"""A server that speaks S3, with one bucket, on this machine: moto, in an environment of its own.

Its server needs some fifty packages, and older ones than we do; so it is fetched once into the cache folder, as the JVM
connectors are, and runs as a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.object_stores import S3Access
from floodmark.spark.java import alone, cache_folder
from tests.cluster.standalone import free_port, wait_for

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

MOTO = "moto[server]==5.2.5"
SECRET = "S3cretOfTheBucket"
LOGIN = {
    "AWS_ACCESS_KEY_ID": "ann",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class Bucket:
    """Where the double is, and the bucket in it."""

    endpoint: str
    name: str = "lake"

    def environment(self) -> dict[str, str]:
        """What a project's file may name as variables; the login, as every tool of Amazon's knows it."""
        return {**LOGIN, "S3_ENDPOINT": self.endpoint}

    @property
    def access(self) -> S3Access:
        """How our own readers get there."""
        return S3Access(self.endpoint, "us-east-1", "ann", SECRET, is_path_style=True)

    def names(self, below: str) -> list[str]:
        """All that is in the bucket below a folder."""
        from pyarrow.fs import FileSelector

        found = self.system().get_file_info(FileSelector(f"{self.name}/{below}", recursive=True, allow_not_found=True))
        return sorted(entry.path for entry in found)

    def system(self) -> S3FileSystem:
        """The double as pyarrow sees it."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(**self.access.arrow_options(), allow_bucket_creation=True)


@contextmanager
def s3_double() -> Iterator[Bucket]:
    """A running server with an empty bucket, until the block ends."""
    port = free_port()
    program = [str(moto_home() / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(
        program, env={**os.environ, **LOGIN}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        bucket = Bucket(f"http://127.0.0.1:{port}")
        bucket.system().create_dir(bucket.name)
        yield bucket
    finally:
        server.kill()
        server.wait()


def moto_home() -> Path:
    """The environment with moto; the first call ever makes it."""
    home = cache_folder() / "moto-5.2.5"
    with alone(home.with_suffix(".lock")):
        if not (home / "bin" / "moto_server").exists():
            begun = time.monotonic()
            venv.create(home, with_pip=True, clear=True)
            subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", MOTO], check=True)
            print(f"{MOTO} fetched into {home} in {time.monotonic() - begun:.0f} s")
    return home
