"""Entries of the operator catalogue as plain data and as usage on the command line."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearpeak.ops import Operator


def operator_record(operator: "Operator") -> dict[str, Any]:
    """Return what the catalogue states of an operator, as plain data.

    >>> from nearpeak.ops import OPS
    >>> operator_record(OPS["softmax"])["phases"]["forward"]["required"]
    ['rows', 'columns']
    """
    from nearpeak.ops.shared.definition.reference_constants import constants_of

    phases = {
        phase: {
            "axes": list(signature.axes),
            "dtypes": list(signature.dtypes),
            "attributes": {key: kind.__name__ for key, kind in signature.attributes.items()},
            "defaults": {key: value for key, value in signature.defaults.items() if value is not None},
            "required": [axis for axis in signature.axes if axis not in signature.defaults],
        }
        for phase, signature in operator.signatures.items()
    }
    return {
        "op": operator.name, "summary": operator.summary, "source": operator.source, "version": operator.version,
        "constants": constants_of(operator), "phases": phases,
        "aten": sorted(operator.aten), "onnx": sorted(operator.onnx),
    }  # fmt: skip


def usage_of(operator: "Operator") -> Iterator[str]:
    """Yield the command that bounds a case of each phase, with every axis and, in brackets, its default.

    A default that follows from other axes shows as `…`.

    >>> from nearpeak.ops import OPS
    >>> next(usage_of(OPS["softmax"]))
    'nearpeak bound softmax rows= columns= dtype= [out_dtype=…] [log=false]'
    """
    for phase, signature in operator.signatures.items():
        words = [operator.name, *(["phase=backward"] if phase == "backward" else [])]
        words += [
            f"[{name}={plain(signature.defaults[name])}]" if name in signature.defaults else f"{name}="
            for name in signature.names()
        ]
        yield f"nearpeak bound {' '.join(words)}"


def plain(value: object) -> str:
    """Return a default as one writes it on the command line; `…` for one that follows from others."""
    value = getattr(value, "value", value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "…"}[value]
    return " ".join(plain(item) for item in value) if isinstance(value, (tuple, list)) else str(value)
