"""etl-entities 3.x by its own names: marks that change in place, and stores that are entered like a block.

What Floodmark itself works with are the immutable marks of `floodmark.hwm`; `hwm_store.FloodmarkHWMStore` keeps the
marks of this door in any of its stores. Packages that announce an entry point `etl_entities.plugins` are imported with
the door, as with the original.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points

from floodmark.compat.etl_entities.entity import stand_in

__all__ = ["__version__", "import_plugins", "plugins_auto_import"]

__version__ = "3.0.4"
"""The release of etl-entities whose behaviour the door has."""

log = logging.getLogger(__name__)

FAILED = """\
Error while importing plugin {name!r} from package {package!r} v{version}.

Statement:
    {statement}

Check if plugin is compatible with current etl_entities version {door}.

You can disable loading this plugin by setting environment variable:
    ETL_ENTITIES_PLUGINS_BLACKLIST='{name},failing-plugin'

You can also define a whitelist of packages which can be loaded by etl_entities:
    ETL_ENTITIES_PLUGINS_WHITELIST='not-failing-plugin1,not-failing-plugin2'

Please take into account that plugin name may differ from package or module name.
See package metadata for more details"""
"""In the original's words: people search for them."""


def plugins_auto_import() -> None:
    """Import the packages that announce themselves as plugins, as far as the environment allows them."""
    if os.environ.get("ETL_ENTITIES_PLUGINS_ENABLED", "true").lower() == "false":
        return
    import_plugins(
        "etl_entities.plugins",
        whitelist=_names("ETL_ENTITIES_PLUGINS_WHITELIST"),
        blacklist=_names("ETL_ENTITIES_PLUGINS_BLACKLIST"),
    )


def _names(variable: str) -> list[str]:
    return [name for name in os.environ.get(variable, "").split(",") if name]


def import_plugins(group: str, whitelist: Sequence[str] | None = None, blacklist: Sequence[str] | None = None) -> None:
    """Import every plugin of the group that is in the whitelist, if there is one, and not in the blacklist."""
    for entry_point in entry_points(group=group):
        if (whitelist and entry_point.name not in whitelist) or entry_point.name in (blacklist or ()):
            log.info("Skipping plugin %r", entry_point.name)
            continue
        import_plugin(entry_point)


def import_plugin(entrypoint: EntryPoint) -> None:
    """Import one plugin; raises ImportError with what is known of it."""
    log.info("Loading plugin %r", entrypoint.name)
    try:
        entrypoint.load()
    except Exception as error:
        raise ImportError(_explanation(entrypoint)) from error


def _explanation(entry_point: EntryPoint) -> str:
    module, _, name = entry_point.value.partition(":")
    package = entry_point.dist
    return FAILED.format(
        name=entry_point.name,
        package=package.name if package else "unknown",
        version=package.version if package else "unknown",
        statement=f"from {module} import {name}" if name else f"import {module}",
        door=__version__,
    )


stand_in(__name__, "plugins", "plugins.import_plugins", "version")
plugins_auto_import()
