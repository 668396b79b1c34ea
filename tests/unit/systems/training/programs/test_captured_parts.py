"""Tiles and branches of a captured step, against counts by hand."""

from math import fsum

import pytest

torch = pytest.importorskip("torch")

from nearpeak.base.identity_key import Same  # noqa: E402
from nearpeak.core.systems.training_plan import TrainingPlan  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import SpecError  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.ops import work_of  # noqa: E402
from nearpeak.systems.training.memory.stage_memory import stage_memory  # noqa: E402
from nearpeak.systems.training.programs.captured_step import captured_step  # noqa: E402
from nearpeak.systems.training.programs.stage_calls import block_starts, read_step, stage_calls  # noqa: E402
from nearpeak.systems.training.programs.step_branches import step_branches  # noqa: E402
from nearpeak.systems.training.programs.workload_program import workload_program  # noqa: E402

IMAGES, CHANNELS, SIZE = 4, 8, 32


class Forked(torch.nn.Module):
    """Two towers of equal convolutions between a first and a last one."""

    def __init__(self, tower_count=2):
        super().__init__()
        self.first, self.last = (torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2))
        self.towers = torch.nn.ModuleList(
            torch.nn.Sequential(*(torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2)))
            for _ in range(tower_count)
        )

    def forward(self, x):
        x = self.first(x)
        y = self.towers[0](x)
        for tower in self.towers[1:]:
            y = y + tower(x)
        return self.last(y)


def pooled():
    convolution, norm = torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), torch.nn.BatchNorm2d(CHANNELS)
    return torch.nn.Sequential(convolution, norm, torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
                               torch.nn.Linear(CHANNELS * SIZE * SIZE // 4, 10))  # fmt: skip


def captured(build):
    images = (torch.empty(IMAGES, CHANNELS, SIZE, SIZE),), {}
    return capture_torch(build, lambda: images, CaptureOptions(step="train"), name="images")


@pytest.fixture(scope="module")
def step():
    return captured(pooled)


@pytest.fixture(scope="module")
def forked():
    return captured(Forked)


def plan_of(**options):
    return TrainingPlan(**{"micro_batch": IMAGES, "global_batch": IMAGES, "sequence": 1, "precision": "fp32",
                           "framework": "ddp"} | options)  # fmt: skip


def flop_of(calls):
    return fsum(call.count * sum(work_of(call.case).flop.values()) for call in calls if call.case is not None
                and call.case.op == "conv")  # fmt: skip


def moved(calls, ending):
    return [call.transfer.bytes for call in calls if call.transfer and call.name.endswith(ending)]


@pytest.mark.parametrize(("rows", "columns"), [(2, 1), (2, 2), (1, 4)])
def test_tiles_share_out_convolutions_and_exchange_their_halos(step, rows, columns):
    whole = workload_program(step, plan_of())
    tile = workload_program(step, plan_of(cp=rows * columns, tile_row_count=rows, tile_column_count=columns))
    for calls in ("forward", "weight"):
        part, every = (flop_of(getattr(program, calls)) for program in (tile, whole))
        assert part == pytest.approx(every / (rows * columns), rel=0.05) != 0  # padding is at the image's edge alone
    tall, wide = SIZE // rows, SIZE // columns
    inner = (min(rows - 1, 2), min(columns - 1, 2))  # neighbours of the tile that has most
    positions = (tall + inner[0]) * (wide + inner[1]) - tall * wide
    assert moved(tile.forward, ".halo") == [4 * IMAGES * CHANNELS * positions]
    assert moved(tile.forward, ".statistics") == [2 * CHANNELS * 4] == moved(tile.backward, ".statistics")


def test_layers_that_flatten_images_gather_them_once(step):
    tile = workload_program(step, plan_of(cp=2, tile_row_count=2))
    assert moved(tile.forward, ".images") == [4 * IMAGES * CHANNELS * SIZE * SIZE // 4]
    assert [call.case.label() for call in tile.forward if call.case and call.case.op == "gemm"] == [
        call.case.label() for call in workload_program(step, plan_of()).forward if call.case and call.case.op == "gemm"
    ]


def test_gradients_are_reduced_over_tiles_as_over_replicas(step):
    tiles = workload_program(step, plan_of(cp=2, tile_row_count=2))
    replicas = workload_program(step, plan_of(dp=2, global_batch=2 * IMAGES))
    sizes = [[(call.transfer.kind, call.transfer.bytes) for call in one.gradient if call.transfer]
             for one in (tiles, replicas)]  # fmt: skip
    assert sizes[0] == sizes[1] != []


def test_a_tile_holds_its_part_of_the_images(step):
    plan = plan_of(cp=4, tile_row_count=2, tile_column_count=2)
    whole, tile = (stage_memory(step, [stage_calls(step, one)], one) for one in (plan_of(), plan))
    assert tile.parts["weights"] == whole.parts["weights"]
    assert 0.24 < tile.parts["activations"] / whole.parts["activations"] < 0.6  # the gathered images stay whole


def test_tiles_of_a_step_without_images_or_with_too_few_rows_are_refused_in_one_line(step):
    flat = capture_torch(
        lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)), ((torch.empty(IMAGES, 8),), {}),
        CaptureOptions(step="train"), name="flat",
    )  # fmt: skip
    with pytest.raises(SpecError, match="flat: spatial=2x1: the step has no images to cut"):
        workload_program(flat, plan_of(cp=2, tile_row_count=2))
    with pytest.raises(SpecError, match="32 positions on 64 ranks"):
        workload_program(step, plan_of(cp=64, tile_row_count=64))


class Attentive(torch.nn.Module):
    """Attention over the positions of images, between two convolutions."""

    def __init__(self):
        super().__init__()
        self.first, self.last = (torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2))
        self.project, self.out = torch.nn.Linear(CHANNELS, 3 * CHANNELS), torch.nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x):
        tokens = self.first(x).flatten(2).transpose(1, 2)
        heads = self.project(tokens).view(IMAGES, SIZE * SIZE, 3, 2, CHANNELS // 2).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads)
        mixed = self.out(mixed.transpose(1, 2).reshape(IMAGES, SIZE * SIZE, CHANNELS))
        return self.last(mixed.transpose(1, 2).reshape(IMAGES, CHANNELS, SIZE, SIZE))


def test_attention_between_convolutions_gathers_the_images_and_runs_whole():
    workload = captured(Attentive)
    plan = plan_of(cp=2, tile_row_count=2)
    whole, tile = workload_program(workload, plan_of()), workload_program(workload, plan)
    for calls in ("forward", "weight"):
        part, every = (flop_of(getattr(program, calls)) for program in (tile, whole))
        assert part == pytest.approx(every / 2, rel=0.05) != 0
    cases = [[c.case for c in program.forward if c.case and c.case.op in ("attention", "gemm")]
             for program in (tile, whole)]  # fmt: skip
    assert cases[0] == cases[1] != []
    size = 4 * IMAGES * CHANNELS * SIZE * SIZE
    assert moved(tile.forward, ".images") == [size] == moved(tile.backward, ".images")
    assert len(moved(tile.forward, ".halo")) == 1  # the second convolution has all it needs
    own = stage_calls(workload, plan)
    assert {call.case.op for call in own.forward if own.tiled.is_whole(call)} == {"attention", "gemm"}


def placed(workload, rank_count, send_s=0.0):
    return step_branches(captured_step(workload), workload, rank_count, call_s=lambda call: 1.0 * call.call_count,
                         send_s=lambda size: send_s)  # fmt: skip


def test_equal_towers_run_beside_each_other(forked):
    found = placed(forked, 2)
    calls = [call for call in captured_step(forked).forward if call.module.startswith("towers.1")]
    assert {Same(call) for call in calls} <= found.moved
    assert (
        not {Same(call) for call in captured_step(forked).forward if call.module.startswith("towers.0")} & found.moved
    )
    moved_s = sum(call.call_count for call in forked.calls if Same(call) in found.moved)
    assert found.serial_s - found.time_s == moved_s
    assert found.wait_s == 0


class Towers(torch.nn.Module):
    """Two towers over the same images, the first run before the second begins, that meet in the end."""

    def __init__(self):
        super().__init__()
        self.left, self.right = (
            torch.nn.Sequential(*(torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2)))
            for _ in range(2)
        )

    def forward(self, x):
        x = x * 2
        return self.left(x) * self.right(x + 1)


def test_towers_that_begin_with_the_inputs_run_beside_each_other():
    workload = captured(Towers)
    found = placed(workload, 2)
    names = {call.module.split(".")[0] for call in workload.calls if Same(call) in found.moved}
    assert len(names & {"left", "right"}) == 1
    convolutions = [call for call in workload.calls if call.case.op == "conv" and Same(call) in found.moved]
    assert len(convolutions) == 4  # two in each pass


def test_the_home_rank_waits_for_transfers(forked):
    found = placed(forked, 2, send_s=0.5)
    away_s = 4 + 2 * (0.5 + 0.5)  # two convolutions in both passes, inputs and results in both
    assert found.wait_s == away_s - 5  # the home rank also adds up the gradients of both towers
    assert found.time_s == placed(forked, 2).time_s + found.wait_s


def test_the_home_rank_holds_the_parameters_of_its_branches(forked):
    plan = plan_of(tp=2, has_branches=True)
    own = stage_calls(forked, plan, branches=step_branches(
        read_step(forked), forked, 2, call_s=lambda call: 1.0, send_s=lambda size: 0.0))  # fmt: skip
    held = sum(unit.elements("dense") for unit in own.units)
    every = sum(unit.elements("dense") for unit in own.step.units)
    assert held == every * 4 / 6  # six convolutions, two of them elsewhere


@pytest.mark.parametrize(
    ("rank_count", "send_s", "message"),
    [(3, 0.0, "branches=3: at most 2 run beside each other; branches=2 may work"),
     (2, 1e6, "of 1 forks of its graph none is faster on ranks of its own")],
)  # fmt: skip
def test_branches_that_are_not_there_or_do_not_gain_are_refused_in_one_line(forked, rank_count, send_s, message):
    with pytest.raises(SpecError, match=message):
        placed(forked, rank_count, send_s)


def test_a_chain_has_no_branches(step):
    with pytest.raises(SpecError, match="its graph is a chain: pp, dp or spatial would work"):
        placed(step, 2)


def test_stages_take_the_blocks_that_a_plan_states(step):
    starts = block_starts(captured_step(step), plan_of(pp=2, global_batch=8 * IMAGES, stage_layer_count=(1, 2)))
    assert starts == ["1"]
    with pytest.raises(SpecError, match="stages=2:2 add up to 4, but the step has 3 numbered blocks, 0 to 5"):
        block_starts(captured_step(step), plan_of(pp=2, global_batch=8 * IMAGES, stage_layer_count=(2, 2)))


def test_micro_batches_in_flight_hold_what_the_backward_pass_reads(step):
    few, many = (plan_of(pp=2, global_batch=count * IMAGES) for count in (1, 8))
    first, more = (stage_memory(step, [stage_calls(step, plan)], plan) for plan in (few, many))
    last = stage_memory(step, [stage_calls(step, many, 1)], many)
    assert more.parts["activations"] > first.parts["activations"]
    assert more.parts["weights"] + last.parts["weights"] == pytest.approx(
        stage_memory(step, [stage_calls(step, plan_of())], plan_of()).parts["weights"], abs=2
    )
