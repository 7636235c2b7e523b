"""The README as a registry shows it: links and pictures of the tree lead to the repository, or to nowhere.

Hatchling calls this when it builds. The address is `Repository` of `project.urls`; while there is none, a link within
the tree becomes its text, since a registry would make a dead link of it.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<bang>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?!\w+:)[^)\s]+)\)")


class RegistryReadme(MetadataHookInterface):
    """Sets the package's long description."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict) -> None:  # type: ignore[type-arg]
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_for_registry(text, repository)}


def readme_for_registry(text: str, repository: str) -> str:
    """The text with absolute links, or with none where the repository's address is not known."""

    def absolute(link: re.Match[str]) -> str:
        if not repository:
            return f"*{link['text']}*" if link["bang"] else link["text"]
        kind = "raw" if link["bang"] else "blob"
        return f"{link['bang']}[{link['text']}]({repository.rstrip('/')}/{kind}/main/{link['target']})"

    return LINK.sub(absolute, text)
