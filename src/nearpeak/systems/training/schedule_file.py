"""Pipeline schedules in files: a line per rank, ops in PyTorch's notation (`2F0`, `2B0`, `2I0`, `2W0`)."""

import re
from pathlib import Path

from nearpeak.base.input_files import border, check_line_count, text_of_file
from nearpeak.core.systems.pipeline_schedule import PipelineOp, PipelineSchedule
from nearpeak.errors import SpecError

MOST_STAGES, MOST_BATCHES, MOST_OPS = 100_000, 1_000_000, 20_000_000
_OP = re.compile(r"(\d{1,9})([FBIW])(\d{1,9})")
_PAIR = re.compile(r"\((\d{1,9})F(\d{1,9});(\d{1,9})B(\d{1,9})\)OVERLAP_F_B")


@border("pipeline schedule")
def read_schedule(path: Path) -> PipelineSchedule:
    """Return the schedule of a file as torch.distributed.pipelining writes it; empty cells are skipped.

    Raises:
        SpecError: an entry is no op of a computation, or there are too many.
    """
    text = text_of_file(path)
    check_line_count(text, path)
    ranks = [
        tuple(_op(cell.strip(), f"{path}, line {number}") for cell in line.split(",") if cell.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    schedule = PipelineSchedule(name=path.stem, ranks=tuple(ranks))
    if not 0 < schedule.op_count <= MOST_OPS or schedule.stage_count * schedule.micro_batch_count > MOST_OPS:
        raise SpecError(
            f"{path}: has {schedule.op_count} ops of {schedule.stage_count} stages and {schedule.micro_batch_count} "
            f"micro-batches; 1 to {MOST_OPS:,} can be run"
        )
    return schedule


def schedule_text(schedule: PipelineSchedule) -> str:
    """Return a schedule as such a file, which torch.distributed.pipelining loads.

    >>> from nearpeak.systems.training.schedules import schedule_of
    >>> print(schedule_text(schedule_of("1f1b", 2, 2)), end="")
    0F0,0F1,0B0,0B1
    1F0,1B0,1F1,1B1
    """
    return "".join(",".join(map(str, ops)) + "\n" for ops in schedule.ranks)


def _op(cell: str, where: str) -> PipelineOp:
    if match := _OP.fullmatch(cell):
        op = PipelineOp(match[2], int(match[1]), int(match[3]))
    elif match := _PAIR.fullmatch(cell):
        op = PipelineOp("FB", int(match[1]), int(match[2]), int(match[3]), int(match[4]))
    else:
        raise SpecError(
            f"{where}: {cell[:40]!r} is no op; write stage, F, B, I or W, micro-batch as in 2F0, or "
            "(0F5;7B1)OVERLAP_F_B for an overlapped pair"
        )
    if any(part.stage >= MOST_STAGES or part.micro_batch >= MOST_BATCHES for part in op.parts()):
        raise SpecError(f"{where}: {cell}: stages go to {MOST_STAGES:,}, micro-batches to {MOST_BATCHES:,}")
    return op
