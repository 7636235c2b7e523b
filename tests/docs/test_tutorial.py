"""The tutorial, typed by a shell from its first command to its last, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.docs.pages import ROOT, blocks

BIN = Path(sys.executable).parent


@pytest.mark.crash
@pytest.mark.timeout(1500)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """Every block, in order, in one shell that stops at the first failure; then every order is there once."""
    script = "set -e\n" + "\n".join(block.text for block in blocks(ROOT / "docs" / "tutorial.md", "sh"))
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    rows = DeltaTable(str(tmp_path / "shop/lake/orders")).to_pyarrow_table().select(["id", "amount"])
    ids = rows.column("id").to_pylist()
    assert len(ids) == len(set(ids))
    assert set(ids) >= {901, 902, 903, 904}
    assert rows.filter(pa.compute.equal(rows.column("id"), 903)).column("amount").to_pylist()[0] > 0
    assert "is open" in ran.stdout
    assert (tmp_path / "shop/report.html").exists()
    last = DeltaTable(str(tmp_path / "shop/lake/last_orders")).to_pyarrow_table().to_pylist()
    assert {row["customer"]: row["last_order"] for row in last}["dora"] == 905
    bronze = DeltaTable(str(tmp_path / "shop/lake/bronze_orders")).to_pyarrow_table()
    assert len(bronze) > len(ids), "every row as it came"
