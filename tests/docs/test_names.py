"""What the pages name is there, and what is there is named: links, make targets, options, fields, variables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from floodmark.cli.app import COMMANDS, app, load_command
from floodmark.project import models as project
from floodmark.project.models import AnySink, AnySource
from tests.docs.pages import PAGES, ROOT, all_blocks, first_cells, links, sections

if TYPE_CHECKING:
    from pydantic import BaseModel

REFERENCE = ROOT / "docs" / "reference.md"
OPTION = re.compile(r"--[a-z][a-z-]*")
OTHERS = re.compile(r"\b(pip|docker) ")
"""Lines for programs that are not ours."""
GROUPS = ("marks", "deadletters")
ADDED_BY_TYPER = {"--help", "--install-completion", "--show-completion"}


def by_type(word: str, union: object) -> dict[str, type[BaseModel]]:
    """Every model of the union, under the heading of its table."""
    models = get_args(get_args(union)[0])
    return {f"{word}: {get_args(model.model_fields['type'].annotation)[0]}": model for model in models}


MODELS: dict[str, type[BaseModel]] = {
    "The file": project.Project,
    "A job": project.JobModel,
    **by_type("Source", AnySource),
    **by_type("Sink", AnySink),
}


def options(command: Any) -> set[str]:  # noqa: ANN401 (typer gives its commands no public type)
    return {word for each in command.params for word in each.opts if word.startswith("--")} - ADDED_BY_TYPER


def commands() -> dict[str, Any]:
    """Every command by its words, those of a group by theirs."""
    top = {name: load_command(name) for name in COMMANDS}
    groups = {f"{name} {word}": inner for name in top for word, inner in getattr(top[name], "commands", {}).items()}
    return {name: command for name, command in top.items() if not hasattr(command, "commands")} | groups


def known_options() -> set[str]:
    from typer.main import get_command

    return options(get_command(app)).union(ADDED_BY_TYPER, *map(options, commands().values()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    """Relative to the page it stands on."""
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


def test_make_targets_that_pages_name_exist() -> None:
    """`make demo` on a page is a target of the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for block in all_blocks("sh") for name in re.findall(r"^make ([\w-]+)", block.text, re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert named - targets == set()


def test_commands_that_pages_name_exist() -> None:
    """`floodmark marks show …` in a block is a command, whatever page it stands on."""
    shown = "\n".join(block.text for block in [*all_blocks("sh"), *all_blocks("text")])
    lines = re.findall(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*floodmark ([a-z-]+)(?: ([a-z]+))?", shown, re.MULTILINE)
    groups = {name.split()[0] for name in commands() if " " in name}
    named = {f"{first} {second}" if first in groups else first for first, second in lines}
    assert named - set(commands()) == set()


@pytest.mark.parametrize("name", commands())
def test_a_command_is_described_with_exactly_its_options(name: str) -> None:
    """The first column of its table is what its --help lists."""
    section = sections(REFERENCE)[f"floodmark {name}"]
    assert {cell.split()[0] for cell in first_cells(section) if cell.startswith("--")} == options(commands()[name])


def test_global_options_are_described() -> None:
    """Those that every command takes."""
    from typer.main import get_command

    named = {cell.split()[0] for cell in first_cells(sections(REFERENCE)["Options of every command"])}
    assert named == options(get_command(app))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_option_named_anywhere_on_a_page_exists(page: Path) -> None:
    """No option of a later version, and none with a slip of the pen."""
    lines = page.read_text().splitlines()
    named = {word for line in lines if not OTHERS.search(line) for word in OPTION.findall(line)}
    assert named - known_options() - {"---"} == set()


@pytest.mark.parametrize("title", MODELS)
def test_a_table_of_the_project_file_names_exactly_its_fields(title: str) -> None:
    """The first column is what the loader takes."""
    fields = {field.alias or name for name, field in MODELS[title].model_fields.items()}
    assert {cell for cell in first_cells(sections(REFERENCE)[title]) if "." not in cell} == fields


def test_every_variable_that_the_code_reads_is_described_and_no_other() -> None:
    """FLOODMARK_* is an interface too."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.properties")]
    read = {name for file in sources for name in re.findall(r"FLOODMARK_[A-Z_]+", file.read_text())}
    named = {cell.split("=")[0] for cell in first_cells(sections(REFERENCE)["Environment"]) if "FLOODMARK" in cell}
    assert named == read


def test_every_mark_kind_of_the_library_is_in_the_table() -> None:
    """With its class and its wire type."""
    from floodmark import hwm

    kinds_there = {cls.__name__ for cls in vars(hwm).values() if isinstance(cls, type) and "kind" in vars(cls)}
    assert set(first_cells(sections(ROOT / "docs" / "marks.md")["Kinds"])) == kinds_there


def test_the_versions_of_schedulers_on_the_page_are_those_that_the_script_tries() -> None:
    """`scripts/schedulers.py` runs the files in them."""
    pinned = re.findall(r"(airflow|dagster)==([\d.]+)", (ROOT / "scripts" / "schedulers.py").read_text())
    named = re.findall(r"with (Airflow|Dagster) ([\d.]+),", (ROOT / "docs" / "scheduling.md").read_text())
    assert [(name.lower(), version) for name, version in named] == pinned
