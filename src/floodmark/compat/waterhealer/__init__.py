"""water-healer 0.0.11 by its own names: `import floodmark.compat.waterhealer as wh`.

Functions before healing run on Spark's executors. A function that calls `wh.healing` itself, and every sink of a stream
of plain values, runs in this program, in the order of the stream, after the steps before it.
"""

from __future__ import annotations

import sys

from floodmark.compat.waterhealer.inside import healing, healing_batch
from floodmark.compat.waterhealer.source import from_kafka, from_kafka_batched, topic_partition_str
from floodmark.compat.waterhealer.stream import Stream

__version__ = "0.0.11"
__all__ = ["Stream", "from_kafka", "from_kafka_batched", "healing", "healing_batch", "topic_partition_str"]
sys.modules[f"{__name__}.core"] = sys.modules[__name__]  # where the original has all of them
