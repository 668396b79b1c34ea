"""What PyTorch dispatches for an operator is matched back to the case that it was called for."""

import pytest
import torch
from tests.golden.directed import directed
from torch.utils._python_dispatch import TorchDispatchMode

from nearpeak.core.work.tensor import Tensor
from nearpeak.ops import OPS, AtenSite, aten_matchers

WINDOWED = ("conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool")
NORMALISED = ("layer_norm", "batch_norm", "group_norm")


class Sites(TorchDispatchMode):
    """Records every dispatched call that some operator claims."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if str(function) in aten_matchers():
            names = [argument.name for argument in function._schema.arguments]
            given = {argument.name: argument.default_value for argument in function._schema.arguments}
            given |= dict(zip(names, args, strict=False)) | (kwargs or {})
            outputs = result if isinstance(result, (tuple, list)) else (result,)
            seen = {name: described(value) for name, value in given.items()}
            outputs = tuple(described(y) for y in outputs if y is not None)
            self.found.append(AtenSite(name=str(function), args=seen, outputs=outputs))
        return result


def described(value):
    if not isinstance(value, torch.Tensor):
        return value
    name = {torch.float64: "fp64", torch.float32: "fp32", torch.bool: "bool", torch.int64: "int64"}[value.dtype]
    return Tensor(shape=tuple(value.shape), dtype=name, strides=tuple(value.stride()))


def sites(op, arguments):
    inputs = OPS[op].inputs(**arguments)
    tensors = {name: torch.rand(t.shape, requires_grad=True) for name, t in inputs.items()}
    with Sites() as recorded:
        output = OPS[op].torch_call(tensors, **arguments)["output"]
        output.sum().backward()
    return recorded.found


def lines(*names):
    rows = [(op, line) for op in names for line in directed(op)]
    plain = [(op, {k: v for k, v in line.items() if k[0] != "_"}) for op, line in rows]
    return [(op, line) for op, line in plain if not elsewhere(op, line)]


def elsewhere(op, line):
    """True where PyTorch turns the call into others: unequal padding into pad, a mean of everything into mean."""
    return any(name.endswith("_end") for name in line) or (op == "adaptive_avg_pool" and line["ow"] == 1)


def stated(case):
    return {name: value for name, value in case.record().items() if name != "layout"}


@pytest.mark.parametrize(("op", "line"), lines(*WINDOWED, *NORMALISED))
def test_forward_and_backward_are_matched_to_their_cases(op, line):
    line = {**line, "dtype": "fp32"}
    record = {k: v for k, v in OPS[op].case(**line).record().items() if k not in ("op", "phase")}
    found = {}
    for site in sites(op, record):
        name, matcher = aten_matchers()[site.name]
        match = matcher(site)
        found[match.phase, match.op or name] = OPS[match.op or name].case(match.phase, **match.arguments)
    wanted = OPS[op].case(**{**line, "indices": False} if op == "max_pool" else line)
    assert stated(found["forward", op]) == stated(wanted)
    known, defaults = OPS[op].signatures["backward"].names(), OPS[op].signatures["backward"].defaults
    asked = {"grad_bias": line.get("bias", False)} if defaults.get("grad_bias") is False else {}
    gradient = OPS[op].case("backward", **{k: v for k, v in line.items() if k in known}, **asked)
    assert stated(found["backward", op]) == stated(gradient)


@pytest.mark.parametrize(("op", "line"), lines("attention"))
def test_fused_attention_is_matched_where_pytorch_takes_it(op, line):
    if not line.keys() <= {"batch", "heads", "kv_heads", "q", "kv", "dim", "causal"}:
        pytest.skip("PyTorch takes the unfused path or turns the mask into numbers")
    record = {k: v for k, v in OPS[op].case(**line, dtype="fp32").record().items() if k not in ("op", "phase")}
    found = [aten_matchers()[site.name][1](site) for site in sites(op, record) if "attention" in site.name]
    assert [match.phase for match in found] == ["forward", "backward"]
    assert OPS[op].case(**found[0].arguments) == OPS[op].case(**line, dtype="fp32")


def test_gradients_that_are_not_asked_for_leave_operands_unread():
    x = torch.rand(1, 4, 8, 8)
    weight = torch.rand(4, 4, 1, 1, requires_grad=True)
    with Sites() as recorded:
        torch.nn.functional.conv2d(x, weight, stride=2).sum().backward()
    forward, backward = (aten_matchers()[site.name][1](site) for site in recorded.found if "conv" in site.name)
    assert forward.touched_bytes == {"input": 4 * 4 * 16}
    assert backward.arguments["grad_input"] is False
    assert backward.touched_bytes == {"input": 4 * 4 * 16, "weight": 0}
