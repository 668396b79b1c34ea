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
from nearpeak.systems.training.chakra.trace_files import trace_messages, write_traces
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
    assert list(trace_messages([])) == [b"\x07\n\x050.0.4"]


def schema_classes():
    """Metadata and node of the public schema, as far as files have its fields, from protobuf itself."""
    pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    field = pb2.FieldDescriptorProto
    kinds = {"string": field.TYPE_STRING, "uint64": field.TYPE_UINT64, "int32": field.TYPE_INT32,
             "int64": field.TYPE_INT64, "bool": field.TYPE_BOOL}  # fmt: skip
    file = pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    node_types = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
                  "COMM_RECV_NODE", "COMM_COLL_NODE")  # fmt: skip
    enum = file.enum_type.add(name="NodeType")
    for number, name in enumerate(node_types):
        enum.value.add(name=name, number=number)

    def add(message, name, number, kind, *, is_repeated=False, of="", oneof=None):
        label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
        extra = {"type_name": f".ChakraProtoMsg.{of}"} if of else {}
        item = message.field.add(name=name, number=number, type=kinds.get(kind, kind), label=label, **extra)
        if oneof is not None:
            item.oneof_index = oneof

    attribute = file.message_type.add(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    add(attribute, "name", 1, "string")
    for name, number, kind in (("int32_val", 7, "int32"), ("int64_val", 9, "int64"), ("bool_val", 27, "bool"),
                               ("string_val", 29, "string")):  # fmt: skip
        add(attribute, name, number, kind, oneof=0)
    metadata, node = file.message_type.add(name="GlobalMetadata"), file.message_type.add(name="Node")
    add(metadata, "version", 1, "string")
    for number, name, kind in ((1, "id", "uint64"), (2, "name", "string"), (6, "start_time_micros", "uint64"),
                               (7, "duration_micros", "uint64")):  # fmt: skip
        add(node, name, number, kind)
    for number, name in ((4, "ctrl_deps"), (5, "data_deps")):
        add(node, name, number, "uint64", is_repeated=True)
    add(node, "type", 3, field.TYPE_ENUM, of="NodeType")
    add(node, "attr", 10, field.TYPE_MESSAGE, is_repeated=True, of="AttributeProto")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("GlobalMetadata", "Node")
    ]


READ_AS = {"is_cpu_op": "bool_val", "comm_type": "int64_val", "comm_size": "int64_val", "comm_src": "int32_val",
           "comm_dst": "int32_val", "comm_tag": "int32_val", "pg_name": "string_val"}  # fmt: skip
"""Types as which readers take attributes; another type reads as 0 (mlcommons/chakra, src/feeder/et_feeder_node.cpp)."""


def decoded(path):
    """The nodes of a file as the public schema reads them."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    metadata_class, node_class = schema_classes()
    metadata, *nodes = messages(memoryview(path.read_bytes()))
    assert metadata_class.FromString(bytes(metadata)).version == "0.0.4"
    nodes = [node_class.FromString(bytes(data)) for data in nodes]
    assert not any(len(UnknownFieldSet(part)) for node in nodes for part in (node, *node.attr))
    return nodes


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h2", "dualpipe"])
def test_files_follow_the_public_schema_and_ranks_agree(schedule, tmp_path):
    pytest.importorskip("google.protobuf")
    mesh = PLAN.mesh
    *files, groups_file = write_traces(tmp_path, "tiny", trace_plan(schedule), mesh, lambda _: mesh)
    groups = json.loads(groups_file.read_text())
    collectives, sent, received = {}, Counter(), Counter()
    for rank, path in enumerate(files):
        nodes = decoded(path)
        ids = [node.id for node in nodes]
        assert len(set(ids)) == len(ids)
        assert all(need in ids[:place] for place, node in enumerate(nodes) for need in node.data_deps), "no circles"
        for node in nodes:
            values = {attr.name: getattr(attr, attr.WhichOneof("value")) for attr in node.attr}
            assert {attr.name: attr.WhichOneof("value") for attr in node.attr}.items() <= READ_AS.items()
            assert (node.duration_micros > 0) == (node.type == COMPUTE)
            if node.type == COLLECTIVE:
                assert rank in groups[values["pg_name"]]
                order = collectives.setdefault((values["pg_name"], rank), [])
                order.append((values["comm_type"], values["comm_size"]))
            elif node.type in (SEND, RECEIVE):
                assert rank == values["comm_src" if node.type == SEND else "comm_dst"]
                ends = tuple(values[name] for name in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
                (sent if node.type == SEND else received)[ends] += 1
    assert sent == received
    assert set(sent.values()) == {1}, "a tag tells messages between two ranks apart"
    for name in {name for name, _ in collectives}:
        orders = [collectives[name, rank] for rank in groups[name]]
        assert all(order == orders[0] for order in orders), "members of a group call the same collectives in order"
