"""What may stand for a module: compiled, wrapped, scripted, exported, lazy ones; outputs of any kind."""

import dataclasses

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import nearpeak  # noqa: E402
from nearpeak.errors import SpecError  # noqa: E402

X = torch.ones(2, 4)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


def calls(source, *, step="train", inputs=(X,)):
    return [(c.operator, c.phase, c.case) for c in nearpeak.capture(source, inputs=inputs, step=step).calls]


def traced(module):
    return torch.jit.trace(module, X)


def exported(module):
    return torch.export.export(module, (X,))


WRAPPED = [torch.compile, nn.DataParallel, torch.jit.script, traced, torch.fx.symbolic_trace, exported]


@pytest.mark.parametrize("wrap", WRAPPED, ids=lambda wrap: wrap.__name__)
def test_a_wrapped_module_makes_the_calls_of_the_plain_one_in_all_phases(wrap):
    assert calls(wrap(network())) == calls(network())


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel], ids=lambda wrap: wrap.__name__)
def test_a_wrapper_leaves_no_trace_in_module_and_parameter_names(wrap):
    workload = nearpeak.capture(wrap(network()), inputs=(X,), step="train")
    assert {call.module for call in workload.calls} == {"0", "1", "2", "loss", "optimizer"}
    assert {b.name for b in workload.buffers if b.kind == "weight"} == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_compiled_parts_inside_a_module_run_as_written():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.compile(nn.Linear(4, 4))
            self.sine = torch.compile(torch.nn.functional.silu)

        def forward(self, x):
            return self.sine(self.layer(x))

    workload = nearpeak.capture(Parts(), inputs=(X,))
    assert [(c.operator, c.module) for c in workload.calls] == [
        ("aten.addmm.default", "layer"),
        ("aten.silu.default", "Parts"),
    ]


def test_an_exported_file_is_captured_with_the_inputs_it_was_exported_with(tmp_path):
    file = tmp_path / "network.pt2"
    torch.export.save(exported(network().eval()), file)
    found = nearpeak.capture(file, step="train")
    assert found.name == "network"
    assert [(c.operator, c.phase, c.case) for c in found.calls] == calls(network())


def test_a_file_that_does_not_say_its_inputs_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(SpecError, match=r"model\.pt: does not state its inputs; .*capture\(module, inputs=…\)"):
        nearpeak.capture(tmp_path / "model.pt")


def test_lazy_modules_get_their_shapes_from_the_inputs():
    lazy = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(4))
    plain = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    assert calls(lazy) == calls(plain)
    assert nn.parameter.is_lazy(lazy[0].weight)


@dataclasses.dataclass(slots=True)
class Slotted:
    y: torch.Tensor


def yielding(y):
    yield y


OUTPUTS = [lambda y: {"y": y}, lambda y: ((y,),), Slotted, yielding, lambda y: frozenset((y,))]


@pytest.mark.parametrize("pack", OUTPUTS, ids=["dictionary", "tuples", "slotted", "generator", "set"])
def test_gradients_are_found_in_outputs_of_any_kind(pack):
    class Packed(nn.Linear):
        def forward(self, x):
            return pack(super().forward(x))

    assert calls(Packed(4, 4)) == calls(nn.Linear(4, 4))


def test_a_generator_that_computes_while_it_yields_is_run_to_its_end():
    class Steps(nn.Linear):
        def forward(self, x):
            for _ in range(3):
                yield super().forward(x)

    assert [name for name, *_ in calls(Steps(4, 4), step="forward")] == ["aten.addmm.default"] * 3


def test_keyword_inputs_are_given_as_a_mapping():
    class Keywords(nn.Linear):
        def forward(self, *, x, scale=1.0):
            return super().forward(x) * scale

    names = [name for name, *_ in calls(Keywords(4, 4), step="forward", inputs={"x": X})]
    assert names == ["aten.addmm.default", "aten.mul.Tensor"]


def test_a_hook_and_a_parametrisation_are_part_of_the_step():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    layer.register_forward_hook(lambda _module, _args, out: out * 2)
    names = [name for name, *_ in calls(layer, step="forward")]
    assert names == ["aten._weight_norm_interface.default", "aten.addmm.default", "aten.mul.Tensor"]


def test_function_transforms_are_captured():
    def gradient(x):
        return torch.func.vmap(torch.func.grad(lambda row: torch.tanh(row).sum()))(x)

    assert [name for name, *_ in calls(gradient, step="forward")] == [
        "aten.tanh.default", "aten.sum.dim_IntList", "aten.ones_like.default", "aten.tanh_backward.default",
    ]  # fmt: skip
