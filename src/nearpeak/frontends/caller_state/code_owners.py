"""Owner of an object's code: the user, whose globals are looked at, an installed package, or Python."""

import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import CodeType, MemberDescriptorType, ModuleType
from typing import Any

_OPENED_OF_TORCH = ("torch.nn.", "torch.distributions.", "torch.optim.", "torch.ao.", "torch.utils.hooks")
"""Parts of PyTorch whose objects are looked into: what models are made of, not its own machinery."""
_OPENED_OF_PYTHON = ("collections", "types", "weakref", "functools", "builtins", "argparse", "queue")
"""Modules of the standard library whose objects only hold others."""


def is_users(thing: Any) -> bool:
    """Return whether a class, function or module is the user's own: in no installed package, and not Python's."""
    return _is_users(thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or "")


@cache
def is_opened(kind: Any) -> bool:
    """Return whether attributes of objects of a class are looked at: not those of Python, PyTorch or this package."""
    module = str(kind.__module__)
    root = module.partition(".")[0]
    if root == "torch":
        import torch

        return issubclass(kind, torch.nn.Module) or module.startswith(_OPENED_OF_TORCH)
    if root in sys.stdlib_module_names:
        return module in _OPENED_OF_PYTHON
    return root != "nearpeak"


@cache
def _is_users(module: str) -> bool:
    root = module.partition(".")[0]
    if not root or root in sys.builtin_module_names or root in (sys.stdlib_module_names - {"__main__"}):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if root == "nearpeak":
        return False
    return file is None or not any(Path(file).is_relative_to(place) for place in _installed())


@cache
def _installed() -> tuple[Path, ...]:
    return tuple({Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")})


@cache
def globals_of(code: CodeType) -> tuple[str, ...]:
    """Return the names that a function and those within it look up; attribute names are among them."""
    within = (name for item in code.co_consts if isinstance(item, CodeType) for name in globals_of(item))
    return tuple(dict.fromkeys((*code.co_names, *within)))


@cache
def slots_of(kind: Any) -> tuple[Any, ...]:
    """Return the descriptors of the slots of a class and of its bases, where Python code declared them."""
    return tuple(
        value
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for value in vars(base).values()
        if isinstance(value, MemberDescriptorType)
    )
