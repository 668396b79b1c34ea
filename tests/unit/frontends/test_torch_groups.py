"""Capture of distributed models on one process: the collectives of one rank, with the size of their group."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from nearpeak.bounds.step.step_bound import step_bound  # noqa: E402
from nearpeak.core.answers.bound import Policy  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.targets import target_of  # noqa: E402

RANKS = 4
WEIGHTS = 16 * 32 + 32, 32 * 16 + 16
"""Parameters of the two layers."""


@pytest.fixture(scope="module", autouse=True)
def group():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def perceptron():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))


def replicated():
    return torch.nn.parallel.DistributedDataParallel(perceptron())


def sharded():
    from torch.distributed.fsdp import fully_shard

    model = perceptron()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh())
    return fully_shard(model, mesh=mesh())


def split():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(perceptron(), mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})


def mesh():
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (RANKS,))


def captured(build, step="train"):
    return capture_torch(build, lambda: ((torch.empty(8, 16),), {}), CaptureOptions(step=step), name="model")


def collectives(workload):
    """Kinds and sizes of the collectives by phase."""
    found = Counter()
    for call in workload.calls:
        if call.case is not None and call.case.op == "collective":
            record = call.case.record()
            assert record["ranks"] == RANKS
            found[call.phase, record["kind"], record["elements"]] += call.call_count
    return found


def test_data_parallel_training_reduces_all_gradients_once():
    workload = captured(replicated)
    assert collectives(workload) == {("backward", "all_reduce", sum(WEIGHTS)): 1}
    assert not workload.uncovered_counts()


def test_data_parallel_buckets_hold_at_most_their_cap():
    def build():
        return torch.nn.parallel.DistributedDataParallel(perceptron(), bucket_cap_mb=0.002)

    sizes = [elements for (_, _, elements), count in collectives(captured(build)).items() for _ in range(count)]
    assert sum(sizes) == sum(WEIGHTS)
    assert len(sizes) > 1
    assert max(sizes) * 4 <= 0.002 * 2**20


def test_sharded_training_gathers_twice_and_scatters_once():
    workload = captured(sharded)
    wanted = {
        (phase, kind, elements): 1
        for elements in WEIGHTS
        for phase, kind in (("forward", "all_gather"), ("backward", "all_gather"), ("backward", "reduce_scatter"))
    }
    assert collectives(workload) == wanted
    assert not workload.uncovered_counts()


def test_tensor_parallel_inference_reduces_once_per_pair_of_layers():
    workload = captured(split, "forward")
    assert collectives(workload) == {("forward", "all_reduce", 8 * 16): 1}
    products = [call.case.record() for call in workload.calls if call.case is not None and call.case.op == "gemm"]
    assert [(p["n"], p["k"]) for p in products] == [(32 // RANKS, 16), (16, 32 // RANKS)]


def test_collectives_of_a_step_share_the_links_and_compete_with_memory():
    h100 = target_of("h100_sxm")
    terms = step_bound(captured(sharded), h100, Policy()).terms_s
    part = sum(WEIGHTS) * 4 // RANKS
    # Gathered, three parts in and one out, which the second time only repeats; scattered, three out and one in.
    assert terms["link"] == pytest.approx(4 * part / (450e9 + 64e9))
    alone = step_bound(captured(sharded), h100, Policy(switch_reduction=False)).terms_s
    assert alone["link"] == pytest.approx(6 * part / (450e9 + 64e9))


def meshed(names, shape=(2, 2)):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    grid = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = parallelize_module(perceptron(), grid[names[1]], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return fully_shard(model, mesh=grid[names[0]])


def groups(workload):
    return {
        (call.case.record()["kind"], call.group.dim, call.group.ranks)
        for call in workload.calls
        if call.case is not None and call.case.op == "collective"
    }


def test_collectives_keep_the_dimension_and_the_ranks_of_their_group():
    found = groups(captured(lambda: meshed(("replicas", "tp"))))
    assert {("all_gather", "replicas", (0, 2)), ("reduce_scatter", "replicas", (0, 2))} <= found
    assert ("all_reduce", "tp", (0, 1)) in found
    # A mesh of one dimension has the default group, whose name the mesh alone knows.
    assert {dim for _, dim, _ in groups(captured(sharded))} == {""}
    assert groups(captured(replicated)) == {("all_reduce", "", tuple(range(RANKS)))}


def test_groups_of_any_ranks_are_kept():
    uneven = torch.distributed.new_group([0, 1, 3], group_desc="ep")

    def work(x):
        torch.distributed.all_reduce(x, group=uneven)
        return x

    workload = capture_torch(lambda: work, lambda: ((torch.empty(8),), {}), CaptureOptions(step="forward"), name="one")
    assert groups(workload) == {("all_reduce", "ep", (0, 1, 3))}


def test_saved_workloads_keep_groups_and_older_ones_name_what_is_missing():
    from dataclasses import replace

    from nearpeak.api.cluster_collectives import workload_collectives
    from nearpeak.errors import SpecError
    from nearpeak.frontends.files.saved_workload import load_text, save_text
    from nearpeak.targets.clusters import cluster_of

    workload = captured(lambda: meshed(("dp", "tp")))
    assert load_text(save_text(workload), "a.json") == workload
    cluster = cluster_of("4xrtx_4090", "pcie4+ib_edr:1")
    assert {found.found.tier for found in workload_collectives(workload, cluster)} == {"pcie"}
    older = replace(workload, calls=tuple(replace(call, group=None) for call in workload.calls))
    assert '"group"' not in save_text(older)
    with pytest.raises(SpecError, match="does not say which ranks; a capture on a DeviceMesh") as error:
        workload_collectives(load_text(save_text(older), "a.json"), cluster)
    assert "\n" not in str(error.value)


def test_functional_and_in_place_collectives_are_the_same_cases():
    import torch.distributed._functional_collectives as functional

    def functions(x):
        y = functional.all_reduce(x, "sum", torch.distributed.group.WORLD)
        z = functional.all_gather_tensor(x, 0, torch.distributed.group.WORLD)
        own = torch.empty_like(x)
        torch.distributed.all_reduce(x)
        torch.distributed.all_to_all_single(own, x)
        torch.distributed.broadcast(x, src=1)
        return y, z, own, x

    workload = captured(lambda: functions, "forward")
    found = {(kind, elements): n for (_, kind, elements), n in collectives(workload).items()}
    assert found == {("all_reduce", 128): 2, ("all_gather", 512): 1, ("all_to_all", 128): 1, ("broadcast", 128): 1}
    assert not workload.uncovered_counts()
    roles = [call.case.record()["role"] for call in workload.calls if "broadcast" in call.operator]
    assert roles == ["leaf"]


def test_a_module_that_is_data_parallel_already_is_captured_and_left_alone():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    assert collectives(captured_module(model)) == {("backward", "all_reduce", 16 * 16 + 16): 1}
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not isinstance(next(model.parameters()), torch._subclasses.FakeTensor)


def captured_module(model):
    return capture_torch(model, lambda: ((torch.empty(8, 16),), {}), CaptureOptions(step="train"), name="model")
