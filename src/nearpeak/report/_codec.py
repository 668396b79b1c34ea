"""Values to plain JSON data and back, guided by the annotations of their dataclasses."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from nearpeak.errors import SpecError

_KINDS: Mapping[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


def plain(value: Any, hint: Any) -> Any:
    """Return `value`, annotated as `hint`, as objects, lists and scalars of JSON."""
    if isinstance(hint, type) and is_dataclass(hint):
        return {name: plain(getattr(value, name), own) for name, own in hints(hint).items()}
    if _is_union(hint):
        return plain(value, type(value))
    if get_origin(hint) is tuple:
        return _plain_tuple(value, hint)
    if _is_mapping(hint):
        return {name: plain(held, get_args(hint)[1]) for name, held in value.items()}
    return value


def value_of(raw: Any, hint: Any, where: str) -> Any:
    """Return the value annotated as `hint` that `raw` states.

    Raises:
        SpecError: `raw` does not fit; the message names the place.

    >>> value_of([1, 2.5], tuple[float, ...], "times")
    (1.0, 2.5)
    """
    if is_dataclass(hint):
        return _record(raw, hint, where)
    if _is_union(hint):
        return _one_of(raw, hint, where)
    if get_origin(hint) is tuple:
        return _tuple(raw, hint, where)
    if _is_mapping(hint):
        return _object(raw, where, lambda held, place: value_of(held, get_args(hint)[1], place))
    return _scalar(raw, hint, where)


@cache
def hints(cls: Any) -> Mapping[str, Any]:
    """Return the annotation of each field of the dataclass `cls`, in order."""
    known = get_type_hints(cls)
    return {name: known[name] for name in cls.__dataclass_fields__}


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _is_mapping(hint: Any) -> bool:
    return get_origin(hint) is not None and issubclass(get_origin(hint), Mapping)


def _is_pairs(hint: Any) -> bool:
    """Say whether `hint` is a tuple of (name, value), which JSON says better as an object."""
    item = get_args(hint)[0]
    return get_origin(item) is tuple and len(get_args(item)) == 2 and get_args(item)[0] is str


def _plain_tuple(value: Any, hint: Any) -> Any:
    if _is_pairs(hint):
        return dict(value)
    return [plain(item, get_args(hint)[0]) for item in value]


def _record(raw: Any, cls: Any, where: str) -> Any:
    known = hints(cls)
    if not isinstance(raw, dict):
        raise SpecError(f"{where}: is {_found(raw)}; must be an object with {', '.join(known)}")
    required = [item.name for item in fields(cls) if item.default is MISSING and item.default_factory is MISSING]
    for name in required:
        if name not in raw:
            raise SpecError(f"{where}: has no {name!r}; the file is incomplete or was edited")
    for name in raw:
        if name not in known:
            raise SpecError(f"{where}: {name!r} is not a field of this schema version; remove it")
    return cls(**{name: value_of(raw[name], hint, f"{where}.{name}") for name, hint in known.items() if name in raw})


def _one_of(raw: Any, hint: Any, where: str) -> Any:
    members = [member for member in get_args(hint) if member is not type(None)]
    if raw is None and len(members) < len(get_args(hint)):
        return None
    exact = [member for member in members if type(raw) is member]
    return value_of(raw, (exact or members)[0], where)


def _tuple(raw: Any, hint: Any, where: str) -> Any:
    item = get_args(hint)[0]
    if _is_pairs(hint):
        held = get_args(item)[1]
        return tuple(_object(raw, where, lambda one, place: value_of(one, held, place)).items())
    if not isinstance(raw, list):
        raise SpecError(f"{where}: is {_found(raw)}; must be a list")
    return tuple(value_of(one, item, f"{where}[{number}]") for number, one in enumerate(raw))


def _object(raw: Any, where: str, held: Callable[[Any, str], Any]) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise SpecError(f"{where}: is {_found(raw)}; must be an object")
    return {name: held(one, f"{where}.{name}") for name, one in raw.items()}


def _scalar(raw: Any, hint: Any, where: str) -> Any:
    if hint is float and type(raw) is int:
        return float(raw)
    if type(raw) is not hint:
        raise SpecError(f"{where}: is {_found(raw)}; must be {_KINDS[hint]}")
    return raw


def _found(raw: Any) -> str:
    if raw is None:
        return "null"
    return _KINDS.get(type(raw), type(raw).__name__)
