"""watermill 3.6 by its own module paths: `from floodmark.compat.watermill.mill import WaterMill`.

Streams are joined on Spark, and the process function runs on its executors, unless it is given something that lives in
this program: then it runs here. `mill.py` says which way a mill goes.
"""

from __future__ import annotations

import sys

from floodmark.compat.watermill import message_brokers, stream_join

__version__ = "3.6.7"
"""The release of watermill whose names and habits the door has."""


def _stand_in(module: str, *paths: str) -> None:
    """Let a module of the door be found under the paths that the original has for its parts."""
    vars(sys.modules[module]).setdefault("__path__", [])
    sys.modules.update({f"{__name__}.{path}": sys.modules[module] for path in paths})


_stand_in(stream_join.__name__, "expressions", "stream_types", "windows")
_stand_in(
    message_brokers.__name__,
    *(f"message_brokers.{name}_broker" for name in ("message", "json_file_message", "kafka_message")),
)
