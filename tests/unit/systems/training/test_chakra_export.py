"""Chakra traces out: host traces read back as the same products, messages pair, files follow the schema."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from nearpeak.core.systems.mesh import Mesh
from nearpeak.core.systems.rank_program import RankCall, RankProgram, Transfer
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import SpecError
from nearpeak.ops import case
from nearpeak.systems.training.chakra.trace_files import trace_bytes, write_traces
from nearpeak.systems.training.chakra.trace_nodes import COLLECTIVE, COMPUTE, RECEIVE, SEND, TracePlan, rank_nodes
from nearpeak.systems.training.programs.stage_program import rank_programs
from nearpeak.systems.training.schedules import schedule_of
from nearpeak.traces.export.protobuf_fields import varint as encoded
from nearpeak.traces.reading.wire_format import fields, varint

SHAPE = TransformerShape(name="tiny", layer_count=4, hidden=64, head_count=4, kv_head_count=4, head_width=16, ffn=128,
                         is_gated=True, vocabulary=256)  # fmt: skip
PLAN = TrainingPlan(tp=2, pp=2, dp=2, micro_batch=1, global_batch=8, sequence=32)
SIZES = {"tp": 2, "dp": 2, "pp": 2}


def trace_plan(name="1f1b"):
    programs = rank_programs(SHAPE, PLAN)
    return TracePlan(schedule_of(name, 2, PLAN.micro_batch_count), programs, lambda _: 2e-6, SIZES)


def all_nodes(plan):
    return [list(rank_nodes(plan, rank, lambda place: place, lambda dim: dim)) for rank in (0, 1)]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
def test_every_message_is_received_and_nodes_wait_for_earlier_ones(name):
    ranks = all_nodes(trace_plan(name))
    for kind, own in ((SEND, 0), (RECEIVE, 1)):
        assert {node.attributes["comm_src"] for node in ranks[own] if node.type == kind} == {0}
    keys = ("comm_tag", "comm_src", "comm_dst", "comm_size")
    sent, received = (
        Counter(tuple(node.attributes[key] for key in keys) for nodes in ranks for node in nodes if node.type == kind)
        for kind in (SEND, RECEIVE)
    )
    assert sent == received
    assert len(sent) == sum(sent.values()) == 2 * PLAN.micro_batch_count
    assert all(need < node.id for nodes in ranks for node in nodes for need in node.needs)


def test_a_rank_runs_every_kernel_of_its_program_for_every_micro_batch():
    plan = trace_plan()
    for rank, nodes in enumerate(all_nodes(plan)):
        program = plan.programs[rank]
        calls = [*program.micro_batch_calls()] * PLAN.micro_batch_count + [*program.gradient, *program.optimizer]
        expected = sum(2e-6 * call.count for call in calls if call.case is not None)
        assert sum(node.duration_s for node in nodes) == pytest.approx(expected)
        following = [(node, after) for node, after in pairwise(nodes) if node.type == after.type == COMPUTE]
        assert all(node.name.split()[0] != after.name.split()[0] for node, after in following), "kernels in a row"
        collectives = sum(call.count for call in calls if call.transfer and call.transfer.kind != "send")
        assert sum(node.type == COLLECTIVE for node in nodes) == collectives > 0


def test_what_follows_the_pass_waits_for_collectives_beside_the_queue():
    bucket = RankCall(name="bucket", transfer=Transfer(kind="all_reduce", bytes=64, dim="dp"), is_beside=True)
    product, update = (RankCall(name=name, case=case("fill", elements=8, dtype="fp32")) for name in ("mm", "adam"))
    program = RankProgram(stage=0, chunk=0, layer_count=1, forward=(product,), backward=(product,), weight=(),
                          gradient=(bucket, product), optimizer=(update,), parameter_count=1)  # fmt: skip
    plan = TracePlan(schedule_of("1f1b", 1, 1), [program], lambda _: 1e-6, {"dp": 2})
    nodes = list(rank_nodes(plan, 0, lambda place: place, lambda dim: dim))
    assert [(node.name.split()[-1], node.needs) for node in nodes] == [
        ("mm", ()), ("mm", (1,)), ("bucket", (2,)), ("mm", (2,)), ("adam", (4, 3))
    ]  # fmt: skip


def messages(data):
    place = 0
    while place < len(data):
        size, place = varint(data, place)
        yield data[place : place + size]
        place += size


def test_files_hold_the_nodes_of_every_rank_and_the_groups(tmp_path):
    plan, mesh = trace_plan(), PLAN.mesh
    paths = write_traces(tmp_path, "tiny", plan, mesh, lambda _: mesh)
    assert [path.name for path in paths] == [*(f"tiny.{rank}.et" for rank in range(8)), "tiny.json"]
    groups = json.loads(paths[-1].read_text())
    assert {tuple(ranks) for ranks in groups.values()} == {
        mesh.group(dim, rank) for dim in ("tp", "dp", "pp") for rank in mesh.ranks()
    }
    metadata, *nodes = messages(memoryview(paths[5].read_bytes()))
    assert metadata == b"\n\x050.0.4"
    expected = list(rank_nodes(plan, 1, lambda place: place, lambda dim: dim))
    assert len(nodes) == len(expected)
    for data, node in zip(nodes, expected, strict=True):
        parts = list(fields(data))
        numbers = {field: value for field, _, value in parts if isinstance(value, int)}
        assert (numbers[1], numbers[3]) == (node.id, node.type)
        assert numbers.get(7) == (round(node.duration_s * 1e6) if node.type == COMPUTE else None)
        (needs,) = [value for field, _, value in parts if field == 5] or [b""]
        assert bytes(needs) == b"".join(map(encoded, node.needs))
        assert sum(field == 10 for field, _, _ in parts) == len(node.attributes)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: write_traces(None, "x", trace_plan(), Mesh(dims=(("pp", 4),)), None), "the schedule has pp=2"),
        (lambda: all_nodes(trace_plan()._replace(group_sizes={})), "no group size for the mesh dimension"),
        (lambda: all_nodes(trace_plan()._replace(programs=[])), "2 stages but 0 rank programs"),
    ],
)
def test_traces_that_cannot_be_are_one_line(call, words):
    with pytest.raises(SpecError, match=r"^[^\n]*$") as error:
        call()
    assert words in str(error.value)


def test_an_empty_trace_is_its_metadata():
    assert trace_bytes([]) == b"\x07\n\x050.0.4"
