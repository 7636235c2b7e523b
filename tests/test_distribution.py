"""What is published works: the wheel in an empty environment, outside the tree, with what it declares and no more."""

from __future__ import annotations

import ast
import email
import email.message
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from hatch_build import readme_for_registry

ROOT = Path(__file__).parent.parent
OURS = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


def call(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, env=OURS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist; the wheel is built from the sdist, as installers do."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel installed; third parties come from the one that runs the tests."""
    home = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    call(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel),
        cwd=home,
    )
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    # A plain path entry: the editable install in that folder is not followed.
    (packages / "third_parties.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_the_installed_package_is_the_wheels(environment: Path, tmp_path: Path) -> None:
    """Without this the next tests would prove nothing about the wheel."""
    found = call(environment / "bin" / "python", "-c", "import floodmark; print(floodmark.__file__)", cwd=tmp_path)
    assert Path(found.strip()).is_relative_to(environment)


@pytest.mark.crash
@pytest.mark.spark
def test_a_new_project_runs_outside_the_tree(environment: Path, tmp_path: Path) -> None:
    """`floodmark init demo && cd demo && floodmark run` is the first thing a user does."""
    floodmark = environment / "bin" / "floodmark"
    call(floodmark, "init", "demo", cwd=tmp_path)
    (run,) = json.loads(call(floodmark, "run", "--json", cwd=tmp_path / "demo"))["runs"]
    assert (run["status"], run["rows_read"], run["rows_written"]) == ("done", 5, {"lake": 4})
    (again,) = json.loads(call(floodmark, "run", "--json", cwd=tmp_path / "demo"))["runs"]
    assert (again["status"], again["rows_read"]) == ("nothing_new", 0)


def test_the_command_line_starts_without_spark(environment: Path, tmp_path: Path) -> None:
    """Help is asked for more often than jobs are run."""
    call(environment / "bin" / "floodmark", "--help", cwd=tmp_path)
    script = "import sys, floodmark.cli; print('pyspark' in sys.modules)"
    assert call(environment / "bin" / "python", "-c", script, cwd=tmp_path) == "False\n"


def test_the_wheel_holds_what_is_not_python(wheel: Path) -> None:
    """The connectors' list, the log settings and the typing marker are read at run time."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= {
        "floodmark/py.typed",
        "floodmark/spark/connectors.ivy.xml",
        "floodmark/spark/ivysettings.xml",
        "floodmark/spark/log4j2.properties",
    }


def test_the_wheel_holds_what_the_pages_are_made_of(wheel: Path) -> None:
    """The libraries with their licences, our own script and styles, and every template."""
    names = zipfile.ZipFile(wheel).namelist()
    static = {name.removeprefix("floodmark/web/static/") for name in names if "/web/static/" in name}
    templates = {name.removeprefix("floodmark/web/templates/") for name in names if "/web/templates/" in name}
    assert static == {
        "floodmark.css",
        "floodmark.js",
        "vendor/LICENSES.txt",
        "vendor/dagre.min.js",
        "vendor/uPlot.iife.min.js",
        "vendor/uPlot.min.css",
    }
    assert templates == {
        "act.html",
        "aside.html",
        "health.html",
        "job.html",
        "layout.html",
        "lineage.html",
        "live.html",
        "login.html",
        "message.html",
        "overview.html",
        "report.html",
        "run.html",
        "runs.html",
        "sections.html",
    }


def test_the_wheel_holds_nothing_but_the_package(wheel: Path) -> None:
    """Tests and examples stay in the sdist."""
    assert {name.split("/")[0].split("-")[0] for name in zipfile.ZipFile(wheel).namelist()} == {"floodmark"}


def test_the_page_of_a_registry_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    """There is no tree beside it: what points into ours is the repository's address, or only its text."""
    page = str(metadata_of(wheel).get_payload())
    assert page.startswith("# Floodmark")
    targets = re.findall(r"\]\(([^)\s]+)", page)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert "[the tutorial](https://example.org/f/blob/main/docs/t.md)" in readme_for_registry(
        "[the tutorial](docs/t.md)", "https://example.org/f"
    )


def test_everything_imported_is_declared(wheel: Path) -> None:
    """A package that happens to be there today is missing on the next machine."""
    assert imported_distributions() <= declared_distributions(wheel)


def imported_distributions() -> set[str]:
    homes = packages_distributions()
    third_parties = imported_names() - set(sys.stdlib_module_names) - {"floodmark"}
    return {normal(homes.get(name, [name])[0]) for name in third_parties}


def imported_names() -> set[str]:
    sources = (ROOT / "src" / "floodmark").rglob("*.py")
    nodes = [node for path in sources for node in run_nodes(ast.parse(path.read_text()))]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    taken_from = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.split(".")[0] for name in plain | taken_from}


def run_nodes(tree: ast.Module) -> list[ast.AST]:
    """All nodes but those that only type checkers see."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    for_types = {id(node) for block in blocks for node in ast.walk(block)}
    return [node for node in ast.walk(tree) if id(node) not in for_types]


def declared_distributions(wheel: Path) -> set[str]:
    lines = metadata_of(wheel).get_all("Requires-Dist", [])
    return {normal(re.split(r"[^\w.-]", line)[0]) for line in lines}


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        place = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(place))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
