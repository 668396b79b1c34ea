"""Programs of ranks from a captured step of any model, against the captured programs of DDP and fully_shard."""

from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from nearpeak.core.systems.training_plan import TrainingPlan  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import NotModelledError, SpecError  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.systems.training.programs.workload_program import workload_program, workload_programs  # noqa: E402

RANKS = 4


@pytest.fixture(scope="module", autouse=True)
def group():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def block(channels):
    layers = torch.nn.Conv2d(channels, channels, 3, padding=1), torch.nn.BatchNorm2d(channels), torch.nn.ReLU()
    return torch.nn.Sequential(*layers)


def convolutions():
    """Six channels, so that no first extent but one is a multiple of the ranks."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3), block(6), block(6), torch.nn.Flatten(), torch.nn.Linear(6 * 36, 10)
    )


def replicated():
    return torch.nn.parallel.DistributedDataParallel(convolutions())


def sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh, model = init_device_mesh("cpu", (RANKS,)), convolutions()
    for place in (0, 1, 2, 4):
        fully_shard(model[place], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def captured(build, **options):
    shape = (torch.empty(4, 3, 8, 8),), {}
    return capture_torch(build, lambda: shape, CaptureOptions(step="train"), name="convolutions", **options)


@pytest.fixture(scope="module")
def step():
    return captured(convolutions)


def plan_of(**options):
    batch = 4 * options.get("dp", 1)
    return TrainingPlan(**{"micro_batch": 4, "global_batch": batch, "sequence": 1, "precision": "fp32"} | options)


def captured_calls(build):
    workload = captured(build, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False))
    calls = Counter()
    for call in workload.calls:
        record = call.case.record()
        if call.phase != "optimizer" and record["op"] == "collective":
            calls[call.phase, f"{record['kind']} of {4 * record['elements']} bytes"] += call.call_count
        elif call.phase != "optimizer":
            calls[call.phase, call.case.label()] += call.call_count
    return calls


def ruled_calls(program):
    passes = {"forward": program.forward, "backward": (*program.backward, *program.weight, *program.gradient)}
    calls = Counter()
    for phase, part in passes.items():
        for call in part:
            moved = call.transfer
            calls[phase, f"{moved.kind} of {moved.bytes} bytes" if moved else call.case.label()] += call.count
    return calls


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (convolutions, {}),
        (replicated, {"dp": RANKS, "framework": "ddp"}),
        (sharded, {"dp": RANKS, "framework": "fsdp2", "sharding": "fsdp"}),
    ],
    ids=["one rank", "DDP", "fully_shard"],
)  # fmt: skip
def test_every_kernel_and_collective_follows_from_the_step_of_one_device(step, build, options):
    assert captured_calls(build) == ruled_calls(workload_program(step, plan_of(**options)))


def test_stages_share_out_the_calls_and_send_what_crosses(step):
    first, last = workload_programs(step, plan_of(pp=2), starts=["2"])
    sends = [[c.transfer.bytes for c in (*s.forward, *s.backward) if c.transfer] for s in (first, last)]
    hidden = 4 * 6 * 6 * 6 * 4
    assert sends == [[hidden], [hidden]]
    alone = ruled_calls(workload_program(step, plan_of()))
    together = ruled_calls(first) + ruled_calls(last)
    assert {key: n for key, n in together.items() if "send" not in key[1]} == alone
    assert first.parameter_count + last.parameter_count == workload_program(step, plan_of()).parameter_count


def test_stages_hold_equal_numbers_of_blocks_unless_stated(step):
    counts = [program.layer_count for program in workload_programs(step, plan_of(pp=3))]
    assert counts == [2, 1, 1]


def test_the_update_is_split_with_its_states(step):
    whole = workload_program(step, plan_of())
    program = workload_program(step, plan_of(dp=RANKS, sharding="zero1"))
    update = next(call.case for call in program.optimizer if call.case and call.case.op == "adamw")
    assert dict(update.axes)["parameters"] == -(-whole.parameter_count // RANKS)
    gathered = [call.transfer for call in program.optimizer if call.transfer]
    assert [t.kind for t in gathered] == ["all_gather"]


def test_micro_batches_add_their_gradients(step):
    program = workload_program(step, plan_of(framework="ddp", global_batch=16, dp=2))
    added = [call for call in program.weight if call.name == "gradient.accumulate"]
    assert sum(dict(call.case.axes)["elements"] for call in added) == program.parameter_count


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"plan": {"tp": 2}}, SpecError, "tp=2 needs the shape of a transformer; a captured step takes dp and pp"),
        ({"plan": {"pp": 6}}, SpecError, "pp=6 stages, but only 4 numbered blocks; pp=4 would"),
        ({"plan": {"pp": 2}, "starts": ["9"]}, SpecError, "no call of module '9'; '2' is one"),
        ({"plan": {"pp": 3}, "starts": ["2", "1"]}, SpecError, "module '1' does not run after '2'"),
        ({"plan": {}, "blocks": ["head"]}, SpecError, "module 'head' holds no parameters; '4' does"),
        ({"plan": {"recompute": "selective"}}, NotModelledError, "none or full would work"),
    ],
)  # fmt: skip
def test_what_a_captured_step_cannot_answer_is_refused_in_one_line(step, options, error, message):
    plan = plan_of(**options.pop("plan"))
    with pytest.raises(error, match=message):
        workload_program(step, plan, **options)


def test_a_step_without_gradients_is_refused(step):
    with pytest.raises(SpecError, match="a forward step; programs of ranks need a training step"):
        workload_program(replace(step, step="forward"), plan_of())


class Tied(torch.nn.Module):
    """An embedding whose rows serve as output head, around one block."""

    def __init__(self):
        super().__init__()
        self.embedding, self.blocks = torch.nn.Embedding(50, 8), torch.nn.ModuleList([torch.nn.Linear(8, 8)])

    def forward(self, tokens):
        return self.blocks[0](self.embedding(tokens)) @ self.embedding.weight.T


def test_a_tied_embedding_is_held_by_both_stages_and_its_gradients_are_summed():
    def inputs():
        return (torch.zeros((2, 4), dtype=torch.long),), {}

    workload = capture_torch(Tied, inputs, CaptureOptions(step="train"), name="tied")
    first, last = workload_programs(workload, plan_of(pp=2), starts=["blocks.0"])
    assert [first.parameter_count, last.parameter_count] == [50 * 8, 50 * 8 + 8 * 8 + 8]
    for program, sent in ((first, first.forward), (last, last.backward)):
        assert [call.transfer.bytes for call in sent if call.transfer] == [2 * 4 * 8 * 4]
        assert [(c.transfer.kind, c.transfer.bytes) for c in program.gradient] == [("all_reduce", 50 * 8 * 4)]
