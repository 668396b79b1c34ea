"""Time and memory of parallel plans of one captured training step on one cluster."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nearpeak.api.device_durations import kernel_durations
from nearpeak.api.training.job_plan import CONTEXT_BYTES
from nearpeak.api.training.training_time import host_count, sustained_step, transfer_durations
from nearpeak.core.systems.duration import WHOLE
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.rank_memory import RankMemory
from nearpeak.core.systems.rank_program import RankProgram, Transfer
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.training.memory.stage_memory import pass_memory, stage_memory
from nearpeak.systems.training.memory.workload_memory import workload_memory
from nearpeak.systems.training.pipeline_order import held, rank_stages
from nearpeak.systems.training.programs.captured_step import is_again, rank_call
from nearpeak.systems.training.programs.data_parallelism import data_parallelism
from nearpeak.systems.training.programs.stage_calls import (
    StageCalls,
    planned_step,
    read_step,
    stage_blocks,
    stage_calls,
)
from nearpeak.systems.training.programs.step_branches import StepBranches, step_branches
from nearpeak.systems.training.programs.workload_program import check_degrees, stage_program
from nearpeak.systems.training.rank_lanes import Times, run_lanes
from nearpeak.systems.training.schedules import plan_schedule
from nearpeak.systems.training.stage_split import MemoryLimit, StageLayer, split_stages
from nearpeak.systems.training.training_step import Beside, StepTime, step_time
from nearpeak.targets import target_of

if TYPE_CHECKING:
    from nearpeak.core.systems.stack import Stack


class CapturedStepTimes:
    """Times and memory of plans of one captured step; what plans share is read once."""

    def __init__(self, workload: Workload, cluster: Cluster, stack: "Stack") -> None:
        """Read the step.

        Raises:
            SpecError: it is no training step of one device.
            NotModelledError: it has calls that no operator matches.
        """
        self._workload, self._cluster, self._stack = workload, cluster, stack
        self._target = target_of(cluster.target)
        self.step = read_step(workload)
        self._blocks = stage_blocks(workload)
        self._times: dict[TrainingPlan, tuple[StepTime, float]] = {}
        self._memory: dict[TrainingPlan, tuple[RankMemory, ...]] = {}
        self._workloads = {"none": workload}
        self._branches: dict[tuple[int, str, str], StepBranches] = {}

    @property
    def block_count(self) -> int:
        """Numbered blocks, between which stages may begin."""
        return len(self._blocks)

    def time(self, plan: TrainingPlan) -> StepTime:
        """Return the time of a step, with the timeline of its pipeline.

        Raises:
            SpecError: the step has no such stages, tiles or branches.
            NotModelledError: a call that tiles cannot share, or an optimizer that cannot be split.
        """
        return self._step(plan)[0]

    def clock_ratio(self, plan: TrainingPlan) -> float:
        """Return the clock of the kernels of a plan's step, of the highest."""
        return self._step(plan)[1]

    def _step(self, plan: TrainingPlan) -> tuple[StepTime, float]:
        if plan not in self._times:
            times, beside = self._durations(plan), self._beside(plan)
            programs = [self._program(stage, plan) for stage in self._stages(plan)]
            sends = (call.transfer for program in programs for call in program.forward if call.transfer)
            hop = next((transfer for transfer in sends if (transfer.kind, transfer.dim) == ("send", "pp")), None)

            def run(clock_ratio: float) -> StepTime:
                return step_time(
                    programs, plan, self._durations(plan, clock_ratio),
                    hop_s=times.transfer(hop).time_s if hop else 0.0, beside=beside,
                    host_count=1 if plan.rank_count == 1 else host_count(self._cluster), has_spans=True,
                )  # fmt: skip

            self._times[plan] = sustained_step(programs, plan, self._target, run)
        return self._times[plan]

    def memory(self, plan: TrainingPlan) -> tuple[RankMemory, ...]:
        """Return the peak memory of a rank of each stage; under branches, of the rank that runs most of them."""
        if plan not in self._memory:
            check_degrees(self._workload.name, plan)
            device_bytes = self._target.dram.capacity_bytes
            workload = self._planned(plan)
            if plan.pp * plan.cp * plan.tp == 1:
                ranks = [workload_memory(workload, plan, device_bytes=device_bytes, context_bytes=CONTEXT_BYTES)]
            else:
                stages = self._stages(plan)
                ranks = [
                    stage_memory(workload, [stages[stage] for stage in numbers], plan, device_bytes=device_bytes,
                                 context_bytes=CONTEXT_BYTES)
                    for numbers in rank_stages(plan_schedule(plan))
                ]  # fmt: skip
            self._memory[plan] = tuple(ranks)
        return self._memory[plan]

    def branches(self, plan: TrainingPlan) -> StepBranches | None:
        """Return where the branches of the graph run; none where the plan has no ranks for them.

        Raises:
            SpecError: the graph has no branches that gain from so many ranks, or the plan splits branches further.
        """
        if not plan.has_branches:
            return None
        if plan.pp * plan.cp > 1:
            raise SpecError(
                f"{self._workload.name}: branches={plan.tp} is planned with dp alone, not with pp or spatial; leave "
                "those out"
            )
        key, workload = (plan.tp, plan.precision, plan.recompute), self._planned(plan)
        if key not in self._branches:
            times = self._durations(plan)

            def call_s(call: Call) -> float:
                alone_s = 0.0 if call.case is None else times.kernel(call.case, WHOLE).time_s
                return call.call_count * max(alone_s, self._stack.launch_s)

            self._branches[key] = step_branches(
                read_step(workload), workload, plan.tp, call_s=call_s,
                send_s=lambda size: times.transfer(Transfer(kind="send", bytes=size, dim="tp")).time_s if size else 0.0,
            )  # fmt: skip
        return self._branches[key]

    def whole_calls(self, plan: TrainingPlan) -> tuple[Call, ...]:
        """Return the products and the attention that run whole on every tile of an image."""
        return tuple(call for stage in self._stages(plan) if stage.tiled for call in (*stage.forward, *stage.backward)
                     if stage.tiled.is_whole(call) and not is_again(call))  # fmt: skip

    def placed(self, plan: TrainingPlan) -> TrainingPlan:
        """Return the plan with the stages that make its longest stage shortest, as far as they fit into memory.

        Stages that the plan states stay. Where no split fits, it is the fastest.
        """
        count = plan.pp * plan.chunk_count
        if plan.pp == 1 or plan.stage_layer_count or count > self.block_count:
            return plan
        layers = self._layers(plan)
        room = (self._target.dram.capacity_bytes or 0) - CONTEXT_BYTES
        try:
            counts = split_stages(layers, count, self._limit(plan, room) if room > 0 else None).layer_count
        except (SpecError, NotModelledError):
            counts = split_stages(layers, count).layer_count
        return replace(plan, stage_layer_count=counts)

    def bound_s(self) -> float:
        """Return what nothing can beat of both passes of one micro-batch on one device."""
        times = self._durations(TrainingPlan(micro_batch=1, global_batch=1, sequence=1))
        calls = [call for call in (*self.step.forward, *self.step.backward) if call.case is not None]
        return sum(call.call_count * times.kernel(call.case, WHOLE).bound_s for call in calls if call.case is not None)

    def _durations(self, plan: TrainingPlan, clock_ratio: float = 1.0) -> Times:
        moves, has_tf32 = transfer_durations(plan, self._cluster), plan.precision == "tf32"
        kernels = kernel_durations(self._target, self._stack.attention, clock_ratio, has_tf32=has_tf32)
        return Times(kernels, moves, self._stack)

    def _stages(self, plan: TrainingPlan) -> list[StageCalls]:
        branches = self.branches(plan)
        workload, blocks = self._planned(plan), self._blocks if plan.pp > 1 else ()
        return [
            stage_calls(workload, plan, stage, blocks=blocks, branches=branches)
            for stage in range(plan.pp * plan.chunk_count)
        ]

    def _planned(self, plan: TrainingPlan) -> Workload:
        """Return the step as the plan runs it, kept, so that what is read of it is read once."""
        if plan.recompute not in self._workloads:
            self._workloads[plan.recompute] = planned_step(self._workload, plan, self._blocks)
        return self._workloads[plan.recompute]

    def _beside(self, plan: TrainingPlan) -> Beside | None:
        """Return what the other ranks of branches run beside the one whose program is shown."""
        branches = self.branches(plan)
        if branches is None:
            return None
        step = read_step(self._planned(plan))
        forward, backward = (
            tuple(rank_call(call) for call in branches.others(calls)) for calls in (step.forward, step.backward)
        )
        program = RankProgram(stage=0, chunk=0, layer_count=0, forward=forward, backward=backward, weight=(),
                              parameter_count=0)  # fmt: skip
        return Beside(program, plan.tp - 1, branches.wait_s)

    def _program(self, stage: StageCalls, plan: TrainingPlan) -> RankProgram:
        check_degrees(self._workload.name, plan)
        written = self.step.gradient_dtype
        way = data_parallelism(replace(plan, precision=written if written in ("fp32", "fp16") else "bf16"))
        return stage_program(stage, plan, style=replace(way, gradient_dtype=written))

    def _layers(self, plan: TrainingPlan) -> list[StageLayer]:
        """Return the blocks as layers of stages, what lies before and after them with the first and the last."""
        count = self.block_count
        each = replace(
            plan, pp=count, chunk_count=1, stage_layer_count=(1,) * count, schedule="1f1b",
            global_batch=plan.dp * plan.micro_batch,
        )  # fmt: skip
        times, workload, layers = self._durations(plan), self._planned(plan), list[StageLayer]()
        for block in range(count):
            block_part = stage_calls(workload, each, block, blocks=self._blocks)
            passes_s = [
                run_lanes([ranked for call in calls for ranked in block_part.ranked(call, is_backward=is_back)], times,
                          is_backward=is_back).time_s
                for is_back, calls in ((False, block_part.forward), (True, block_part.backward))
            ]  # fmt: skip
            parts = stage_memory(workload, [block_part], each).parts
            layers.append(StageLayer(
                forward_s=passes_s[0], backward_s=passes_s[1],
                activation_bytes=pass_memory(workload, block_part).saved_bytes,
                state_bytes=sum(parts[kind] for kind in ("weights", "gradients", "optimizer", "buckets")),
            ))  # fmt: skip
        return layers

    def _limit(self, plan: TrainingPlan, room_bytes: int) -> MemoryLimit:
        schedule = plan_schedule(plan)
        homes = {stage: rank for rank, stages in enumerate(rank_stages(schedule)) for stage in stages}
        ranks = tuple(homes[stage] for stage in range(plan.pp * plan.chunk_count))

        def in_flight(stage: int) -> int:
            return int(max(held(schedule.ranks[ranks[stage]], lambda other: float(other == stage))))

        return MemoryLimit(
            rank_bytes=room_bytes, rank=ranks, in_flight_count=tuple(in_flight(stage) for stage in range(len(ranks)))
        )


def fullest(memory: Sequence[RankMemory]) -> RankMemory:
    """Return the memory of the stage that has most."""
    return max(memory, key=lambda held: held.used_bytes)
