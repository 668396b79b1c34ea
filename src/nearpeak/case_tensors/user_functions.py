"""Import and call of users' functions, by `module:function` or `file.py:function`, with outputs by name."""

import contextlib
import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from nearpeak.case_tensors.output_shapes import output_names
from nearpeak.case_tensors.user_modules import on_inputs
from nearpeak.core.runs.measurement import Outcome
from nearpeak.core.tuning.space import settings_of
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError

RAISED = logging.getLogger("nearpeak.raised")
"""Logger of exceptions that become one line of a measurement; it has no handler by default."""


class EndedError(RuntimeError):
    """An error with which a runner states the outcome of a case; no user's exception is one."""

    def __init__(self, message: str, outcome: Outcome = Outcome.FAILED) -> None:
        """Keep the outcome of the case."""
        super().__init__(message)
        self.outcome = outcome


def exception_text(error: BaseException) -> str:
    """Return an exception's message and log it; empty where a user's exception fails in `__str__`.

    >>> exception_text(ValueError("no such kernel"))
    'no such kernel'
    """
    RAISED.debug("raised", exc_info=error)
    try:
        return str(error)
    except Exception:
        return ""


def function_of(text: str, where: str = "callable") -> Callable[..., Any]:
    """Return the function that `module:function` or `path/file.py:function` names; the current folder is on the path.

    A configuration behind the name is bound to it: `kernels.py:softmax[block=64,stages=2]`.

    Args:
        where: option or runner that the text belongs to, with which errors begin.

    Raises:
        SpecError: there is none, or its module cannot be imported.

    >>> function_of("math:sqrt")(4.0), function_of("json:dumps[sort_keys=true]")({"b": 1, "a": 2})
    (2.0, '{"a": 2, "b": 1}')
    """
    if text.endswith("]"):
        text, _, words = text[:-1].partition("[")
        bare = function_of(text, where)
        configured = functools.partial(bare, **settings_of(words, f"{where} {text}"))
        return functools.update_wrapper(configured, bare)
    target = object_of(text, where)
    if isinstance(target, type):
        raise SpecError(f"{where} {text!r}: is a class; name a function, or an object of the class")
    if not callable(target):
        raise SpecError(f"{where} {text!r}: is no function but {type(target).__name__}")
    function: Callable[..., Any] = target
    return function


def place_of(function: Callable[..., Any]) -> str:
    """Return the module name or file by which a function's module is imported from the current folder.

    pytest imports a test file by its bare name, wherever it lies below the current folder.

    >>> import json
    >>> place_of(json.dumps)
    'json'
    """
    name = function.__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or "." in name or name == "__main__":
        return name
    path, here = Path(file).resolve(), Path.cwd().resolve()
    below = path.suffix == ".py" and here in path.parents and path.name == f"{name}.py" and path.parent != here
    return str(path.relative_to(here)) if below else name


def name_of(function: Callable[..., Any]) -> str:
    """Return `module:function` of a function, by which it is imported from the current folder.

    >>> import json
    >>> name_of(json.dumps)
    'json:dumps'
    """
    return f"{place_of(function)}:{getattr(function, '__qualname__', type(function).__name__)}"


def object_of(text: str, where: str) -> Any:
    """Return the object that `module:name` or `path/file.py:name` names, a function or an `Implementation`.

    Raises:
        SpecError: there is none, or its module cannot be imported.
    """
    module, _, name = text.rpartition(":")
    if not module or not name:
        raise SpecError(f"{where} {text!r}: is not module:function or file.py:function; e.g. my_kernels.py:softmax")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        target: Any = _of_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except SpecError as error:
        raise SpecError(f"{where} {text!r}: {error}") from None
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise SpecError(f"{where} {text!r}: {_not_imported(module, error)}") from None
    for part in name.split("."):
        if not hasattr(target, part):
            raise SpecError(f"{where} {text!r}: {_absent(target, part)}")
        target = getattr(target, part)
    return target


def _of_file(path: Path) -> ModuleType:
    """Return the module of a file, imported once; another module may already have its name."""
    path = path.resolve()
    if not path.is_file():
        raise SpecError(f"{path}: no such file")
    other = sys.modules.get(path.stem)
    is_free = other is None or getattr(other, "__file__", None) == str(path)
    name = path.stem if is_free else f"{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    return sys.modules.get(name) or _executed(name, path)


def _executed(name: str, path: Path) -> ModuleType:
    """Return the newly imported module of a file, with its folder on the path."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # a file that ends with .py has a loader
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
        sys.path += [] if folder in sys.path else [folder]  # last: a file called json.py is not the json of others
    return module


def _not_imported(module: str, error: BaseException) -> str:
    """Return in one line why a module cannot be imported, with its line that raised."""
    if isinstance(error, ModuleNotFoundError) and error.name and module.partition(".")[0] == error.name:
        return f"{error} in this folder or on PYTHONPATH; a file is named with its .py, as my_kernels.py:softmax"
    message = (str(error).splitlines() or [""])[0]
    steps = traceback.extract_tb(error.__traceback__)
    user_frames = [step for step in steps if "importlib" not in step.filename and step.filename != __file__]
    place = f" in {Path(user_frames[-1].filename).name}, line {user_frames[-1].lineno}" if user_frames else ""
    return f"importing {module} raised {type(error).__name__}: {message}{place}"


def _absent(holder: Any, name: str) -> str:
    close = difflib.get_close_matches(
        name, [attribute for attribute in vars(holder) if not attribute.startswith("__")], n=2
    )
    kind = "module" if isinstance(holder, ModuleType) else "object"
    near = f"; did you mean {', '.join(close)}?" if close else ""
    return f"{kind} {getattr(holder, '__name__', type(holder).__name__)!r} has no attribute {name!r}{near}"


def takes_out(call: Callable[..., Any]) -> bool:
    """Return whether a function writes into outputs that its caller passes as `out`.

    >>> takes_out(lambda inputs, out, **_: None), takes_out(lambda inputs, **_: None)
    (True, False)
    """
    try:
        return "out" in inspect.signature(call).parameters
    except (TypeError, ValueError):
        return False


def own_refusal(function: Callable[..., Any], case: Case) -> str:
    """Return why a function's own `refusal(case)` excludes the case; empty where it does not.

    >>> own_refusal(len, None)
    ''
    """
    refusal = getattr(function, "refusal", None)
    return str(refusal(case) or "") if callable(refusal) else ""


def with_named_outputs(case: Case, call: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Return `call` with results by name: a single array or tensor is the only output of the case.

    A PyTorch module is called by its own arguments. A lookup of an unknown name raises an error with the known names.
    """
    function = on_inputs(call)

    @functools.wraps(call, updated=())
    def named(inputs: Mapping[str, Any], /, **arguments: Any) -> dict[str, Any]:
        try:
            result = function(inputs, **arguments)
        except SystemExit as error:
            raise _leaving(error) from error
        except KeyError as error:
            missing = error.args[0] if error.args else None
            if not isinstance(missing, str) or missing in inputs or not _looked_up(error, inputs, arguments):
                raise
            there, argument_names = (", ".join(names) or "none" for names in (inputs, arguments))
            raise LookupError(f"nothing is called {missing!r}; inputs: {there}; arguments: {argument_names}") from error
        except TypeError as error:
            with contextlib.suppress(ValueError):  # a function without a signature
                try:
                    inspect.signature(function).bind(inputs, **arguments)
                except TypeError as unbound:
                    raise TypeError(f"{unbound}; {_CONTRACT}") from error
            raise
        if isinstance(result, Mapping):
            return dict(result)
        if result is None and "out" in arguments:
            return {}
        names = output_names(case)
        if len(names) == 1 and hasattr(result, "shape"):
            return {names[0]: result}
        wanted = ", ".join(f"{name!r}: …" for name in names)
        raise TypeError(f"it returned {type(result).__name__}; outputs are returned by name: {{{wanted}}}")

    for carried in _CARRIED:
        if hasattr(call, carried):
            setattr(named, carried, getattr(call, carried))
    return named


def _looked_up(error: KeyError, inputs: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Return whether the key was missing in the inputs or arguments, not in a mapping of the function's own.

    The expression that raised then begins with a variable that holds one of the two.
    """
    step, (frame, _) = traceback.extract_tb(error.__traceback__)[-1], list(traceback.walk_tb(error.__traceback__))[-1]
    line = linecache.getline(frame.f_code.co_filename, step.lineno or 0).encode()
    raised = line[step.colno : step.end_colno].decode() if line else ""
    held = {name: value for name, value in frame.f_locals.items() if isinstance(value, Mapping)}
    names = [name for name, value in held.items() if value is inputs or value.keys() == arguments.keys()]
    return not raised or any(re.match(rf"{re.escape(name)}\b", raised) for name in names)


def sys_exit_refused(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call` with `sys.exit` turned into an exception, so that it does not end the process.

    >>> try:
    ...     sys_exit_refused(sys.exit)(0)
    ... except EndedError as error:
    ...     print(error, error.outcome)
    it called sys.exit(0) crash
    """

    @functools.wraps(call, updated=())
    def stayed(*args: Any, **named: Any) -> Any:
        try:
            return call(*args, **named)
        except SystemExit as error:
            raise _leaving(error) from error

    return stayed


def _leaving(error: SystemExit) -> EndedError:
    return EndedError(f"it called sys.exit({error.code!r})", Outcome.CRASH)


@contextlib.contextmanager
def process_exit_refused() -> Iterator[None]:
    """Make `os._exit` raise in this process, which would otherwise end with the caller in it.

    Children forked inside the block exit normally. An earlier `from os import _exit` is not intercepted.

    >>> with process_exit_refused():
    ...     try:
    ...         os._exit(0)
    ...     except EndedError as error:
    ...         print(error, error.outcome)
    it called os._exit(0) crash
    """
    pid, leave = os.getpid(), os._exit

    def stayed(status: int) -> NoReturn:
        if os.getpid() != pid:
            leave(status)
        raise EndedError(f"it called os._exit({status})", Outcome.CRASH)

    os._exit = stayed
    try:
        yield
    finally:
        os._exit = leave


_CONTRACT = (
    "a function is called as f(tensors, **arguments), tensors by name; "
    "'nearpeak validate CASE --skeleton' prints one for a case, to be filled in"
)
"""Hint for a function whose parameters do not match."""
_CARRIED = ("arrays", "backward", "captured", "concurrent", "ledger")
"""Attributes of a callable that its wrapper keeps."""
