"""onETL on the stores of Floodmark: a store for the real etl-entities, which onETL brings along.

    from floodmark.compat.onetl import FloodmarkHWMStore

    with FloodmarkHWMStore("sqlite:///marks.db"), IncrementalStrategy():
        df = reader.run()

A config that `detect_hwm_store` reads names it `floodmark`, once this module is imported.
"""

from __future__ import annotations

from floodmark.compat.marks import hwm_store_class

try:
    from etl_entities.hwm import HWMTypeRegistry
    from etl_entities.hwm_store import BaseHWMStore, register_hwm_store_class
except ImportError as error:
    raise ImportError(
        "floodmark.compat.onetl runs beside etl-entities 3, and it is not installed. "
        "Try: pip install onetl; or use floodmark.compat.etl_entities, which needs nothing else"
    ) from error

FloodmarkHWMStore = register_hwm_store_class("floodmark")(hwm_store_class(BaseHWMStore, HWMTypeRegistry))
