"""DualPipe: micro-batches enter at both ends of the pipeline, and forward passes overlap backward passes."""

from nearpeak.core.systems.pipeline_schedule import PipelineOp
from nearpeak.errors import SpecError
from nearpeak.systems.training.schedules import Ops, Schedule


class TwoWayOps:
    """Ops of a rank that serves two streams of micro-batches, near (0) and far (1), in the order of their calls."""

    def __init__(self, stages: tuple[int, int], firsts: tuple[int, int]) -> None:
        """Start with no op.

        Args:
            stages: stage of the near and of the far stream on this rank.
            firsts: first micro-batch of each stream.
        """
        self._stages, self._forward, self._backward = stages, list(firsts), list(firsts)
        self._waiting: list[tuple[int, int]] = []
        self.ops: list[PipelineOp] = []

    def forward(self, stream: int) -> None:
        """Add the next forward pass of a stream."""
        self.ops.append(PipelineOp("F", self._stages[stream], self._forward[stream]))
        self._forward[stream] += 1

    def backward(self, stream: int) -> None:
        """Add the next whole backward pass of a stream."""
        self.ops.append(PipelineOp("B", self._stages[stream], self._backward[stream]))
        self._backward[stream] += 1

    def inputs(self, stream: int) -> None:
        """Add the next gradient of inputs of a stream; its gradient of weights waits."""
        self.ops.append(PipelineOp("I", self._stages[stream], self._backward[stream]))
        self._waiting.append((self._stages[stream], self._backward[stream]))
        self._backward[stream] += 1

    def weights(self) -> None:
        """Add the gradient of weights that has waited longest."""
        self.ops.append(PipelineOp("W", *self._waiting.pop(0)))

    def pair(self, forward: int, backward: int) -> None:
        """Add a forward pass of one stream that overlaps a backward pass of the other."""
        self.ops.append(PipelineOp(
            "FB", self._stages[forward], self._forward[forward], self._stages[backward], self._backward[backward]
        ))  # fmt: skip
        self._forward[forward] += 1
        self._backward[backward] += 1


def fill_two_way(ops: TwoWayOps, place: int, depth: int, main_count: int, *, is_turn: bool) -> None:
    """Add all ops of a rank: warm-up, alternating overlapped pairs, cool-down with gradients of weights in the gaps.

    Args:
        place: distance of the rank from the end at which its near stream enters.
        depth: places of a stream before it meets the other.
        main_count: pairs of overlapped pairs in the steady state.
        is_turn: whether the first steady pair cannot overlap, because its two passes wait for one another.
    """
    behind = depth - 1 - place
    for _ in range(2 * behind):
        ops.forward(0)
    for _ in range(place + 1):
        ops.forward(0)
        ops.forward(1)
    for _ in range(behind):
        ops.inputs(1)
        ops.weights()
        ops.forward(1)
    for turn in range(main_count):
        if turn == 0 and is_turn:
            ops.forward(0)
            ops.backward(1)
        else:
            ops.pair(0, 1)
        ops.pair(1, 0)
    for _ in range(behind):
        ops.backward(1)
        ops.pair(1, 0)
    for half in range(2 * (place + 1)):  # the second half leaves its gradients of weights for the gaps that follow
        (ops.backward if half < place + 1 else ops.inputs)(1 - half % 2)
    for _ in range(behind):
        ops.weights()
        ops.inputs(0)
    for _ in range(place + 1):
        ops.weights()


def dualpipe(rank_count: int, micro_batch_count: int, _chunk_count: int = 1) -> Ops:
    """Return the ops of each rank; half of the micro-batches enter at each end, and each rank holds two stages.

    Raises:
        SpecError: an odd number of ranks, or micro-batches that are odd or fewer than 2 p.
    """
    if rank_count % 2 or micro_batch_count % 2 or micro_batch_count < 2 * rank_count:
        even = rank_count + rank_count % 2
        near = max(2 * even, micro_batch_count + micro_batch_count % 2)
        raise SpecError(
            f"schedule dualpipe: needs an even number of ranks and an even number of at least 2 p micro-batches, got "
            f"pp={rank_count} and {micro_batch_count}; pp={even} and {near} would be right"
        )
    half = micro_batch_count // 2
    ranks = []
    for rank in range(rank_count):
        place = min(rank, rank_count - 1 - rank)
        firsts = (0, half) if rank < rank_count // 2 else (half, 0)
        stages = (place, rank_count - 1 - place)
        ops = TwoWayOps(stages, firsts)
        main_count = half - rank_count + place + 1
        fill_two_way(ops, place, rank_count // 2, main_count, is_turn=place == rank_count // 2 - 1)
        ranks.append(tuple(ops.ops))
    return tuple(ranks)


SCHEDULE = Schedule(
    title="DualPipe", ops=dualpipe, splits_backward=True, weight_copy_count=2,
    source="DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1, figure 5; order: github.com/deepseek-ai/DualPipe",
)  # fmt: skip
