"""The Python of the README is what a type checker accepts of the installed package."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.slow

MORE = """
import floodmark as fm

fm.sources.Postgres("postgresql://h/d", table="t", cursor=["updated_at", "id"], key="id")
fm.sources.Sqlite("shop.db", table="t", cursor="id", key=["a", "b"])
fm.sources.Table("c.s.t", fm.sources.Cursor("at", safety={"lag": "1h"}), key="id")
fm.sinks.Delta("lake/orders", mode="merge", key="id", sequence=["at"])
fm.Job("orders", fm.sources.Files("in"), [fm.sinks.Delta("lake")], tags=["nightly"])
"""


def test_the_python_of_the_readme_has_the_types_that_it_should_have(tmp_path: Path) -> None:
    """Also the plain strings and lists that the project file takes in the same places."""
    text = "\n".join([*(block.text for block in blocks(ROOT / "README.md", "python")), MORE])
    (tmp_path / "readme.py").write_text(text)
    cache = ROOT / ".mypy_cache"
    said, problems, code = api.run(["--strict", f"--cache-dir={cache}", str(tmp_path / "readme.py")])
    assert (code, problems) == (0, ""), said
