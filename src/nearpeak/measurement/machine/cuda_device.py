"""Shared base of the GPU runners: event timer, cold caches, environment and clock policy of the first GPU."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from nearpeak.base.host_system import versions
from nearpeak.case_tensors.random_inputs import size_bytes
from nearpeak.case_tensors.torch_tensors import torch_or_refusal
from nearpeak.core.runs.measurement import Environment, Timing
from nearpeak.core.runs.runner_protocols import Activity, Backend, Reading, RunnerAbilities, Timer
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError
from nearpeak.measurement.machine.environment import cpu_environment
from nearpeak.measurement.timing.clocks import HostDefaults, clock_probe_s

EVENT_RESOLUTION_S = 0.5e-6
"""Resolution of the time between two events: about half a microsecond (CUDA Runtime API, cudaEventElapsedTime)."""
MEMORY_SHARE_RATIO = 0.8
"""Share of the free memory that a case's tensors may take."""
MOST_SETS = 64
"""Most sets of inputs that are rotated; beyond them caches are flushed."""
FLUSH_CACHES = 2
"""Multiple of the last cache that is read in a flush, or that the sets of inputs fill together."""
PROBE_COUNT = 5
"""Readings of the clock, of which the shortest counts."""
SPIN_CYCLES = 200_000
"""Least clock cycles of spinning before a batch, so that its launches queue up: about 0.1 ms."""
MOST_SPIN_CYCLES = 10_000_000
"""Most cycles of spinning: about 5 ms, as a call that waits for the device would need ever more."""
CYCLES_PER_S = 2e9
"""Clock that converts launch time to cycles; a slower device spins longer, which does no harm."""
LAUNCH_S = 1e-5
"""Initial estimate of the launch time of one call."""
MOST_QUEUED = 1000
"""Most calls in a batch: a stream queues 1024 launches before the host waits."""
LAUNCH_MARGIN_RATIO = 1.5
"""Spinning time over the launch time of a batch."""
ACTIVITY_CALLS = 3
"""Calls whose activity is recorded, of which the shortest counts: the first one starts at a low clock."""


def cuda_or_refusal(name: str) -> Any:
    """Return PyTorch with a usable GPU.

    Raises:
        MeasureError: there is none.
    """
    torch = torch_or_refusal(f"runner {name}")
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        why = "PyTorch sees none" if built else f"PyTorch {torch.__version__} is built without GPU support"
        raise MeasureError(f"runner {name}: needs a GPU; {why}")
    _keep_formats(torch)
    return torch


def _keep_formats(torch: Any) -> None:
    """Disable TF32 and reduced-precision reductions, as bound and tolerance of an fp32 case assume fp32."""
    for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
        backend.allow_tf32 = False
    for name in ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"):
        setattr(torch.backends.cuda.matmul, name, False)  # partial sums would be rounded to 16 bits


class OnFirstGpu(Backend):
    """Base class of runners on the first GPU: target, abilities, memory limit and event timer."""

    name = ""
    target = "gpu"
    abilities = RunnerAbilities(devices=("cuda",), needs=("torch",), preload=("torch",), places=True)
    graph = False
    """Whether graph replays are timed."""

    def __init__(self, argument: str, timing: Timing) -> None:
        """Refuse without a GPU."""
        del argument
        self._torch, self._timing = cuda_or_refusal(self.name), timing
        self.target = target_name()

    def refusal(self, case: Case) -> str:
        """Return that the tensors do not fit; empty when they do."""
        return refusal(self._torch, case)

    def timer(self) -> Timer:
        """Return the device's clock."""
        return EventTimer(self._torch, cold=self._timing.cache == "cold", graph=self.graph)

    def environment(self) -> Environment:
        """Return the GPU, its driver and PyTorch."""
        return environment(self._torch)


class EventTimer(HostDefaults):
    """Timer between two events of the current stream, with the host's time until all streams are done."""

    mode = "device"
    resolution_s = EVENT_RESOLUTION_S
    records_activity = True

    def __init__(self, torch: Any, *, cold: bool, graph: bool = False) -> None:
        """Prepare events and the cold-cache method: rotated inputs, and reads of more than the last cache holds."""
        self._torch, self._cold = torch, cold
        self.name = "hip_events" if torch.version.hip else "cuda_events"
        self.mode = "graph" if graph else "device"
        self._before, self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        cached = int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or 64 * 2**20
        self._swept_bytes = FLUSH_CACHES * cached
        self._swept = torch.rand(self._swept_bytes // 4, device="cuda") if cold else None
        self._sink = torch.empty((), device="cuda")
        self._launch_s = LAUNCH_S
        self.late_floor_s = 0.0

    def set_count(self, case: Case) -> int:
        """Return how many independent sets of inputs together exceed the last cache; 1 with warm caches."""
        if not self._cold:
            return 1
        return max(1, min(MOST_SETS, -(-self._swept_bytes // max(1, size_bytes(case)))))

    def clock_policy(self) -> str:
        """Return the clock policy that the driver reports."""
        return clock_policy(self._torch)

    def read(self, run: Callable[[], object], call_count: int) -> Reading:
        """Return the device's time of `call_count` calls in a row.

        The device spins while launches are queued, so that neither a gap before the first kernel nor the host is timed;
        the time of a fixed number of spin cycles shows its clock.
        """
        torch = self._torch
        torch.cuda.synchronize()
        cpu_start, start = time.thread_time_ns(), time.perf_counter_ns()
        cycles = self._spin_cycles(call_count) if hasattr(torch.cuda, "_sleep") else 0
        self._before.record()
        if cycles:
            torch.cuda._sleep(cycles)
        self._start.record()
        begun, result = time.perf_counter_ns(), None
        for _ in range(call_count):
            result = run()
        queued = time.perf_counter_ns()
        self._end.record()
        self._end.synchronize()
        recorded = time.perf_counter_ns()
        torch.cuda.synchronize()  # all streams: work on other streams must be seen
        end, cpu_end = time.perf_counter_ns(), time.thread_time_ns()
        if call_count:
            self._launch_s = (queued - begun) / 1e9 / call_count
        spun_s = self._before.elapsed_time(self._start) / 1e3 if cycles else 0.0
        return Reading(
            time_s=self._start.elapsed_time(self._end) / 1e3, cpu_s=(cpu_end - cpu_start) / 1e9,
            host_s=(end - start) / 1e9, result=result, late_s=(end - recorded) / 1e9,
            cycles_s=spun_s * SPIN_CYCLES / cycles if cycles else 0.0,
        )  # fmt: skip

    def most_calls(self) -> int:
        """Return how many calls can be queued within the longest spin."""
        return max(1, min(MOST_QUEUED, int(MOST_SPIN_CYCLES / (LAUNCH_MARGIN_RATIO * self._launch_s * CYCLES_PER_S))))

    def _spin_cycles(self, call_count: int) -> int:
        """Return the spin cycles during which a batch can be queued."""
        wanted = LAUNCH_MARGIN_RATIO * call_count * self._launch_s * CYCLES_PER_S
        return int(min(max(SPIN_CYCLES, wanted), MOST_SPIN_CYCLES))

    def clock_probe_s(self) -> float:
        """Return the shortest time of a fixed number of device cycles: it is long when the clock is low."""
        readings = [self.read(lambda: None, 0) for _ in range(PROBE_COUNT)]
        self.late_floor_s = max(self.late_floor_s, statistics.median(reading.late_s for reading in readings))
        return min(reading.cycles_s for reading in readings) or clock_probe_s()

    def activity(self, run: Callable[[], object]) -> Activity | None:
        """Return the device's own record of one call, through CUPTI or its like; none where it is not permitted."""
        torch = self._torch
        try:
            run()
            torch.cuda.synchronize()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                for _ in range(ACTIVITY_CALLS):
                    run()
                    torch.cuda.synchronize()
            seen = [
                (event.time_range.start / 1e6, event.time_range.end / 1e6, event.name) for event in profile.events()
                if "CUDA" in str(event.device_type) and not getattr(event, "is_user_annotation", False)
            ]  # fmt: skip
        except Exception:  # no library, no permission, another profiler: the samples are valid without it
            return None
        return activity_of(seen, ACTIVITY_CALLS)

    def flush(self) -> None:
        """Read more than the last cache holds; written lines would be written back during the timed call."""
        if self._swept is not None:
            self._torch.amax(self._swept, out=self._sink)


def activity_of(seen: Sequence[tuple[float, float, str]], call_count: int) -> Activity | None:
    """Return the shortest of several equal calls from the spans that the device recorded; none without a span.

    If the calls differ in their number of spans, the mean of all calls counts.

    >>> activity_of([(5.0, 6.0, "add"), (0.0, 2.0, "add")], 2)
    Activity(busy_s=1.0, kernels=('add',))
    >>> activity_of([(0.0, 2.0, "add"), (5.0, 6.0, "add"), (6.0, 7.0, "copy")], 2).busy_s
    2.0
    """
    spans = sorted(seen)
    if not spans:
        return None
    size, rest = divmod(len(spans), call_count)
    parts = [spans] if rest else [spans[first : first + size] for first in range(0, len(spans), size)]
    shortest = min(busy_s([span[:2] for span in part]) for part in parts) / (call_count if rest else 1)
    return Activity(busy_s=shortest, kernels=tuple(dict.fromkeys(name for _, _, name in spans)))


def busy_s(spans: Sequence[tuple[float, float]]) -> float:
    """Return the time covered by at least one of the spans, which are sorted by start.

    >>> busy_s([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    total = reached = 0.0
    for number, (start, end) in enumerate(spans):
        reached = start if number == 0 else max(reached, start)
        total += max(0.0, end - reached)
        reached = max(reached, end)
    return total


def refusal(torch: Any, case: Case) -> str:
    """Return that the tensors of `case` do not fit; empty when they do."""
    free_bytes, _ = torch.cuda.mem_get_info()
    if size_bytes(case) <= MEMORY_SHARE_RATIO * free_bytes:
        return ""
    return f"its tensors take {size_bytes(case) / 2**30:.1f} GiB of {free_bytes / 2**30:.1f} GiB that are free"


def target_name() -> str:
    """Return the target name of the first GPU, or `gpu` where no device file has its name."""
    from nearpeak.targets.device_names import known_target

    try:
        import torch

        name = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    except (ImportError, RuntimeError):
        name = ""
    return known_target(name)


def environment(torch: Any) -> Environment:
    """Return the first GPU with its driver, and the software of this process."""
    host, name = cpu_environment("torch", "numpy"), torch.cuda.get_device_name(0)
    properties = torch.cuda.get_device_properties(0)
    runtime = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    facts = driver_facts(device_id(torch))
    return Environment(
        device=name, device_uuid=str(getattr(properties, "uuid", "")), driver=facts.get("driver_version", ""),
        runtime=runtime, system=host.system, python=host.python, packages=host.packages + versions("triton"),
        settings=(("host", host.device), *sorted(item for item in facts.items() if item[0] != "driver_version")),
    )  # fmt: skip


def device_id(torch: Any) -> str:
    """Return nvidia-smi's identifier of this process's first GPU, which need not be the driver's first one."""
    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
    return f"GPU-{uuid.removeprefix('GPU-')}" if uuid else "0"


_FACTS = ("driver_version", "power.limit", "persistence_mode", "mig.mode.current", "ecc.mode.current",
          "clocks.applications.graphics", "clocks.max.graphics", "vbios_version")  # fmt: skip


@cache
def driver_facts(device: str = "0") -> Mapping[str, str]:
    """Return constant facts of the device from nvidia-smi; empty where there is no such program.

    A driver refuses the whole query for one field that it does not know: then each field is queried alone.
    """
    whole = _driver_answer(_FACTS, device)
    answers = whole if whole is not None else [(_driver_answer((name,), device) or [""])[0] for name in _FACTS]
    if not any(answers) and device != "0":  # a part of a device, or a machine that hides identities
        return driver_facts("0")
    return {name: value for name, value in zip(_FACTS, answers, strict=False) if value and value[0] != "["}


def _driver_answer(fields: tuple[str, ...], device: str) -> list[str] | None:
    """Return the driver's answers, in which `[N/A]` means a missing value; none where it refuses the query."""
    import shutil
    import subprocess

    if shutil.which("nvidia-smi") is None:
        return [""] * len(fields)
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={device}"]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return [""] * len(fields)
    lines = done.stdout.strip().splitlines()
    return [value.strip() for value in lines[0].split(",")] if done.returncode == 0 and lines else None


def clock_policy(torch: Any) -> str:
    """Return `applications@… MHz` where that clock is set below the highest, `free` where it is the highest."""
    facts = driver_facts(device_id(torch))
    chosen, highest = facts.get("clocks.applications.graphics", ""), facts.get("clocks.max.graphics", "")
    if not chosen.isdigit() or not highest.isdigit():
        return "unknown"
    return "free" if chosen == highest else f"applications@{chosen} MHz"
