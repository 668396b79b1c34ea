"""Random number generation into a tensor."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.call_operands import tensors_of
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import torch_dtype


def random(elements: int, dtype: DType, function: str = "uniform", read: int = 0) -> Work:
    """Return the least work of drawing `elements` numbers.

    Counts: bytes only; the integer arithmetic of a counter-based generator is no FLOP. Reference and PyTorch call use
    parameters under which every draw is 1, so that they can be compared.

    Args:
        function: uniform, normal, bernoulli or exponential; it does not change the work.
        read: elements of a tensor that holds each draw's parameter.

    Source: Salmon et al. 2011, doi:10.1145/2063384.2063405.

    >>> random(8, DType(name="bf16", bits_count=16)).write_bytes
    16
    """
    required_one_of("random", tuple(_DISTRIBUTIONS), function=function)
    return Work(read_bytes=dtype.bytes(unless_empty(elements, read)), write_bytes=dtype.bytes(elements))


def _reference(arrays: dict[str, Any], elements: int, **_: Any) -> dict[str, Any]:
    del arrays
    return {"y": np.ones(elements)}


def _torch_call(tensors: dict[str, Any], elements: int, dtype: str, function: str, **_: Any) -> dict[str, Any]:
    import torch

    device = tensors["parameter"].device if "parameter" in tensors else None
    y = torch.empty(elements, dtype=torch_dtype(torch, dtype), device=device)
    if "parameter" in tensors or function == "bernoulli":
        return {"y": y.bernoulli_(1.0)}
    return {"y": y.normal_(1.0, 0.0) if function == "normal" else y.uniform_(1.0, 1.0)}


_DISTRIBUTIONS = {
    "uniform": ("uniform_", "uniform", "rand", "rand_like", "random_", "randint", "randint_like", "randperm"),
    "normal": ("normal_", "normal", "randn", "randn_like", "log_normal_", "normal_functional"),
    "bernoulli": ("bernoulli_", "bernoulli"),
    "exponential": ("exponential_", "geometric_", "cauchy_"),
}
_OVERLOADS = ("default", "float", "Tensor", "low", "from", "to", "p", "float_float", "Tensor_float", "low_dtype", "out",
    "Tensor_Tensor", "float_Tensor",
)  # fmt: skip


def _from_aten(site: AtenSite) -> Match:
    """Match generators; `bernoulli` takes its probabilities from its input."""
    out = site.outputs[0] if site.outputs else site.args["self"]
    name = site.name.split(".")[1]
    function = next(key for key, names in _DISTRIBUTIONS.items() if name in names)
    read = site.args["self"].distinct if site.name == "aten.bernoulli.default" else 0
    if site.name.startswith("aten.normal.") and "size" not in site.args:
        read = sum(tensor.distinct for tensor in tensors_of(site).values())
    arguments = {"elements": out.elements, "dtype": out.dtype, "function": function, "read": read}
    return Match(arguments=arguments, touched_bytes={} if read else {"self": 0})


def _from_onnx(site: OnnxSite) -> Match:
    """Match the random nodes."""
    function = "normal" if "Normal" in site.name else "uniform"
    out = site.outputs[0]
    return Match(arguments={"elements": out.elements, "dtype": out.dtype, "function": function})


OPERATOR = Operator(
    forward=random,
    family="pointwise",
    tolerance=Tolerance(kind="exact"),
    inputs=lambda read, dtype, **_: {"parameter": Tensor(shape=(read,), dtype=dtype)} if read else {},
    reference=_reference,
    torch_call=_torch_call,
    aten={
        f"aten.{name}.{overload}": _from_aten
        for names in _DISTRIBUTIONS.values()
        for name in names
        for overload in _OVERLOADS
    },
    onnx=dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _from_onnx),
    draws=True,
)
