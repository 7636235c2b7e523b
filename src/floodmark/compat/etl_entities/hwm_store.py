"""Stores by the names of etl-entities: entered like a block, found by a setting, or written by the user."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import ConfigDict, PrivateAttr

from floodmark.compat.etl_entities.entity import BaseModel, Fields, WrongConfig, stand_in
from floodmark.compat.etl_entities.hwm import HWM, HWMTypeRegistry
from floodmark.compat.marks import hwm_store_class

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

__all__ = [
    "BaseHWMStore",
    "FloodmarkHWMStore",
    "HWMStoreClassRegistry",
    "HWMStoreStackManager",
    "MemoryHWMStore",
    "detect_hwm_store",
    "register_hwm_store_class",
]


class BaseHWMStore(BaseModel, ABC):
    """Keeps marks by their names; inside its `with` block it is the current store."""

    @abstractmethod
    def get_hwm(self, name: str) -> HWM[Any] | None:
        """The mark of that name, or None."""

    @abstractmethod
    def set_hwm(self, hwm: HWM[Any]) -> Any:  # noqa: ANN401  (each store's own)
        """Keep the mark under its name; returns where it is, if the store can say."""

    def __enter__(self) -> Self:
        HWMStoreStackManager.push(self)
        self._log_parameters()
        return self

    def __exit__(self, *failure: object) -> None:
        HWMStoreStackManager.pop()

    def _log_parameters(self) -> None:
        log.info("Using %s as HWM Store: %r", type(self).__name__, self)


StoreClass = TypeVar("StoreClass", bound=type[BaseHWMStore])


class HWMStoreClassRegistry:
    """Which class of stores an alias of settings stands for."""

    _default: ClassVar[type[BaseHWMStore | None]] = type(None)
    _classes: ClassVar[dict[str, type[BaseHWMStore]]] = {}

    @classmethod
    def get(cls, alias: str | None = None) -> type[Any]:
        """The class of that alias, without one the default; raises KeyError."""
        if not alias:
            return cls._default
        if alias not in cls._classes:
            raise KeyError(f"Unknown HWM Store type {alias!r}")
        return cls._classes[alias]

    @classmethod
    def add(cls, alias: str, klass: type[BaseHWMStore]) -> None:
        """Let the alias stand for the class from now on."""
        cls._classes[alias] = klass

    @classmethod
    def set_default(cls, klass: type[BaseHWMStore]) -> None:
        """Use this class where no store was entered."""
        cls._default = klass

    @classmethod
    def aliases(cls) -> Collection[str]:
        """Every known alias."""
        return cls._classes.keys()


def register_hwm_store_class(alias: str) -> Callable[[StoreClass], StoreClass]:
    """Make a class of stores known by an alias."""

    def registered(klass: StoreClass) -> StoreClass:
        HWMStoreClassRegistry.add(alias, klass)
        return klass

    return registered


class HWMStoreStackManager:
    """The stores that were entered and not left yet."""

    _stack: ClassVar[deque[BaseHWMStore]] = deque()

    @classmethod
    def push(cls, hwm_store: BaseHWMStore) -> None:
        """Make a store the current one."""
        cls._stack.append(hwm_store)

    @classmethod
    def pop(cls) -> BaseHWMStore:
        """Leave the current store; raises IndexError if none was entered."""
        return cls._stack.pop()

    @classmethod
    def get_current_level(cls) -> int:
        """How many stores were entered and not left yet."""
        return len(cls._stack)

    @classmethod
    def get_current(cls) -> Any:  # noqa: ANN401  (a store, or None where there is no default either)
        """The store that was entered last, without one a new store of the default class."""
        return cls._stack[-1] if cls._stack else HWMStoreClassRegistry.get()()


@register_hwm_store_class("memory")
class MemoryHWMStore(BaseHWMStore):
    """Keeps marks as long as the process runs: for tests."""

    model_config = ConfigDict(extra="forbid")

    _marks: dict[str, Fields] = PrivateAttr(default_factory=dict)

    def get_hwm(self, name: str) -> HWM[Any] | None:
        return HWMTypeRegistry.parse(self._marks[name]) if name in self._marks else None

    def set_hwm(self, hwm: HWM[Any]) -> None:
        # not the object itself: it may be changed in place later
        self._marks[hwm.name] = hwm.serialize()

    def clear(self) -> None:
        """Forget every mark."""
        self._marks.clear()


FloodmarkHWMStore = register_hwm_store_class("floodmark")(hwm_store_class(BaseHWMStore, HWMTypeRegistry))

Main = TypeVar("Main", bound=Callable[..., Any])


def detect_hwm_store(key: str) -> Callable[[Main], Main]:
    """Run the function inside the store that its config, the first argument, names under the key `a.b.c`."""
    if not isinstance(key, str):
        raise WrongConfig("key name must be a string")
    if not key:
        raise ValueError("Key value must be specified")

    def decorated(function: Main) -> Main:
        @wraps(function)
        def inside_store(config: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            if not config:
                raise ValueError("Config must be specified")
            with _store_of(_setting(config, key), key):
                return function(config, *arguments, **options)

        return inside_store  # type: ignore[return-value]  # wraps keeps the signature

    return decorated


def _setting(config: Mapping[str, Any], key: str) -> object:
    found: Any = config
    try:
        for name in key.split("."):
            found = found[name]
    except Exception as error:
        raise ValueError(f"The configuration does not contain a required key {key!r}") from error
    return found


def _store_of(setting: object, key: str) -> Any:  # noqa: ANN401  (of the class that the alias stands for)
    """The store of an alias alone, or of an alias with its one argument, its list of them, or its named ones."""
    if not isinstance(setting, (str, Mapping)):
        raise WrongConfig(f"Wrong value {setting!r} for {key!r} config item, expected str or dict")
    if isinstance(setting, str):
        return HWMStoreClassRegistry.get(setting)()
    if len(setting) > 1:
        raise ValueError(f"Multiple HWM store types provided: {', '.join(setting)}. Only one is allowed.")
    alias, given = next(iter(setting.items()), ("unknown", None))
    klass = HWMStoreClassRegistry.get(alias)
    if isinstance(given, Mapping):
        return klass(**given)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return klass(*given)
    return klass() if given is None else klass(given)


stand_in(
    __name__,
    *("base_hwm_store", "hwm_store_class_registry", "hwm_store_detect", "hwm_store_stack_manager", "memory_hwm_store"),
)
