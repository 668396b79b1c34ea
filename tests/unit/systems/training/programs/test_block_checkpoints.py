"""Checkpointed blocks of a captured step, against what torch.utils.checkpoint around each block runs and holds."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from nearpeak.bounds.step.liveness import occupancy_of  # noqa: E402
from nearpeak.core.systems.rank_program import RECOMPUTED  # noqa: E402
from nearpeak.core.systems.training_plan import TrainingPlan  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import SpecError  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.systems.training.programs.block_checkpoints import checkpointed_step  # noqa: E402
from nearpeak.systems.training.programs.stage_calls import planned_step  # noqa: E402
from nearpeak.systems.training.programs.workload_program import workload_program, workload_programs  # noqa: E402

BATCH, WIDTH, BLOCKS = 4, 64, 3


class Block(torch.nn.Module):
    """A gated part of a network, which saves more than its input."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up, self.gate, self.down = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


class Stack(torch.nn.Module):
    """Blocks between two products."""

    def __init__(self, is_checkpointed):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, WIDTH), torch.nn.Linear(WIDTH, 8)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(BLOCKS))
        self.is_checkpointed = is_checkpointed

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return self.last(x)


def captured(is_checkpointed):
    inputs = (torch.empty(BATCH, 16, 8),), {}
    return capture_torch(lambda: Stack(is_checkpointed), lambda: inputs, CaptureOptions(step="train"), name="stack")


@pytest.fixture(scope="module")
def step():
    return captured(is_checkpointed=False)


@pytest.fixture(scope="module")
def ruled(step):
    return checkpointed_step(step, [f"blocks.{place}" for place in range(BLOCKS)])


def labels(workload):
    counts = Counter()
    for call in workload.calls:
        counts[call.phase, call.case.label()] += call.call_count
    return counts


def test_every_kernel_is_one_that_pytorch_runs(ruled):
    assert labels(ruled) == labels(captured(is_checkpointed=True))


def test_memory_at_the_peak_is_that_of_pytorch(step, ruled):
    plain, found, true = (
        occupancy_of(workload).use.activation_peak_bytes for workload in (step, ruled, captured(is_checkpointed=True))
    )
    assert found == pytest.approx(true, rel=0.01)
    assert found < plain


def test_the_last_product_of_a_block_that_saves_its_input_alone_is_not_run_again(ruled):
    again = [call for call in ruled.calls if call.operator.startswith(RECOMPUTED)]
    assert {call.phase for call in again} == {"backward"}
    assert not any(call.module.endswith("down") for call in again)
    assert sum(call.module.endswith(("up", "gate")) for call in again) == 2 * BLOCKS


def test_a_block_runs_again_before_its_first_gradient(ruled):
    order = [call for call in ruled.calls if call.phase == "backward" and call.module.startswith("blocks.1")]
    is_again = [call.operator.startswith(RECOMPUTED) for call in order]
    assert is_again == sorted(is_again, reverse=True)


def plan_of(**options):
    return TrainingPlan(**{"micro_batch": BATCH, "global_batch": 4 * BATCH, "sequence": 1, "precision": "fp32",
                           "framework": "ddp", "recompute": "full"} | options)  # fmt: skip


def test_programs_run_blocks_again_as_the_plan_says(step):
    again = [call.name for call in workload_program(step, plan_of()).backward if call.name.startswith(RECOMPUTED)]
    assert any(name == f"{RECOMPUTED}blocks.2.up" for name in again)
    plain = workload_program(step, plan_of(recompute="none"))
    assert not any(call.name.startswith(RECOMPUTED) for call in plain.backward)
    assert planned_step(step, plan_of()) is planned_step(step, plan_of(global_batch=BATCH))


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_chunks_share_out_all_calls(step, recompute):
    plan = plan_of(pp=2, chunk_count=2, schedule="interleaved", recompute=recompute)
    whole = Counter(call.case for call in workload_program(step, plan_of(recompute=recompute)).forward)
    with pytest.raises(SpecError, match="pp=2 stages of 2 chunks each, but only 3 numbered blocks; pp=1 would"):
        workload_programs(step, plan)
    parts = workload_programs(step, plan, starts=["blocks.0", "blocks.1", "blocks.2"])
    assert [(part.stage, part.chunk) for part in parts] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert sum((Counter(c.case for c in part.forward if c.case) for part in parts), Counter()) == whole
