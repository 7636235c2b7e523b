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

from floodmark.errors import ConfigError
from floodmark.inputs import MEBIBYTE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN_PACKAGE = Path(__file__).parent.parent
MOST_BYTES = 64 * MEBIBYTE
"""Of modules in one folder: what is larger is data, or somebody's whole disk."""
SHIPPING = "spark.floodmark.shipModules"
"""`false` says that every worker has the modules already."""


def ship_modules(spark: SparkSession, folders: Sequence[str]) -> None:
    """Hand this package and the modules in these folders to every executor, also to one that comes later."""
    target = Path(tempfile.mkdtemp(prefix="floodmark-modules-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    for position, folder in enumerate([OWN_PACKAGE.parent, *map(Path, folders)]):
        files = [*_package_files(OWN_PACKAGE)] if position == 0 else [*module_files(folder)]
        if files and (position == 0 or folder != OWN_PACKAGE.parent):
            spark.sparkContext.addPyFile(str(_zip(target / f"modules-{position}.zip", folder, files)))


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
    size = sum(file.stat().st_size for file in files)
    if size > MOST_BYTES:
        raise ConfigError(
            f"the modules in {folder} have {size // MEBIBYTE} MiB, and at most {MOST_BYTES // MEBIBYTE} are shipped to "
            "the executors.",
            hint=f"move data out of its packages, or install them on the workers and set {SHIPPING}: false",
        )
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for file in files:
            made.write(file, file.relative_to(folder))
    return target
