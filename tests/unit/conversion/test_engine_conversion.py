"""Engine coverage as a whole: pieces, plans, plug-ins and changes."""

import json
import re
import sys
from itertools import product
from types import SimpleNamespace

import pytest
from tests.samples import SAMPLES, needs_samples
from tests.unit.conversion.onnx_models import chain, group_norm_block, helper, resnet18, saved

from nearpeak.api.conversion_coverage import engine_coverage
from nearpeak.conversion.capability_table import table_of
from nearpeak.conversion.engine_conversion import engine_conversion
from nearpeak.conversion.epilogues import epilogues, reader_counts
from nearpeak.conversion.group_norms import decomposed_norms
from nearpeak.conversion.model_graph import model_graph
from nearpeak.conversion.plan_cost import PlanCosts, Split
from nearpeak.errors import MeasureError, SpecError
from nearpeak.ops import case
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.targets import target_of

TABLE = table_of("tensorrt:10.1")
H100, ORIN = target_of("h100_sxm"), target_of("jetson_agx_orin")


@pytest.fixture
def block(tmp_path):
    return group_norm_block(tmp_path / "block.onnx", 18, is_native=False)


def test_an_operator_without_a_row_cuts_the_model_and_costs_time(tmp_path):
    found = engine_conversion(chain(tmp_path / "m.onnx", ["Conv", "Relu", "mine.Foo", "Conv", "Relu"]), TABLE, [H100])
    assert found.counts() == {"supported": 4, "unknown": 1}
    assert [(piece.is_converted, len(piece.keys)) for piece in found.pieces] == [(True, 2), (False, 1), (True, 2)]
    assert (found.boundary_count, found.boundary_bytes) == (2, 2 * 4 * 32 * 16 * 16)
    (plan,) = found.plans
    assert plan.as_is.total.time_s > plan.whole.total.time_s
    assert plan.unpredicted == {"mine.Foo": 1}
    assert [item.keys for item in found.breaks] == [("n2",)]
    assert plan.plugins[0].verdict == "open"  # nobody knows what the operator takes


def test_group_norm_of_five_nodes_is_recognised_and_its_export_is_advised(block):
    (norm,) = decomposed_norms(model_graph(block))
    assert (norm.group_count, norm.shape, norm.is_affine, len(norm.nodes)) == (32, (1, 320, 64, 64), True, 5)
    found = engine_conversion(block, TABLE, [H100, ORIN])
    assert found.counts() == {"supported": 9}
    (change,) = found.changes
    assert change.kind == "opset"
    assert "opset ≥ 21" in change.text
    assert "to opset 20 only" in change.text
    for target, saved_s in (("h100_sxm", 4.4e-6), ("jetson_agx_orin", 50e-6)):  # nodes run one by one at worst
        assert change.gains[target].high_s == pytest.approx(saved_s, rel=0.1)


def test_a_native_group_norm_needs_no_advice(tmp_path):
    found = engine_conversion(group_norm_block(tmp_path / "n.onnx", 21, is_native=True), TABLE, [H100])
    assert not found.changes
    assert found.plans[0].refused is not None
    assert found.plans[0].refused.total.time_s > found.plans[0].as_is.total.time_s


def test_two_borders_on_orin_cost_more_than_the_norm_between_them(block):
    found = engine_conversion(block, TABLE, [ORIN], without=("InstanceNormalization",))
    as_is = found.plans[0].as_is
    copy = predict_case(case("copy", elements=320 * 64 * 64, dtype="fp16"), ORIN)
    assert as_is.border.time_s == pytest.approx(2 * copy.time_s)
    assert as_is.border.time_s > as_is.left.time_s


def test_a_plug_in_at_its_break_even_time_gains_nothing(block):
    found = engine_conversion(block, TABLE, [ORIN], without=("InstanceNormalization",))
    plan, answer = found.plans[0], found.plans[0].plugins[0]
    assert answer.verdict == "pays"
    assert answer.bound_s <= answer.call_s <= answer.break_even_s
    dearer_s = answer.plan.total.time_s + (answer.break_even_s - answer.call_s) * answer.node_count
    assert dearer_s == pytest.approx(plan.as_is.total.time_s)
    for worth_s, verdict in ((answer.gain.high_s, "does not pay"), (answer.gain.time_s, "open")):
        told = engine_conversion(block, TABLE, [ORIN], without=("InstanceNormalization",), worth_s=worth_s)
        assert told.plans[0].plugins[0].verdict == verdict


def test_parts_of_a_plan_add_up(block):
    costs = PlanCosts(model_graph(block), H100)
    plan = costs.plan(Split(taken=(True, True, False, True, True, True, True, True, True)))
    device_s = plan.engine.time_s + plan.left.time_s + plan.border.time_s
    assert plan.total.time_s == max(device_s, plan.host.time_s)
    whole = costs.plan(Split(taken=(True,) * 9))
    assert whole.engine.time_s < costs.unfused(range(len(costs.graph.workload.calls))).time_s
    assert whole.border.time_s == whole.left.time_s == 0.0


def test_the_greedy_plan_or_its_least_size_is_near_the_best_of_all_splits(tmp_path):
    kinds = ["Conv", "Relu", "mine.Foo", "Sigmoid", "mine.Foo", "Conv", "Relu", "Conv"]
    path = chain(tmp_path / "m.onnx", kinds, shape=(1, 64, 56, 56))
    can = [kind != "mine.Foo" for kind in kinds]
    for target in (H100, ORIN):
        costs = PlanCosts(model_graph(path), target)
        found = engine_conversion(path, TABLE, [target])
        saved_s = max(
            (change.gains[target.name].time_s for change in found.changes if change.kind == "least"), default=0
        )
        splits = (
            split
            for split in product((True, False), repeat=8)
            if all(c or not s for c, s in zip(can, split, strict=True))
        )
        best_s = min(costs.plan(Split(taken=split)).total.time_s for split in splits)
        assert found.plans[0].as_is.total.time_s - saved_s <= 1.05 * best_s


@needs_samples
def test_resnet18_is_one_engine_of_the_kernels_that_tensorrt_built(tmp_path):
    path = resnet18(tmp_path / "resnet18.onnx")
    found = engine_conversion(path, TABLE, [H100])
    assert found.counts() == {"supported": 49}
    assert [piece.is_converted for piece in found.pieces] == [True]
    graph = model_graph(path)
    positions = tuple(range(len(graph.workload.calls)))
    kept = epilogues(graph.workload, positions, reader_counts(graph.workload.calls)).rest(positions)
    layers = [
        layer["Name"] for layer in json.loads((SAMPLES / "trtexec/resnet18_fp16.graph.json").read_text())["Layers"]
    ]
    added = [name for name in layers if re.match(r"Reformatting|dummy", name)]
    assert (len(layers), len(added), len(kept)) == (26, 3, 23)
    fused = {name: set(name.split(" + ")) for name in layers if "Conv" in name and name not in added}
    mine = {key for node, key in enumerate(graph.keys) if set(graph.calls[node]) & set(kept) and "Conv" in key}
    assert all(len(names & mine) == 1 for names in fused.values())


def test_operators_that_the_standard_defines_can_be_written_out(tmp_path):
    node = helper.make_node("HardSwish", ["x"], ["y"], name="n")
    path = saved(tmp_path / "m.onnx", [node], {"x": [4, 4], "y": [4, 4]}, opset=14)
    table = tmp_path / "mine.toml"
    table.write_text(
        'engine = "mine"\nversion = "1"\nsource = "a page"\n[[group]]\ntypes = ["fp32"]\n'
        'operators = ["HardSigmoid", "Mul"]\n'
    )
    found = engine_coverage(path, "mine:1", ["h100_sxm"], table=table)
    assert found.counts() == {"unknown": 1}
    assert [change.kind for change in found.changes if change.kind == "inline"] == ["inline"]


def pretended_tensorrt(refused, reason):
    """A package whose parser refuses one node."""

    class Parser:
        num_errors, num_subgraphs = 1, 2

        def __init__(self, network, logger):
            assert network is not None

        def supports_model_v2(self, data, path):
            return False

        def get_error(self, number):
            return SimpleNamespace(node=lambda: refused, desc=lambda: reason)

        def get_subgraph_nodes(self, number):
            return (list(range(refused)), [refused])[number]

        def is_subgraph_supported(self, number):
            return number == 0

    class Logger:
        ERROR = 1

        def __init__(self, level):
            assert level == self.ERROR

    class Builder:
        def __init__(self, logger):
            assert logger is not None

        def create_network(self, flags):
            return object()

    return SimpleNamespace(__version__="10.1.0", Logger=Logger, Builder=Builder, OnnxParser=Parser)


def test_an_installed_parser_overrides_the_table(tmp_path, monkeypatch):
    path = chain(tmp_path / "m.onnx", ["Relu", "mine.Foo", "Relu"])
    installed = pretended_tensorrt(refused=2, reason="no such plug-in")
    monkeypatch.setitem(sys.modules, "tensorrt", installed)
    found = engine_coverage(path, "tensorrt:10.1", [])
    assert [node.verdict.verdict for node in found.nodes] == ["supported", "supported", "denied"]
    assert found.nodes[2].verdict.reason == "no such plug-in"
    assert "installed" in found.source
    installed.__version__ = "10.13.0"  # another version answers nothing about 10.1
    assert engine_coverage(path, "tensorrt:10.1", []).counts() == {"supported": 2, "unknown": 1}
    installed.__version__ = "10.1.0"
    del installed.OnnxParser.supports_model_v2
    with pytest.raises(MeasureError, match="does not name the nodes"):
        engine_coverage(path, "tensorrt:10.1", [])


def test_types_to_leave_out_must_be_in_the_file(block):
    with pytest.raises(SpecError, match="no node of type 'Foo'"):
        engine_conversion(block, TABLE, [], without=("Foo",))


def test_small_engines_are_left_out_on_request(tmp_path):
    path = chain(tmp_path / "m.onnx", ["Conv", "mine.Foo", "Conv", "Relu"])
    found = engine_conversion(path, TABLE, [H100], least_count=2)
    assert [(piece.is_converted, piece.keys) for piece in found.pieces] == [(False, ("n0", "n1")), (True, ("n2", "n3"))]


def test_a_file_of_views_alone_has_verdicts_and_takes_no_device_time(tmp_path):
    node = helper.make_node("Flatten", ["x"], ["y"], name="n")
    path = saved(tmp_path / "m.onnx", [node], {"x": [2, 3, 4], "y": [2, 12]})
    found = engine_conversion(path, TABLE, [H100])
    assert found.counts() == {"supported": 1}
    assert found.plans[0].as_is.engine.time_s == 0.0
