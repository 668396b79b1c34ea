"""Programs of thousands of calls are analysed; what storages hold is found again whatever was written since."""

import dataclasses
import random

import pytest
from tests.sampling import sampled

torch = pytest.importorskip("torch")

import nearpeak  # noqa: E402
from nearpeak.bounds.simplify.patch_chain import PatchChain, extent_of  # noqa: E402
from nearpeak.bounds.step.step_bound import least_work  # noqa: E402
from nearpeak.core.work.tensor import Layout  # noqa: E402

COUNT = 1500


def rows(x):
    out = torch.empty(COUNT, 4)
    for t in range(COUNT):
        out[t] = torch.tanh(x[t])
    return out


def sums(x):
    for _ in range(COUNT):
        x = torch.tanh(x) + 1
    return x[0]


def counted(x):
    numbers = torch.arange(4)
    for _ in range(COUNT):
        numbers = numbers + 1
    return x * numbers


@pytest.mark.parametrize("program", [rows, sums, counted], ids=lambda program: program.__name__)
def test_a_long_program_is_analysed(program):
    workload = nearpeak.capture(program, inputs=(torch.rand(COUNT, 4),))
    assert len(workload.calls) > COUNT
    assert nearpeak.analyze(workload, "h100_sxm").covered_count == len(workload.calls)


def layout(draw):
    shape = (draw.randint(1, 4), draw.randint(1, 4))
    return Layout(shape, (draw.choice((8, 4)), 1), "fp32", draw.randint(0, 40), 0)


def elements(tensor):
    return {tensor.offset + i * tensor.strides[0] + j for i in range(tensor.shape[0]) for j in range(tensor.shape[1])}


@pytest.mark.parametrize("seed", sampled(range(20), 7))
def test_only_writes_that_share_no_element_are_passed_over(seed):
    draw, chain, flat = random.Random(seed), PatchChain(), Layout((80,), (1,), "fp32", 0, 0)
    parts = [layout(draw) for _ in range(30)]
    for number, part in enumerate(parts):
        chain.add(number + 1, number, flat, part)
    for _ in range(20):
        wanted = layout(draw)
        found, _ = chain.behind(len(parts), flat, wanted)
        assert all(not elements(part) & elements(wanted) for part in parts[found:])
        assert found == 0 or not extent_of(parts[found - 1]).apart(extent_of(wanted))


@pytest.mark.parametrize("name", ["cumsum", "minimum", "argmax", "amax", "softmax", "clamp"])
def test_no_rewrite_takes_a_call_of_which_only_the_storages_are_known_for_the_operator(name):
    """One element of unknown contents was taken for the operand of a reduction."""
    step = {
        "cumsum": lambda x: x.cumsum(0), "minimum": lambda x: torch.minimum(x, x[:1]), "argmax": lambda x: x.argmax(1),
        "amax": lambda x: x.amax(1), "softmax": lambda x: x.softmax(1), "clamp": lambda x: x.clamp(0, 1),
    }[name]  # fmt: skip
    workload = nearpeak.capture(step, inputs=(torch.empty(5, 7),))
    calls = tuple(dataclasses.replace(call, form=None) for call in workload.calls)
    work = least_work(dataclasses.replace(workload, calls=calls))[1].simplified
    assert work.read_bytes == 5 * 7 * 4
