"""Every operator, on the small cases of tests/golden/operator_cases/<op>.jsonl: reference, PyTorch and work agree.

A line holds the arguments of the forward rule without `dtype` (each line runs in fp32 and fp64; a line that states
`dtype` runs in that one only). Keys with a leading underscore steer the test:
`_below`: {"input": 10} draws integer inputs from 0 to 9, {"mask": 1} a mask that is false throughout;
`_positive`: ["input"] draws positive values; `_distinct`: ["input"] draws values without ties;
`_backward`: arguments of the backward rule alone;
`_forward_only`: true where the backward rule does not apply.
"""

import json
import zlib

import numpy as np
import pytest
import torch
from tests.golden.directed import CASES, directed

from nearpeak.core.work.dtype import DTYPES, dtype_of
from nearpeak.errors import SpecError
from nearpeak.ops import OPS

TORCH_DTYPES = {
    "fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int64": torch.int64,
    "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2, "fp8_e8m0": torch.float8_e8m0fnu,
    "int32": torch.int32,
    "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
    "complex64": torch.complex64, "complex128": torch.complex128,
}  # fmt: skip
NAMES = {value: name for name, value in TORCH_DTYPES.items()}
# Stand-ins that hold every value of formats that PyTorch has only packed.
TORCH_DTYPES |= {"fp4_e2m1": torch.float8_e4m3fn, "int4": torch.int8}
ROUNDING = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "bf16": 2.0**-8,
    "fp16": 2.0**-11,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}


def lines(*dtypes):
    """The directed cases in each format; beside fp32 the first of each operator in fp64 too, the others are `long`."""
    for file in sorted(CASES.glob("*.jsonl")):
        for number, line in enumerate(directed(file.stem), 1):
            for dtype in [line["dtype"]] if "dtype" in line else dtypes:
                is_long = number > 1 and dtype == "fp64" and "fp32" in dtypes and "dtype" not in line
                name = f"{file.stem}-{number}-{dtype}"
                marks = [pytest.mark.long] if is_long else []
                yield pytest.param(file.stem, {**line, "dtype": dtype}, id=name, marks=marks)


def arguments_of(op, line, phase="forward"):
    """All arguments of the phase's rule, defaults written out."""
    known = OPS[op].signatures[phase].names()
    given = {name: value for name, value in line.items() if name[0] != "_" and (phase == "forward" or name in known)}
    record = OPS[op].case(phase, **given, **(line.get("_backward", {}) if phase == "backward" else {})).record()
    return {name: value for name, value in record.items() if name not in ("op", "phase")}


def drawn(op, line):
    """Seeded random tensors for the operator's inputs, in the declared formats."""
    random = np.random.default_rng(zlib.crc32(json.dumps([op, line], sort_keys=True).encode()))
    arguments = arguments_of(op, line)
    declared = OPS[op].inputs(**arguments)
    values = {name: _values(random, op, name, tensor, line) for name, tensor in declared.items()}
    values |= OPS[op].valid(values, **arguments) if OPS[op].valid else {}
    return {name: torch.as_tensor(values[name]).to(TORCH_DTYPES[tensor.dtype]) for name, tensor in declared.items()}


def _values(random, op, name, tensor, line):
    kind = DTYPES[tensor.dtype].kind
    if kind != "float":
        below = OPS[op].tolerance.limit(name, arguments_of(op, line)) or (2 if kind == "bool" else 100)
        values = _positions(random, op, name, tensor.shape, line.get("_below", {}).get(name, below))
    elif name in line.get("_distinct", ()):
        values = (random.permutation(tensor.elements).reshape(tensor.shape) - tensor.elements / 2) / 8
    else:
        values = random.standard_normal(tensor.shape)
    return np.abs(values) + 0.1 if name in line.get("_positive", ()) else values


def _positions(random, op, name, shape, below):
    if name not in OPS[op].tolerance.distinct:
        return random.integers(0, below, shape)
    rows = np.tile(np.arange(below), (*shape[:-1], 1))  # one that stands twice is written by two threads in any order
    return random.permuted(rows, axis=-1)[..., : shape[-1]]


def exact(tensors):
    """The values that the tensors hold, floats widened to float64."""
    return {name: (t.double() if t.is_floating_point() else t).detach().numpy() for name, t in tensors.items()}


def permitted_error(operator, arguments, arrays, name, *, expected, dtype):
    """Greatest difference that the operator's tolerance permits, element by element."""
    numerics = operator.tolerance
    if numerics.kind == "exact" or dtype not in ROUNDING:
        return np.zeros_like(expected)
    unit = ROUNDING[dtype]
    error = numerics.ulp_count * unit * np.abs(expected) + np.finfo(np.float32).tiny
    if numerics.kind == "pointwise":
        return error
    length = np.prod([arguments[axis] for axis in numerics.reduction.split()], dtype=float)
    if numerics.kind in ("contraction", "reduction"):
        magnitudes = {key: np.abs(value) if value.dtype == float else value for key, value in arrays.items()}
        scale = np.abs(operator.reference(magnitudes, **arguments)[name])
    else:
        scale = np.abs(expected).max(initial=0.0)
    return error + 6 * np.sqrt(length) * max(unit, ROUNDING["fp32"] if unit > ROUNDING["fp32"] else 0) * scale


def test_every_operator_has_directed_cases():
    assert sorted(OPS) == sorted(file.stem for file in CASES.glob("*.jsonl"))


@pytest.mark.parametrize(("op", "line"), lines("fp32", "fp64"))
def test_torch_agrees_with_the_reference_within_the_contract(op, line):
    operator, arguments, tensors = OPS[op], arguments_of(op, line), drawn(op, line)
    got = operator.torch_call({name: t.clone() for name, t in tensors.items()}, **arguments)
    expected = operator.expected(exact(tensors), **arguments)
    assert got.keys() == expected.keys()
    got = got if operator.canonical is None else operator.canonical(got, **arguments)
    for name, value in exact(got).items():
        wanted = np.asarray(expected[name])
        assert value.shape == wanted.shape
        dtype = NAMES[got[name].dtype]
        allowed = permitted_error(operator, arguments, exact(tensors), name, expected=wanted, dtype=dtype)
        wrong = ~((value == wanted) | (np.abs(value - wanted) <= allowed) | (np.isnan(value) & np.isnan(wanted)))
        assert not wrong.any(), f"{name}: {value[wrong][:3]} against {wanted[wrong][:3]}"


def differentiable_lines():
    """Lines in float64 whose operator has a backward rule that applies to them."""
    for one in lines("fp64"):
        op, line = one.values
        if OPS[op].backward is not None and line["dtype"] == "fp64" and not line.get("_forward_only"):
            yield one


@pytest.mark.parametrize(("op", "line"), differentiable_lines())
def test_autograd_agrees_with_the_backward_reference(op, line):
    operator, tensors = OPS[op], drawn(op, line)
    leaves = {name: t.requires_grad_() for name, t in tensors.items() if t.is_floating_point()}
    outputs = operator.torch_call(tensors, **arguments_of(op, line))
    live = {name: y for name, y in outputs.items() if y.requires_grad}
    upstream = {
        name: torch.randn(y.shape, generator=torch.Generator().manual_seed(7)).to(y) for name, y in live.items()
    }
    grads = torch.autograd.grad(list(live.values()), list(leaves.values()), list(upstream.values()), allow_unused=True)
    arrays = exact({**tensors, **outputs, **{f"grad_{name}": grad for name, grad in upstream.items()}})
    expected = operator.backward_reference(arrays, **arguments_of(op, line, "backward"))
    got = {f"grad_{name}": grad for name, grad in zip(leaves, grads, strict=True) if grad is not None}
    assert expected.keys() <= got.keys()
    assert expected
    for name, wanted in expected.items():
        np.testing.assert_allclose(got[name].numpy(), wanted, rtol=1e-9, atol=1e-10 * np.abs(wanted).max(initial=1.0))


@pytest.mark.parametrize(("op", "line"), lines("fp32"))
def test_work_reads_at_most_the_inputs_and_writes_the_outputs(op, line):
    operator, arguments = OPS[op], arguments_of(op, line)
    work = _work(op, "forward", arguments)
    outputs = operator.torch_call(drawn(op, line), **arguments)
    assert 0 <= work.read_bytes <= sum(t.bytes for t in operator.inputs(**arguments).values())
    if op != "transfer":  # half of them write the memory of the host or of another device
        assert work.write_bytes == sum(y.numel() * y.element_size() for y in outputs.values())


@pytest.mark.parametrize(("op", "line"), lines("fp32"))
def test_rules_give_the_same_for_integers_and_arrays(op, line):
    random = np.random.default_rng(3)
    for phase, signature in OPS[op].signatures.items():
        if phase == "backward" and line.get("_forward_only"):
            continue
        arguments = arguments_of(op, line, phase)
        drawn_rows = (
            {axis: int(arguments[axis] * random.integers(1, 4)) for axis in signature.axes} for _ in range(16)
        )
        alone = [(row, work) for row in drawn_rows if (work := accepted(op, phase, {**arguments, **row})) is not None]
        columns = {axis: np.array([row[axis] for row, _ in alone]) for axis in signature.axes}
        together = rows_of(_work(op, phase, {**arguments, **columns}), len(alone))
        assert together == [counts(work) for _, work in alone]


def accepted(op, phase, arguments):
    """The work of axes that go together, none for others: a rule refuses those that contradict each other."""
    try:
        return _work(op, phase, arguments)
    except SpecError:
        return None


SINGLE = ("special_count", "read_bytes", "write_bytes", "launch_count")
BY_NAME = ("flop", "recompute_flop", "comm_bytes")


def counts(work):
    """All counts of `work` by field, and by unit or level where there are several."""
    found = {(field, ""): getattr(work, field) for field in SINGLE}
    return found | {(field, name): n for field in BY_NAME for name, n in getattr(work, field).items()}


def rows_of(work, count):
    """The counts of each row of a work whose counts are columns."""
    columns = {key: np.broadcast_to(value, count).tolist() for key, value in counts(work).items()}
    return [{key: int(column[row]) for key, column in columns.items()} for row in range(count)]


def _work(op, phase, arguments):
    formats = OPS[op].signatures[phase].dtypes
    return OPS[op].rule(phase)(**{k: dtype_of(v) if k in formats else v for k, v in arguments.items()})
