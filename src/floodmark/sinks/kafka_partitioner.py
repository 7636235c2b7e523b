"""Which partition a message key belongs to: the same one that the Java client's default partitioner picks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

SEED, FACTOR = 0x9747B28C, 0x5BD1E995
POSITIVE = 0x7FFFFFFF


def partitions_of(keys: pa.Array, count: int) -> NDArray[np.int64]:
    """The partition of every key; what stands at a null key means nothing."""
    import numpy as np

    hashes = murmur2(keys).astype(np.int64)
    return (hashes & POSITIVE) % count


def with_partitions(rows: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """The rows with the partition of every key filled in; those without a key, or with a chosen one, have theirs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, chosen = rows.column("key"), rows.column("partition")
    if chosen.null_count == 0:
        return rows
    found = pc.if_else(chosen.is_valid(), chosen, pa.array(partitions_of(keys, count), pa.int32()))
    return rows.set_column(rows.schema.get_field_index("partition"), "partition", found)


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """Kafka's hash of each key, computed for all keys of one length at a time."""
    import numpy as np
    import pyarrow as pa

    wide = keys.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    if len(wide) == 0:
        return np.zeros(0, dtype=np.uint32)
    ends = np.frombuffer(offsets, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    lengths = np.diff(ends)
    hashes = np.zeros(len(wide), dtype=np.uint32)
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        bytes_of = content[ends[places, None] + np.arange(length)]
        hashes[places] = _hash_equal_lengths(np.ascontiguousarray(bytes_of))
    return hashes


def _hash_equal_lengths(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    import numpy as np

    count, length = keys.shape
    factor, whole = np.uint32(FACTOR), length // 4 * 4
    state: NDArray[np.uint32] = np.full(count, SEED ^ length, dtype=np.uint32)
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4")
    for place in range(whole // 4):
        word = words[:, place] * factor
        word = (word ^ (word >> np.uint32(24))) * factor
        state = (state * factor) ^ word
    rest = keys[:, whole:].astype(np.uint32)
    if rest.shape[1]:
        for place in range(rest.shape[1]):
            state ^= rest[:, place] << np.uint32(8 * place)
        state *= factor
    state = (state ^ (state >> np.uint32(13))) * factor
    state ^= state >> np.uint32(15)
    return state
