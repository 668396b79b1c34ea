"""One plan of device work for trace files of every format, so that what is read back is known exactly."""

import random
from dataclasses import dataclass

HEX = "00005d8e_4c5e_7a10_9f00_8d1f2f3a4b5c"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One piece of device work and the call that enqueued it."""

    kind: str
    """`kernel`, `memcpy` or `memset`."""
    name: str
    """Name."""
    call_start_ns: int
    """Start of the call."""
    call_end_ns: int
    """End of the call."""
    start_ns: int
    """Start on the device."""
    end_ns: int
    """End on the device."""
    stream: int
    """Stream."""
    correlation: int
    """Joins call and work."""
    bytes: int
    """Bytes of copies and fills."""
    grid: tuple[int, int, int] = (8, 2, 1)
    """Blocks."""
    block: tuple[int, int, int] = (128, 1, 1)
    """Threads."""


NAMES = (
    "ampere_sgemm_128x64_tn",
    "void at::native::vectorized_elementwise_kernel<4>",
    "ncclDevKernel_AllReduce_Sum_bf16",
    "softmax_kernel",
)


def planned(seed: int, count: int = 20, base_ns: int = 1_428_625_731_896_179) -> list[Work]:
    """Return device work of a random program on three streams; some of it overlaps."""
    draw, found, host = random.Random(seed), [], base_ns
    for number in range(1, count + 1):
        kind = draw.choices(("kernel", "memcpy", "memset"), (6, 2, 1))[0]
        call_end = host + draw.randrange(2_000, 9_000)
        start = call_end + draw.randrange(-1_000, 30_000)
        name = {"kernel": draw.choice(NAMES), "memcpy": "Memcpy HtoD (Pinned -> Device)", "memset": "Memset (Device)"}[
            kind
        ]
        found.append(
            Work(
                kind=kind,
                name=name,
                call_start_ns=host,
                call_end_ns=call_end,
                start_ns=max(start, host),
                end_ns=max(start, host) + draw.randrange(0, 40_000),
                stream=draw.choice((7, 20, 24)),
                correlation=number,
                bytes=draw.randrange(1, 1 << 20),
            )
        )
        host = call_end + draw.randrange(100, 20_000)
    return found
