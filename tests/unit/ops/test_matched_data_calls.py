"""Calls of grouped, scaled, recurrent, index-driven and dense linear operators are matched to their cases."""

import zlib

import numpy as np
import pytest
import torch
from tests.golden.directed import directed
from torch.utils._python_dispatch import TorchDispatchMode

from nearpeak.core.work.dtype import DTYPES, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.frontends.torch.composite_operators import kept_whole
from nearpeak.ops import OPS, AtenSite, aten_matchers, work_of

FORMATS = {
    torch.float32: "fp32", torch.float64: "fp64", torch.bool: "bool", torch.int64: "int64", torch.int32: "int32",
    torch.bfloat16: "bf16", torch.int8: "int8", torch.float8_e4m3fn: "fp8_e4m3", torch.complex64: "complex64",
}  # fmt: skip
TORCH = {name: dtype for dtype, name in FORMATS.items()}
# Formats that no call of these operators takes one by one; stand-ins hold their values.
TORCH |= {"fp8_e8m0": torch.float8_e8m0fnu, "fp4_e2m1": torch.float8_e4m3fn, "int4": torch.int8}
BOTH = ("cdist", "weight_norm", "im2col", "edge_pad", "masked_scatter", "grid_sample", "embedding_bag", "interpolate")
FORWARD = (
    "grouped_gemm", "histogram", "searchsorted", "scaled_gemm", "kthvalue", "linalg", "fft", "multinomial", "nonzero",
    "unique", "masked_select", "scan",
)  # fmt: skip
# What the values decide, which a call does not tell, and what this call cannot be asked for.
DATA = {
    "grouped_gemm": {"touched_groups": 1, "load": ""},
    "searchsorted": {"touched_boundaries": 1}, "nonzero": {"found": 0},
    "unique": {"found": 1}, "grid_sample": {"touched": 0}, "embedding_bag": {"touched_rows": 1},
}  # fmt: skip

OTHERWISE = (
    {"rows": 4, "columns": 5, "indices": False, "_distinct": ["x"]},
    {"rows": 2, "n": 7, "kind": "r2c", "onesided": False},
)


class Sites(TorchDispatchMode):
    """Records every dispatched call that the operator claims."""

    def __init__(self, op):
        super().__init__()
        self.op, self.found = op, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if aten_matchers().get(str(function), ("", None))[0] == self.op:
            given = {argument.name: argument.default_value for argument in function._schema.arguments}
            given |= dict(zip(given, args, strict=False)) | (kwargs or {})
            outputs = result if isinstance(result, (tuple, list)) else (result,)
            seen = {name: described(value) for name, value in given.items()}
            outputs = tuple(described(y) for y in outputs if y is not None)
            self.found.append(AtenSite(name=str(function), args=seen, outputs=outputs))
        return result


def described(value):
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    return Tensor(shape=tuple(value.shape), dtype=FORMATS[value.dtype], strides=tuple(value.stride()))


def drawn(op, record, line):
    random = np.random.default_rng(zlib.crc32(op.encode()))
    declared, values = OPS[op].inputs(**record), {}
    for name, tensor in declared.items():
        floating = DTYPES[tensor.dtype].kind == "float"
        below = line.get("_below", {}).get(name, 2)
        values[name] = random.random(tensor.shape) if floating else random.integers(0, below, tensor.shape)
    values |= OPS[op].valid(values, **record) if OPS[op].valid else {}
    return {name: torch.as_tensor(values[name]).to(TORCH[tensor.dtype]) for name, tensor in declared.items()}


def lines(*names):
    return [(op, line) for op in names for line in directed(op)]


def stated(op, line, phase="forward"):
    known = OPS[op].signatures[phase].names()
    plain = {name: value for name, value in line.items() if name in known} | {"dtype": line.get("dtype", "fp32")}
    changed = {name: value for name, value in DATA.get(op, {}).items() if name in known}
    return OPS[op].case(phase, **{**plain, **changed})


def matched(site):
    name, matcher = aten_matchers()[site.name]
    match = matcher(site)
    return OPS[match.op or name].case(match.phase, **match.arguments), match


@pytest.mark.parametrize(("op", "line"), lines(*FORWARD, *BOTH))
def test_forward_calls_are_matched_to_their_cases(op, line):
    wanted = stated(op, line)
    record = {k: v for k, v in wanted.record().items() if k not in ("op", "phase")}
    with Sites(op) as recorded:
        OPS[op].torch_call(drawn(op, record, line), **record)
    if not recorded.found or line in OTHERWISE:
        pytest.skip("PyTorch computes this line with other operators")
    cases = [matched(site)[0] for site in recorded.found]
    if "dtype" in record and dtype_of(record["dtype"]).scheme is not None:
        assert work_of(wanted) in [work_of(case) for case in cases]  # calls count the scales that a scheme implies
        return
    assert wanted in cases


@pytest.mark.parametrize(("op", "line"), lines(*BOTH))
def test_gradients_are_matched_to_their_cases(op, line):
    wanted = stated(op, line, "backward")
    record = {k: v for k, v in stated(op, line).record().items() if k not in ("op", "phase")}
    tensors = drawn(op, record, line)
    leaves = [tensor.requires_grad_() for tensor in tensors.values() if tensor.is_floating_point()]
    outputs = [y for y in OPS[op].torch_call(tensors, **record).values() if y.requires_grad]
    with Sites(op) as recorded:
        torch.autograd.grad([y.sum() for y in outputs], leaves, allow_unused=True)
    assert wanted in [matched(site)[0] for site in recorded.found]


@pytest.mark.parametrize(("op", "line"), lines(*FORWARD, *BOTH))
def test_what_a_call_touches_is_at_most_what_its_rule_reads(op, line):
    record = {k: v for k, v in stated(op, line).record().items() if k not in ("op", "phase")}
    with Sites(op) as recorded:
        OPS[op].torch_call(drawn(op, record, line), **record)
    for site in recorded.found:
        case, match = matched(site)
        formats = {name: dtype_of(value) for name, value in case.dtypes}
        work = OPS[case.op].rule(case.phase)(**dict(case.axes), **formats, **dict(case.attributes))
        tensors = {name: value for name, value in site.args.items() if isinstance(value, Tensor)}
        touched = sum(match.touched_bytes.get(name, tensor.bytes) for name, tensor in tensors.items())
        assert touched <= work.read_bytes


@pytest.mark.parametrize("line", [line for _, line in lines("recurrent") if line.get("state", True)])
def test_recurrent_layers_kept_whole_are_matched(line):
    from torch._subclasses.fake_tensor import FakeTensorMode

    wanted = stated("recurrent", line)
    if wanted.record()["cell"] == "rnn_relu":
        pytest.skip("capture does not tell which plain cell it is")
    record = {k: v for k, v in wanted.record().items() if k not in ("op", "phase")}
    shapes = OPS["recurrent"].inputs(**record)
    with kept_whole(), FakeTensorMode():
        tensors = {name: torch.rand(tensor.shape, requires_grad=True) for name, tensor in shapes.items()}
        with Sites("recurrent") as recorded:
            outputs = OPS["recurrent"].torch_call(tensors, **record)
            outputs["output"].sum().backward()
    forward, backward = (matched(site)[0] for site in recorded.found)
    assert forward == wanted
    assert backward == stated("recurrent", line, "backward")
