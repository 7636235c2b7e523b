"""A mill of the door on Spark: joins as watermill has them in a window, and functions that have to run here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_type_hints

from floodmark import mill
from floodmark.mill.brokers import OFFSET, PARTITION
from floodmark.mill.brokers.files import JsonParts
from floodmark.mill.elements import ELEMENT, KEY, NODE
from floodmark.mill.horizon import Node
from floodmark.mill.injection import Pairing
from floodmark.mill.join_tree import name_of
from floodmark.mill.pending import StreamMemory
from floodmark.mill.process import ProcessTask, ProcessTransform
from floodmark.mill.signature import Process, mapping_of
from floodmark.mill.turn import MillStep
from floodmark.step.transform import code_texts, short_hash
from floodmark.stores.extras import RecordExtras

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.stores.record import Intent

Deliver = Callable[[Any], object]
ELEMENTS_AT_ONCE = 100_000
"""Of a turn whose joined elements come into this program."""


@dataclass(frozen=True)
class DoorTransform(ProcessTransform):
    """The transform of a mill of the door; `function` is the user's own, whose code tells whether it has changed."""

    function: Process | None = None
    runs_here: bool = False

    def fingerprint(self) -> str:
        code = getattr(self.function, "__code__", None)
        return short_hash(super().fingerprint(), *(code_texts(code) if code else ()))

    def run(self, task: ProcessTask, rows: DataFrame, schema: StructType) -> DataFrame:
        """Where the function has to run here, it gets one element after the other, in the order of the master."""
        if not self.runs_here:
            return super().run(task, rows, schema)
        joined = rows.orderBy(*master_order(rows, has_one_key=self.declaration.has_one_key())).toArrow()
        outputs = [batch for batch in task.run(joined.to_batches()) if batch.num_rows]
        if not outputs:
            return rows.sparkSession.createDataFrame([], schema)
        import pyarrow as pa

        return rows.sparkSession.createDataFrame(pa.Table.from_batches(outputs), schema)


def master_order(rows: DataFrame, *, has_one_key: bool) -> list[str]:
    """By which columns the rows of `joined_rows` stand in the order of the master."""
    if has_one_key:
        return [KEY, NODE, PARTITION, OFFSET]
    has_windows = rows.schema[ELEMENT].dataType.typeName() == "array"
    keys = [name for name in rows.columns if name == KEY]
    return keys if has_windows else [*keys, f"{ELEMENT}.{PARTITION}", f"{ELEMENT}.{OFFSET}"]


@dataclass(frozen=True)
class DoorStep(MillStep):
    """Joins in a window are left ones, but an element behind the end of what it is joined to is left out.

    watermill stops there: it never learns whether the element would have had partners.
    """

    def frames(self, intent: Intent, spark: SparkSession) -> dict[str, DataFrame]:
        from pyspark.sql import functions as F

        frames, transform = super().frames(intent, spark), self.work.transform
        tree = transform.declaration.tree if isinstance(transform, ProcessTransform) else None
        if tree is None or tree.window is None or not self.stops(intent):
            return frames
        master, remember = name_of(tree.root), intent.extras.remember or RecordExtras()
        for place, edge in enumerate(tree.edges_from(tree.root), start=1):
            memory = StreamMemory.from_json(remember.part(name_of(edge.right)) or {})
            last = max((keys[0] for keys in memory.last.values()), default=None)
            is_before_end = F.col(f"k{place}") <= F.lit(last) if last is not None else F.lit(False)
            frames[master] = frames[master].where(is_before_end)
        return frames


class DoorMill(mill.WaterMill):
    """A mill of the core, with what only watermill does."""

    step_type = DoorStep

    def __init__(self, process_func: Process, deliver: Deliver | None, **given: Any) -> None:  # noqa: ANN401
        tree = given["join_tree"]
        self._function, self._runs_here = process_func, deliver is not None
        own = adapted(process_func, deliver, is_windowed=tree.window is not None and bool(tree.edges))
        limit = {"turn_elements": ELEMENTS_AT_ONCE} if self._runs_here else {}
        super().__init__(process_func=own, **{**given, **limit})
        # What has ended ends the mill, whatever the joins are.
        self._planner = replace(self._planner, root=_ending(self._planner.root))

    def begin_anew(self) -> None:
        """Read files from their beginning and write the output anew: the original remembers no position in them."""
        if self._outlet is not None and isinstance(self._outlet.sink, JsonParts):
            self._outlet.sink.discard_parts()
        self.reset()

    def _transform(self) -> DoorTransform:
        form = self._outlet.form if self._outlet else "json"
        return DoorTransform(self.declared, form=form, function=self._function, runs_here=self._runs_here)


def _ending(node: Node) -> Node:
    branches = tuple(replace(each, node=_ending(each.node), is_inner=True) for each in node.branches)
    return replace(node, branches=branches)


def injected_hints(function: Process) -> dict[str, Any]:
    """The arguments, by name, that are neither the master element nor a mapping of joined ones."""
    parameters, hints = list(inspect.signature(function).parameters)[1:], get_type_hints(function)
    return {name: hints[name] for name in parameters if name in hints and mapping_of(hints[name]) is None}


def adapted(function: Process, deliver: Deliver | None, *, is_windowed: bool) -> Process:
    """The function as a mill of the core calls it: without the arguments that are delivered here.

    In a window its mappings have no entry for an element without partners, as in watermill.
    """
    injected = injected_hints(function) if deliver is not None else {}
    if not injected and not is_windowed:
        return function

    def call(master: object, **mappings: Pairing[Any, Any]) -> object:
        own: Mapping[str, object] = {name: with_partners(each) for name, each in mappings.items()}
        delivered = {name: deliver(hint) for name, hint in injected.items()} if deliver is not None else {}
        return function(master, **(own if is_windowed else mappings), **delivered)

    signature, hints = inspect.signature(function), get_type_hints(function)
    kept = [each for name, each in signature.parameters.items() if name not in injected]
    call.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # what inspect looks for
    call.__annotations__ = {name: hint for name, hint in hints.items() if name not in injected}
    call.__qualname__ = getattr(function, "__qualname__", type(function).__name__)
    return call


def with_partners(pairs: Mapping[Any, list[Any]]) -> Pairing[Any, Any]:
    """The mapping without elements that have no partner."""
    return Pairing([(left, rights) for left, rights in pairs.items() if rights])
