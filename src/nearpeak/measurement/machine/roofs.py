"""Roofs of this CPU: best measured rates of matrix products and memory, written as a device file."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.host_system import cpu_name, read_text
from nearpeak.core.work.target import Target
from nearpeak.measurement.machine.library_products import integer_flop_per_s, runtime_flop_per_s

REPEAT_S = 1.0
"""Time spent on each method to reach a roof; the best run counts."""
PRODUCT_EXTENTS = (512, 1024, 1536)
"""Extents of the square products: small ones run between the interruptions of a busy machine, large ones reach more."""
STREAM_BYTES = 160 * 2**20
"""Size of each array of the memory roof, beyond the caches."""
Step = tuple[str, Callable[[], float]]
_UNITS = {"fp32": "vector.fp32", "fp64": "vector.fp64", "bf16": "tensor.bf16", "int8": "tensor.int8"}
"""Unit of the device file by roof."""


def cpu_roofs() -> Iterator[tuple[str, float]]:
    """Yield each roof of this CPU by name as it is measured: FLOP/s, B/s or seconds; none that no library reaches."""
    for name, measure in _steps():
        if value := measure():
            yield name, value


def best_roofs(roofs: dict[str, float], known: Target | None) -> dict[str, float]:
    """Return the better of the measured `roofs` and the `known` ones of the same machine: the best ever reached.

    Known rates have the values that the device file states.
    """
    if known is None or not is_this_cpu(known):
        return roofs
    old = {name: known.peaks[unit].flop_per_s for name, unit in _UNITS.items() if unit in known.peaks}
    old["memory"] = known.dram.bandwidth_bytes_per_s or 0.0
    better = {name: max(value, old.get(name, 0.0)) for name, value in roofs.items()}
    return better | {"launch": min(roofs["launch"], known.launch_floor_s or roofs["launch"])}


def is_this_cpu(known: Target) -> bool:
    """Return whether a target is the CPU of this machine."""
    return known.title == _title()


def cpu_target_text(roofs: dict[str, float], *, beside: str = "") -> str:
    """Return the device file of this CPU with the measured `roofs`.

    Args:
        beside: what disturbed them; the figures are marked as not verified then.
    """
    cores = os.cpu_count() or 1
    clock_hz = _clock_hz()
    torch, memory_bytes = _torch(), int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    libraries = ", ".join(f"{name} {number}" for name, number in _libraries(torch).items())
    source = f"measured on this machine on {date.today().isoformat()}: best of repeated runs, {libraries}"
    source += f"; {beside} meanwhile, so that it reaches more" if beside else ""
    mark = "\nverified = false" if beside else ""
    head: tuple[str, ...] = (
        f'title = "{_title()}"',
        'vendor = "this machine"',
        'kind = "cpu"',
        f'architecture = "{platform.machine()}"',
        f"sm_count = {cores}",
        'sm_source = "number of processors that the operating system reports"',
        "measured = true",
    )
    if "int8" not in roofs:
        head += ('unstated = ["tensor.int8"]', f'unstated_source = "no product of int8 was measured with {libraries}"')
    parts = ["\n".join(head)]
    for key, unit in _UNITS.items():
        if key in roofs:
            parts.append(_peak(unit, roofs[key], cores, clock_hz, source) + mark)
    memory = f'bandwidth = "{roofs["memory"]!r} B/s"\ncapacity = "{memory_bytes} B"\nsource = "{source}"{mark}'
    parts.append(f"[dram]\n{memory}")
    sizes = [read_text(path) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    kib = [int(text[:-1]) * {"K": 1, "M": 1024}[text[-1]] for text in sizes if text and text[-1] in "KM"]
    last = f'\ncapacity = "{max(kib)} KiB"\nsource = "last cache as the operating system reports it"' if kib else ""
    parts.append(f"[l2]{last}")
    parts.append(f'[launch]\nfloor = "{roofs["launch"]!r} s"\nsource = "{source}"')
    return "\n\n".join(parts) + "\n"


def _steps() -> list[Step]:
    """Return the measurements; products also through PyTorch when it is installed, as it may be faster."""
    torch = _torch()
    steps: list[Step] = [
        ("fp64", lambda: max(_numpy_product("float64"), _torch_product(torch, "float64"))),
        (
            "fp32",
            lambda: max(
                _numpy_product("float32"),
                _torch_product(torch, "float32"),
                runtime_flop_per_s(PRODUCT_EXTENTS, _best_s),
            ),
        ),
    ]
    if torch is not None:
        steps.append(("bf16", lambda: _torch_product(torch, "bfloat16")))
    steps += [("int8", lambda: integer_flop_per_s(PRODUCT_EXTENTS, torch, _best_s))]
    steps += [("memory", lambda: _memory(torch)), ("launch", lambda: _launch(torch))]
    return steps


def _libraries(torch: Any) -> dict[str, str]:
    """Return the versions of the libraries that form products here."""
    versions = {"NumPy": np.__version__} | ({"PyTorch": str(torch.__version__)} if torch else {})
    with suppress(PackageNotFoundError):
        versions["ONNX Runtime"] = version("onnxruntime")
    return versions


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _best_s(run: Callable[[], object]) -> float:
    """Return the shortest run within REPEAT_S, after two warm ones."""
    run(), run()
    best_s, stop = float("inf"), time.perf_counter() + REPEAT_S
    while time.perf_counter() < stop:
        start = time.perf_counter()
        run()
        best_s = min(best_s, time.perf_counter() - start)
    return best_s


def _numpy_product(dtype: str) -> float:
    def rate(extent: int) -> float:
        a = np.random.default_rng(0).random((extent, extent)).astype(dtype)
        out = np.empty_like(a)
        return 2 * extent**3 / _best_s(lambda: np.matmul(a, a, out=out))

    return max(map(rate, PRODUCT_EXTENTS))


def _torch_product(torch: Any, dtype: str) -> float:
    if torch is None:
        return 0.0

    def rate(extent: int) -> float:
        a = torch.rand(extent, extent).to(getattr(torch, dtype))
        out = torch.empty_like(a)
        return float(2 * extent**3 / _best_s(lambda: torch.mm(a, a, out=out)))

    return max(map(rate, PRODUCT_EXTENTS))


def _memory(torch: Any) -> float:
    """Return the best rate over reading and copying, each byte read or written counted once."""
    array = np.ones(STREAM_BYTES // 4, dtype=np.float32)
    rates = [STREAM_BYTES / _best_s(array.max)]
    if torch is None:
        other = np.empty_like(array)
        return max(*rates, 2 * STREAM_BYTES / _best_s(lambda: np.copyto(other, array)))
    source = torch.from_numpy(array)
    target = torch.empty_like(source)
    rates += [STREAM_BYTES / _best_s(source.sum), STREAM_BYTES / _best_s(source.amax)]
    return float(max(*rates, 2 * STREAM_BYTES / _best_s(lambda: target.copy_(source))))


def _launch(torch: Any) -> float:
    """Return the shortest time of one tiny operation."""
    if torch is None:
        small = np.ones(1, dtype=np.float32)
        return _best_s(lambda: np.add(small, small, out=small))
    element = torch.ones(1)
    return _best_s(lambda: torch.add(element, element, out=element))


def _peak(unit: str, rate: float, cores: int, clock_hz: float, source: str) -> str:
    per_clock = rate / cores / clock_hz
    rows = (
        f'[peak."{unit}"]',
        f'rate = "{rate!r} FLOP/s"',
        f'sm_clock = "{per_clock!r} FLOP"',
        f'clock = "{clock_hz!r} Hz"',
    )
    return "\n".join((*rows, f'source = "{source}"'))


def _title() -> str:
    return f"This CPU: {cpu_name()}, {os.cpu_count() or 1} cores"


def _clock_hz() -> float:
    """Return the clock that the operating system reports; it only splits a measured rate, and affects no bound."""
    clocks = [
        float(line.split(":")[1])
        for line in read_text(Path("/proc/cpuinfo")).splitlines()
        if line.startswith("cpu MHz")
    ]
    return max(clocks) * 1e6 if clocks else 1e9
