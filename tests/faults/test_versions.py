"""Two versions of the program on one project: the newer one finishes what the older began, and refuses the future."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.faults.orders import DELTA, FILES, Orders
from tests.proofs import Prove

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

FIRST_FORMATS = "eb84c05"
"""The last version before stored formats had numbers: what it writes is format 1."""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def older_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of that version, from the history of this repository."""
    folder = tmp_path_factory.mktemp("older")
    archive = subprocess.run(["git", "-C", ROOT, "archive", FIRST_FORMATS, "src"], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history of this repository has no {FIRST_FORMATS}")
    subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    return folder / "src"


def test_a_batch_of_an_older_version_is_finished_by_this_one(tmp_path: Path, older_program: Path, prove: Prove) -> None:
    """It was killed between its sinks. Both then take turns on new rows, as while machines are upgraded one by one."""
    orders = Orders(tmp_path, [DELTA, FILES])
    older = Orders(tmp_path, [DELTA, FILES], module="floodmark.cli", environment={"PYTHONPATH": str(older_program)})
    orders.deliver(range(100))
    killed = older.run(FLOODMARK_CRASH_AT="after_sink:1")
    finished = orders.run()
    orders.deliver(range(100, 200))
    again = older.run()
    orders.deliver(range(200, 300))
    last = orders.run()
    codes = [killed.exit_code, finished.exit_code, again.exit_code, last.exit_code]
    outputs = killed.output + finished.output + again.output + last.output
    assert codes[0] == -9, outputs
    assert codes[1] == codes[3] == 0, outputs
    assert orders.ids_in_lake() == orders.ids_in_files() == list(range(300)), outputs
    prove("an older version of the program runs beside this one", finished.message, "every row once in both sinks")
