"""`make docs`: the pages and the API as a site in build/site, made offline once its tools are there.

The tools live in an environment of their own (docs/requirements.txt, .venv-docs), since only this needs them. Sphinx
stops at a link to a page or heading that is not there; then every link of the finished site is followed once more, and
nothing in it may come from elsewhere. The README's Python is held against pyright; mypy does so in the tests.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv-docs"
PAGES, SITE = ROOT / "build" / "docs", ROOT / "build" / "site"
NEEDED = (3, 11)
FRONT = "index.md"
"""What README.md is called in the site."""
API = {
    "floodmark": "Jobs, sessions, receipts",
    "floodmark.sources": "Sources",
    "floodmark.sinks": "Sinks",
    "floodmark.rules": "Rules",
    "floodmark.stores": "Mark stores",
    "floodmark.hwm": "Marks",
    "floodmark.streams": "Streams",
    "floodmark.mill": "The mill",
    "floodmark.medallion": "Bronze, silver, gold",
    "floodmark.jobs": "Around jobs",
    "floodmark.health": "Health",
    "floodmark.lineage": "Lineage",
    "floodmark.testing": "Doubles and laws for tests",
    "floodmark.errors": "Errors",
}
SHOWN_ELSEWHERE = {"floodmark.jobs": "Job", "floodmark.stores": "Receipt"}
"""Names that the first page of the API has already."""
LINK = re.compile(r"(?P<bang>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"^```mermaid\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (?P<title>.+?)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Make the environment, the pages and the site; then look at what was made."""
    if sys.version_info < NEEDED:
        print("Error: Sphinx needs Python 3.11 or newer.\nTry: make docs PYTHON=python3.11 in a new checkout")
        return 2
    python = environment()
    gather()
    build(python)
    found = [*broken_links(SITE), *pyright_errors(python)]
    for problem in found:
        print(problem, file=sys.stderr)
    pages = len(list(SITE.rglob("*.html")))
    print(f"{pages} pages in {SITE.relative_to(ROOT)}; {len(found) or 'no'} problems")
    return 1 if found else 0


def environment() -> Path:
    """The Python of the tools; made anew when the list of them changes."""
    wanted = hashlib.sha256((ROOT / "docs" / "requirements.txt").read_bytes()).hexdigest()
    stamp, python = ENVIRONMENT / "floodmark-stamp", ENVIRONMENT / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"installing the tools of the docs into {ENVIRONMENT.name}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", ROOT / "docs" / "requirements.txt"], check=True)
    stamp.write_text(wanted)
    return python


def gather() -> None:
    """All pages, and what they link to, in one folder with the tree's own layout; the README is its front page."""
    shutil.rmtree(PAGES, ignore_errors=True)
    waiting = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
    done: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in done or file.is_dir():
            continue
        done.add(file)
        waiting += take_over(file)
    for name in ("conf.py", "site.css"):
        shutil.copy(ROOT / "docs" / name, PAGES / name)
    for module, title in API.items():
        place = PAGES / "api" / f"{module}.md"
        place.parent.mkdir(exist_ok=True)
        place.write_text(api_page(module, title), encoding="utf-8")
    front = PAGES / FRONT
    front.write_text(front.read_text(encoding="utf-8") + "\n".join(contents()), encoding="utf-8")


def api_page(module: str, title: str) -> str:
    """A page of the API: all public names of a package, from their docstrings."""
    without = f"   :exclude-members: {SHOWN_ELSEWHERE[module]}\n" if module in SHOWN_ELSEWHERE else ""
    return f"# {title}\n\n`{module}`\n\n```{{eval-rst}}\n.. automodule:: {module}\n{without}```\n"


def take_over(file: Path) -> list[Path]:
    """Copy a file into the folder of pages; gives the files that it links to."""
    place = PAGES / (FRONT if file == ROOT / "README.md" else file.relative_to(ROOT))
    place.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix != ".md":
        shutil.copy(file, place)
        return []
    text = file.read_text(encoding="utf-8")
    place.write_text(for_the_site(text, file), encoding="utf-8")
    targets = (urlsplit(found["target"]).path for found in LINK.finditer(BLOCK.sub("", text)) if is_local(found))
    return [(file.parent / target).resolve() for target in targets if target]


def is_local(link: re.Match[str]) -> bool:
    """Whether a link stays in the tree."""
    return not urlsplit(link["target"]).scheme


def for_the_site(text: str, file: Path) -> str:
    """The page, with the front page under its name there, no link to a folder, and pictures of arrows as tables."""

    def placed(link: re.Match[str]) -> str:
        target = (file.parent / urlsplit(link["target"]).path).resolve()
        if is_local(link) and target.is_dir():
            return link["text"]
        return link[0].replace("README.md", FRONT) if target == ROOT / "README.md" else link[0]

    return PICTURE.sub(arrows, LINK.sub(placed, text))


def arrows(picture: re.Match[str]) -> str:
    """`a --> b` lines as a table: a site that needs nobody else cannot draw them."""
    pairs = re.findall(r"^\s*(\w+) --> (\w+)$", picture["text"], re.MULTILINE)
    rows = [f"| `{one}` | {', '.join(f'`{to}`' for start, to in pairs if start == one)} |" for one in dict(pairs)]
    return "\n".join(["| layer | imports |", "|---|---|", *rows])


def contents() -> Iterator[str]:
    """The side bar, from the sections of docs/README.md and the packages of the API."""
    yield from table("", ["docs/README"])
    for section in SECTION.finditer((ROOT / "docs" / "README.md").read_text(encoding="utf-8")):
        targets = [(ROOT / "docs" / found["target"]).resolve() for found in LINK.finditer(section["text"])]
        yield from table(section["title"], [str(target.relative_to(ROOT).with_suffix("")) for target in targets])
    yield from table("Python", [f"api/{module}" for module in API])


def table(caption: str, pages: list[str]) -> Iterator[str]:
    """A part of the side bar."""
    yield from ("", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, "```", "")


def build(python: Path) -> None:
    """Let Sphinx make the site; a warning of its is an error."""
    shutil.rmtree(SITE, ignore_errors=True)
    packages = [str(ROOT / "src"), sysconfig.get_path("purelib")]
    script = f"import sys; sys.path += {packages!r}; from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
    options = ["-b", "html", "-q", "-W", "--keep-going", "-E", "-d", str(ROOT / "build" / "doctrees")]
    made = subprocess.run([python, "-c", script, *options, str(PAGES), str(SITE)], check=False)
    if made.returncode:
        raise SystemExit("Error: the site was not made; what is wrong stands above.")


@dataclass
class Page(HTMLParser):
    """What a page of the site points at, what can be pointed at in it, and what it loads."""

    file: Path

    def __post_init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(self.file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element, with its attributes."""
        has = {name: value or "" for name, value in attrs}
        self.anchors |= {has[name] for name in ("id", "name") if name in has}
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        elif tag in ("img", "script") and "src" in has:
            self.loaded.append(has["src"])
        elif tag == "link" and "stylesheet" in has.get("rel", ""):
            self.loaded.append(has["href"])


def broken_links(site: Path) -> Iterator[str]:
    """Links within the site that lead nowhere, and whatever would be loaded from elsewhere."""
    pages = {file: Page(file) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        name = file.relative_to(site)
        yield from (f"{name}: loads {each} from elsewhere" for each in page.loaded if urlsplit(each).netloc)
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.exists():
                yield f"{name}: {link} leads nowhere"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {link} names a heading that is not there"


def pyright_errors(python: Path) -> list[str]:
    """What pyright says of the README's Python."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    with tempfile.TemporaryDirectory(prefix="floodmark-docs-") as folder:
        (Path(folder) / "readme.py").write_text("\n".join(blocks))
        (Path(folder) / "pyrightconfig.json").write_text(
            f'{{"typeCheckingMode": "strict", "extraPaths": ["{ROOT / "src"}"]}}'
        )
        command = [python, "-m", "pyright", "--pythonpath", sys.executable, "--project", folder]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if said.returncode == 0 else [f"README.md: pyright: {said.stdout}{said.stderr}"]


if __name__ == "__main__":
    sys.exit(main())
