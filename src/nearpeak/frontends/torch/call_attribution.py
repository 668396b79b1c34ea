"""Attribution of dispatched calls to modules and source lines, in forward and backward pass."""

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

STAND_IN_LOSS = "loss"
"""Module path of the loss that stands in where a model returns none."""
_OWN = str(Path(__file__).parents[2])
_STEP = str(Path(__file__).with_name("model_step.py"))
_STEP_SHOWN = "nearpeak/capture/_step.py"
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]


class Place(NamedTuple):
    """Where a call comes from."""

    module: str
    """Path of the innermost module."""
    source: str
    """File and line of the first frame outside PyTorch, without the machine's own folders."""


NOWHERE = Place("", "")


class Attribution:
    """Keeps the stack of running modules and, per autograd sequence number, the place of the forward call."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start with no module running; files below `folder` are shown relative to it."""
        self._folder = str(folder.resolve()) if folder else None
        self._stack: list[str] = []
        self._paths: dict[int, str] = {}
        self._parameters: dict[int, str] = {}
        self._shown: dict[str, str] = {}
        self._places: dict[int, Place] = {}
        self.last = NOWHERE

    def name_modules(self, model: Any) -> None:
        """Remember the path of every module and the module of every parameter; the whole model has its class's name."""
        if not hasattr(model, "named_modules"):
            return
        for name, module in model.named_modules():
            path = plain_path(name) or str(getattr(module, "original_name", type(module).__name__))
            self._paths[id(module)] = path
            for parameter in module.parameters(recurse=False):
                self._parameters.setdefault(id(parameter), path)

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Follow which module runs while the block runs."""
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        before = register_module_forward_pre_hook(self._enter)
        after = register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: Any, _args: Any) -> None:
        path = self._paths.get(id(module))
        if path is None:  # made inside forward: named after its class, below the module that runs it
            path = ".".join(part for part in (self._stack[-1] if self._stack else "", type(module).__name__) if part)
        self._stack.append(path)

    def _leave(self, _module: Any, _args: Any, _output: Any) -> None:
        if self._stack:
            self._stack.pop()

    @contextmanager
    def inside(self, path: str) -> Iterator[None]:
        """Attribute the block's calls to `path`, which is no module of the model."""
        self._stack.append(path)
        try:
            yield
        finally:
            self._stack.pop()

    def here(self) -> Place:
        """Return the running module and the source line that is executing."""
        return Place(self._stack[-1] if self._stack else "", self._line())

    def remember(self, sequence: int) -> None:
        """Keep the place of a forward call; the first call under a sequence number is the one that owns its node."""
        if sequence not in self._places:
            self._places[sequence] = self.here()

    def of_node(self, node: Any) -> Place:
        """Return the place of the forward call whose gradient `node` computes, or of the call before."""
        if self._stack:  # a checkpointed block runs again
            self.last = self.here()
        elif node is not None:
            self.last = self._of_known_node(node) or self.last
        return self.last

    def _of_known_node(self, node: Any) -> Place | None:
        # A node takes its number just before its forward call is dispatched, hence the next number.
        number = node._sequence_nr()
        place = self._places.get(number + 1) or self._places.get(number)
        if place is None and hasattr(node, "variable"):
            return Place(self._parameters.get(id(node.variable), self.last.module), self.last.source)
        return place

    def _line(self) -> str:
        inner = ""
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != _STEP:
            shown = self._shown.get(frame.f_code.co_filename)
            if shown is None:
                shown = self._shown[frame.f_code.co_filename] = self._show(frame.f_code.co_filename)
            if shown.startswith("torch/"):
                inner = inner or (f"{shown}:{frame.f_lineno}" if shown.startswith("torch/nn/") else "")
            elif shown:
                return f"{shown}:{frame.f_lineno}"
            frame = frame.f_back
        if inner or frame is None:
            return inner
        return f"{_STEP_SHOWN}:{frame.f_lineno}"  # the step's own: its loss, its optimizer

    def _show(self, file: str) -> str:
        """Return the file's name for people; empty for files that no user wrote."""
        if file.startswith((_OWN, "<")):
            return ""
        if self._folder and file.startswith(self._folder + "/"):
            return file[len(self._folder) + 1 :]
        return shown_path(file)


def shown_path(file: str) -> str:
    """Return `file` below its package folder, or its last two parts; empty for the standard library.

    >>> shown_path("/opt/v/lib/python3.11/site-packages/torch/nn/functional.py")
    'torch/nn/functional.py'
    """
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in file:
            return file.rsplit(mark, 1)[1]
    if file.startswith(_STANDARD_LIBRARY + "/"):
        return ""
    return "/".join(Path(file).parts[-2:]).lstrip("/")


def plain_path(path: str) -> str:
    """Return a module or parameter path without the parts that only say that a module was compiled.

    >>> plain_path("layers._orig_mod.0.weight")
    'layers.0.weight'
    """
    return ".".join(part for part in path.split(".") if part != "_orig_mod")
