"""What goes along to the executors of a cluster: this package, and the modules of the user's that are not installed.

Third parties' packages (pyarrow, pandas, drivers) do not: a worker's Python has to have them, or gets them in a packed
environment (`spark.archives`).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.inputs import MEBIBYTE
from floodmark.logs import get_logger
from floodmark.spark.gateway import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)
OWN_PACKAGE = Path(__file__).parent.parent
MOST_BYTES = 64 * MEBIBYTE
"""Of modules in one folder: what is larger is data, or somebody's whole disk."""
SHIPPING = "spark.floodmark.shipModules"
"""`false` says that every worker has the modules already."""


def ship_modules(spark: SparkSession, folders: Sequence[str]) -> None:
    """Hand this package and the modules in these folders to every executor, also to one that comes later."""
    target = Path(tempfile.mkdtemp(prefix="floodmark-modules-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    own = {OWN_PACKAGE.parent: [*_package_files(OWN_PACKAGE)]}
    theirs = {Path(folder): [*module_files(Path(folder))] for folder in folders}
    for position, (folder, files) in enumerate((theirs | own).items()):  # from its sources, ours is a folder of theirs
        size = sum(file.stat().st_size for file in files)
        if size > MOST_BYTES:
            hint = f"install them on the workers; {SHIPPING}: false says that they are there"
            log.warning("modules not shipped", folder=str(folder), mebibytes=size // MEBIBYTE, hint=hint)
        elif files:
            _hand_over(spark, str(_zip(target / f"modules-{position}.zip", folder, files)))


def _hand_over(spark: SparkSession, archive: str) -> None:
    """To a Connect server the archive is sent, and is of this session alone."""
    if is_connect(spark):
        spark.addArtifacts(archive, pyfile=True)
    else:
        spark.sparkContext.addPyFile(archive)


def module_files(folder: Path) -> Iterator[Path]:
    """The modules right in the folder, and all files of its packages: folders with an `__init__.py`."""
    for entry in sorted(folder.iterdir()):
        if entry.suffix == ".py" and entry.is_file():
            yield entry
        elif (entry / "__init__.py").is_file():
            yield from _package_files(entry)


def _package_files(package: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        yield from (Path(root, name) for name in sorted(names) if not name.endswith((".pyc", ".so")))


def _zip(target: Path, folder: Path, files: Sequence[Path]) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for file in files:
            made.write(file, file.relative_to(folder))
    return target
