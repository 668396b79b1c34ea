"""Memory of ranks that run a captured step, against sums by hand."""

import pytest

torch = pytest.importorskip("torch")

from nearpeak.bounds.step.liveness import occupancy_of  # noqa: E402
from nearpeak.core.systems.training_plan import TrainingPlan  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.systems.training.memory.workload_memory import workload_memory  # noqa: E402

PARAMETERS = 2 * (64 * 64 + 64)


@pytest.fixture(scope="module")
def step():
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    return capture_torch(layers, ((torch.empty(8, 64),), {}), CaptureOptions(step="train"), name="two layers")


def held(step, **options):
    dp, count = options.pop("dp", 1), options.pop("count", 1)
    plan = TrainingPlan(micro_batch=8, dp=dp, global_batch=8 * dp * count, sequence=1, **options)
    return workload_memory(step, plan)


def test_one_device_holds_the_peak_of_the_step(step):
    memory = held(step)
    assert memory.allocated_bytes == occupancy_of(step).use.peak_bytes
    assert memory.parts["weights"] == 4 * PARAMETERS
    assert memory.parts["optimizer"] >= 2 * 4 * PARAMETERS
    assert memory.parts["buckets"] == memory.parts["gathers"] == 0


def test_replicas_add_their_buckets_and_later_micro_batches_keep_gradients(step):
    assert held(step, dp=4).allocated_bytes - held(step).allocated_bytes == 4 * PARAMETERS
    assert held(step, dp=4, count=2).parts["gradients"] == 4 * PARAMETERS


def test_shards_divide_what_they_share(step):
    one, states, shards, some = (
        held(step, dp=4, **way)
        for way in ({}, {"sharding": "zero1"}, {"sharding": "fsdp"}, {"sharding": "hsdp", "shard_count": 2})
    )
    assert states.parts["optimizer"] == -(-one.parts["optimizer"] // 4)
    assert states.parts["weights"] == one.parts["weights"] == 4 * shards.parts["weights"] == 2 * some.parts["weights"]
    assert shards.parts["gathers"] == 4 * PARAMETERS
    assert shards.parts["buckets"] == 0
