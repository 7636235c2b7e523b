"""The kinds of marks that can be stored, by their wire type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from floodmark.errors import ConfigError, UnknownKind

if TYPE_CHECKING:
    from floodmark.hwm.mark import HWM

Kind = TypeVar("Kind", bound="type[HWM[Any]]")

_kinds: dict[str, type[HWM[Any]]] = {}


def register(kind: Kind) -> Kind:
    """Make a kind known to every store by its wire type, the class attribute `kind`."""
    name = getattr(kind, "kind", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{kind.__name__} has no wire type.", hint='add `kind: ClassVar[str] = "my_kind"` to it')
    taken = _kinds.get(name)
    if taken and (taken.__module__, taken.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ConfigError(f"mark type '{name}' is {taken.__qualname__} already.", hint="give yours another `kind`")
    _kinds[name] = kind
    return kind


def kind_of(name: str) -> type[HWM[Any]]:
    """The class that was registered for a wire type; raises UnknownKind."""
    if name not in _kinds:
        raise UnknownKind("mark type", str(name), known=list(_kinds))
    return _kinds[name]
