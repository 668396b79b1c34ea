"""Resource times of memory streaming: bytes, repeated row passes, vector units, alignment."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nearpeak.bounds.terms.unit_rates import vector_rate
from nearpeak.core.work.target import Target
from nearpeak.prediction.kernel_model import CaseColumns
from nearpeak.prediction.scalar_or_column import chosen, clipped, larger, smaller
from nearpeak.prediction.work_columns import WorkColumns

BLOCK_BYTES = 8192
"""Bytes that one block of threads of an element-wise kernel moves."""
BLOCKS_PER_SM = 8
"""Rows that one multiprocessor works on at a time: 2048 threads in blocks of 256."""
SHARPNESS = 4.0
"""Power at which rows and arithmetic overlap with memory."""
_SPECIAL_WEIGHT = {"pow": 4.0, "div": 0.5}
"""Vector instructions of a special function against those of an exponential: pow is a logarithm of extra precision, a
product and an exponential; a division is a reciprocal and its correction."""
_ONE_WARP = ("softmax", "cross_entropy", "nll_loss")
_REGISTER_ROW_BYTES = 4096
"""Longest row that one warp of a softmax keeps in registers: 1024 columns of fp32 in PyTorch (SoftMax.cu)."""
_GATED = ("swiglu", "glu")
GATHERING = ("embedding", "embedding_bag", "gather")
"""Operators that compute an address for each element: read and written bytes per clock and multiprocessor are 2.0 on
the A100, 2.2 on the H100, RTX A6000 and 2.4 on the RTX 3090 (Vidur and LLMServingSim layers), whose memories are 11 to
13 bytes a clock and multiprocessor on the former, 5 to 6 on the latter."""
GATHER_RATIO = 0.9
"""Share of the memory's rate that they could reach, an assumption: none of these was bound by it."""
_ALIGNED_BYTES = 16
"""Widest load of one thread."""
_SM_BYTES_PER_CLOCK = 64
"""Most that one multiprocessor moves to and from the last cache in a clock, half a line: an assumption. All of them
together do not need it (an A100 moves 47 bytes for each, NVIDIA A100 whitepaper); few do not fill the memory's pins."""

_INDEXED_CLOCKS = 1.1
"""Clocks of a multiprocessor for one element of PyTorch's element-wise kernels where an operand is broadcast: they then
compute where each element lies and load it alone (`launch_legacy_kernel` of CUDALoops.cuh). Set on RMS norms and rotary
embeddings of even numbers of tokens on an H100 (LLMServingSim 5daddb2); odd ones are no farther off, nor are those of
an RTX A6000 and 3090 (docs/lab/kernel_models.md)."""

_CHUNK_TOKENS, _CHUNK_CLOCKS, CHUNKED_KERNELS = 64, 4600.0, 5
"""Delta rules over a whole sequence, as libraries run them: tokens of a chunk (Yang et al. 2024, arXiv:2406.06484),
clocks that a multiprocessor takes for one chunk of a head of 128 by 128, and kernels. The latter two are set on half of
the shapes of a B200, an H100 and an L40S (AIConfigurator 095f58a; docs/lab/kernel_models.md)."""
_CHUNK_STATE = 128 * 128


class Resources(NamedTuple):
    """Times of each resource alone, as columns, or as numbers for one case; those of memory at the rate of its pins."""

    read_s: Any
    write_s: Any
    """Without what the cache takes in and writes back later, behind other kernels."""
    again_s: Any
    """Rows that the cache lost between two passes over them."""
    aligned_ratio: Any
    """Share of the rate of memory that loads of unaligned rows, or of gated functions, reach."""
    rows_s: Any
    """Rows on their multiprocessors, at the rate that was measured."""
    vector_s: Any
    """Vector instructions, at the rate that was measured."""
    tensor_s: Any
    """Products, at the rate that was measured."""


def port_bytes_per_s(target: Target, sm_count: int) -> float:
    """Return the most that so many multiprocessors move to and from the last cache, bytes per second.

    >>> from nearpeak.targets import target_of
    >>> round(port_bytes_per_s(target_of("h100_sxm"), 132) / 1e12, 1)
    16.7
    """
    return _SM_BYTES_PER_CLOCK * target.clock_hz * sm_count


def resources(target: Target, cases: CaseColumns, work: WorkColumns, fitted: Mapping[str, float]) -> Resources:
    """Return the resource times of cases from their least work."""
    bandwidth = min(target.dram.bandwidth_bytes_per_s or 1.0, port_bytes_per_s(target, target.sm_count))
    absorbed = fitted["write_residency_ratio"] * (target.l2.capacity_bytes or 0)
    unaligned = (work.group_bytes % _ALIGNED_BYTES != 0) & (work.group_count > 0)
    ratio = chosen(unaligned, fitted["unaligned_ratio"], 1.0)
    weight = _SPECIAL_WEIGHT.get(str(cases.attributes.get("function", "")), 1.0)
    vector_flop = work.vector_flop + weight * fitted["special_flop_count"] * work.special_count
    vector_rate_reached = fitted["vector_ratio"] * vector_rate(target, "fp32")[1]
    return Resources(
        read_s=work.read_bytes / bandwidth, write_s=larger(work.write_bytes - absorbed, 0.0) / bandwidth,
        again_s=_again_bytes(target, cases, work, fitted) / bandwidth,
        aligned_ratio=ratio * (fitted["gated_ratio"] if cases.attributes.get("function") in _GATED else 1.0),
        rows_s=_rows_s(target, cases, work, fitted), vector_s=vector_flop / vector_rate_reached,
        tensor_s=work.matrix_s / fitted["tensor_ratio"],
    )  # fmt: skip


def indexed_s(target: Target, cases: CaseColumns) -> Any:
    """Return how long PyTorch computes where elements of broadcast operands lie; 0 where there are none.

    >>> from nearpeak.targets import target_of
    >>> axes = {"elements": 1 << 20, "b": 1024}
    >>> case = CaseColumns(op="elementwise", phase="forward", dtypes={}, axes=axes)
    >>> round(indexed_s(target_of("h100_sxm"), case) * 1e6, 1)
    4.4
    """
    if cases.op != "elementwise":
        return 0.0
    elements = cases.axes["elements"]
    sizes = [cases.axes[name] for name in ("a", "b", "c") if name in cases.axes]
    spread = sum((size > 1) & (size < elements) for size in sizes) > 0  # a single value is no tensor
    return spread * elements * (_INDEXED_CLOCKS / (target.clock_hz * (target.sm_count or 1)))


def is_chunked(cases: CaseColumns) -> bool:
    """Return whether cases are delta rules over whole sequences, which libraries cut into chunks of tokens."""
    return cases.op == "delta_rule" and cases.phase == "forward" and not cases.attributes.get("begun", False)


def _chunks(cases: CaseColumns) -> tuple[Any, Any, Any]:
    """Return the chunks of one head, all heads of all sequences, and the numbers of one state."""
    axes = cases.axes
    count = -(-axes["tokens"] // _CHUNK_TOKENS)
    return count, axes["batch"] * axes["heads"], axes["key_dim"] * axes["dim"]


def _again_bytes(target: Target, cases: CaseColumns, work: WorkColumns, fitted: Mapping[str, float]) -> Any:
    """Return the bytes of rows that are read again because the cache lost them between two passes over them.

    Chunked delta rules keep two tensors between their kernels, and the state before each chunk, in 16 bits: written
    and read once more.
    """
    if is_chunked(cases):
        count, heads, state = _chunks(cases)
        tokens = cases.axes["tokens"] * cases.axes["heads"] * cases.axes["batch"]
        kept_bytes = 4.0 * (tokens * (cases.axes["key_dim"] + cases.axes["dim"]) + heads * count * state)
        return kept_bytes + 0.0 * work.read_bytes  # a column where work is one
    held = smaller(work.group_count, target.sm_count * BLOCKS_PER_SM) * work.group_bytes
    resident = fitted["row_residency_ratio"] * (target.l2.capacity_bytes or 0)
    lost = clipped(held / max(resident, 1.0) - 0.5, 0.0, 1.0)
    lost = chosen(_leaves_registers(cases.op, work.group_bytes), lost, 0.0)
    return fitted["row_passes_count"] * lost * work.group_count * work.group_bytes


def _rows_s(target: Target, cases: CaseColumns, work: WorkColumns, fitted: Mapping[str, float]) -> Any:
    """Return the time of rows on their multiprocessors: fewer rows than multiprocessors leave some idle.

    What gathers rows computes where each element lies: measured times are of a rate per clock of a multiprocessor. The
    chunks of a head wait for each other, heads share the multiprocessors.
    """
    if is_chunked(cases):
        count, heads, state = _chunks(cases)
        each_s = _CHUNK_CLOCKS * larger(state / _CHUNK_STATE, 1.0) / target.clock_hz
        return count * each_s * larger(heads / (target.sm_count or 1), 1.0) + 0.0 * work.read_bytes
    if cases.op in GATHERING:
        moved = work.read_bytes + work.write_bytes
        return moved / (fitted["row_bytes_per_clock"] * target.clock_hz * (target.sm_count or 1))
    each_s = fitted["row_s"] + work.group_bytes / (fitted["row_bytes_per_clock"] * target.clock_hz)
    rows_s = larger(work.group_count / target.sm_count, 1.0) * each_s
    return chosen(_leaves_registers(cases.op, work.group_bytes), rows_s, 0.0)


def _leaves_registers(op: str, row_bytes: Any) -> Any:
    """Return the rows that a thread block processes, as one warp cannot hold them in registers."""
    return row_bytes > (_REGISTER_ROW_BYTES if op in _ONE_WARP else 0)
