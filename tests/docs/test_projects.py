"""Every project file that a page shows is taken by the real loader, and the README's is run by the real command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from floodmark.cli.app import run
from floodmark.cli.invocation import Tools
from floodmark.project.file import Document, Variables, read_document
from floodmark.project.lint import lint
from floodmark.project.models import JobModel
from tests.docs.pages import ROOT, Block, all_blocks, blocks
from tests.docs.running import SharedSession, write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


AROUND = {"name": "part", "source": {"type": "files", "path": "in"}, "sinks": [{"type": "console"}]}


def whole(text: str) -> str:
    """A project; a block that shows only some fields of a job gets the rest of one around it."""
    fields = yaml.safe_load(text)
    is_part = fields.keys() <= JobModel.model_fields.keys()
    return yaml.safe_dump({"jobs": [{**AROUND, **fields}]}) if is_part else text


def written(block: Block, folder: Path) -> Document:
    """The block as floodmark.yaml, with a value for each of its variables."""
    (folder / "floodmark.yaml").write_text(whole(block.text))
    for name in re.findall(r"\bfile: (\S+\.sql)", block.text):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("select * from source")
    names = re.findall(r"\$\{(\w+)", block.text)
    values = {name: f"postgresql://host/of_{name}" if name == "PG_URL" else f"value-of-{name}" for name in names}
    return read_document(folder / "floodmark.yaml", Variables(values))


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=str)
def test_a_project_file_on_a_page_has_no_mistake(block: Block, tmp_path: Path) -> None:
    """Lint loads it and builds every source and sink; Python names are defined on the pages, not in this folder."""
    findings = lint(written(block, tmp_path)).findings
    assert [str(found) for found in findings if found.severity == "error" and found.rule != "FM110"] == []


@pytest.mark.spark
def test_the_project_of_the_readme_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`floodmark run` reads both files, writes both sinks, and finds nothing new the second time."""
    monkeypatch.chdir(tmp_path)
    write_input(tmp_path)
    [block] = blocks(ROOT / "README.md", "yaml")
    (tmp_path / "floodmark.yaml").write_text(block.text)
    tools = Tools(session=lambda settings: SharedSession(lambda: spark))
    assert run(["run", "--json"], tools) == 0
    [first] = json.loads(capsys.readouterr().out)["runs"]
    assert run(["run", "--json"], tools) == 0
    [second] = json.loads(capsys.readouterr().out)["runs"]
    assert (first["status"], first["rows_read"], first["rows_written"]) == ("done", 4, {"delta": 3, "files": 4})
    assert (second["status"], second["rows_read"]) == ("nothing_new", 0)
