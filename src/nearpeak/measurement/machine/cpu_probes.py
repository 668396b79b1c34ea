"""Single-thread CPU probes over a few sizes of many operators, from which a CPU model is fitted."""

import time
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from nearpeak.core.runs.measurement import Timing
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import case as case_of

_FILE = Path(__file__).with_name("cpu_probes.toml")
_ELEMENTS = (256, 65_536, 2_097_152)
"""Sizes of element-wise probes."""
SAMPLE_COUNT = 3
"""Samples of a probe; the least counts, as other load only adds."""
LONGEST_S = 0.2
"""Time of a case above which it is sampled once."""


def probe_cases() -> list[Case]:
    """Return the probes: the sweeps of the data file, and every element-wise function of numbers.

    >>> len(probe_cases()) > 500
    True
    """
    rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))["probes"]
    cases = []
    for row in rows:
        for values in product(*(value if isinstance(value, list) else [value] for value in row.values())):
            words: dict[str, Any] = dict(zip(row, values, strict=True))
            with suppress(NearpeakError):  # combinations that contradict one another are left out
                cases.append(case_of(words.pop("op"), words.pop("phase", "forward"), **words))
    return list(dict.fromkeys([*cases, *_functions()]))


def _functions() -> Iterator[Case]:
    from nearpeak.ops.shared.reference.elementwise_functions import FUNCTIONS, function_of

    for name in FUNCTIONS:
        wide = len(function_of(name).operand_names)
        for dtype in ("fp32", "bf16"):
            for elements in _ELEMENTS if dtype == "fp32" else _ELEMENTS[1:2]:
                operands: dict[str, Any] = dict.fromkeys("bc"[: wide - 1], elements)
                try:
                    yield case_of("elementwise", function=name, elements=elements, dtype=dtype, **operands)
                except NearpeakError:
                    continue


def thread_times(cases: Sequence[Case], sample_count: int = SAMPLE_COUNT) -> Iterator[tuple[Case, float]]:
    """Yield the CPU time of one call of each case on one thread with cold caches; cases that do not run are left out.

    Args:
        sample_count: number of samples, of which the least counts, as other load only adds to it.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    from nearpeak.case_tensors.torch_tensors import torch_or_refusal

    torch = torch_or_refusal("probes of the CPU")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for case in cases:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about lossy casts, which are timed on purpose
                time_s = _time_of(torch, case, sample_count)
            if time_s is not None:
                yield case, time_s
    finally:
        torch.set_num_threads(threads)


def _time_of(torch: Any, case: Case, sample_count: int) -> float | None:
    from nearpeak.case_tensors.random_inputs import drawn, too_large
    from nearpeak.measurement.machine.torch_runner import prepared
    from nearpeak.measurement.timing.clocks import HostTimer

    timer = HostTimer(thread_count=1, flush_bytes=Timing().flush_bytes)
    try:
        if too_large(case):
            return None
        run = prepared(torch, case, drawn(case), "cpu").runs[0]
        start = time.thread_time()
        run()
        first_s = time.thread_time() - start
        readings = []
        for _ in range(1 if first_s > LONGEST_S else sample_count):
            timer.flush()
            readings.append(timer.read(run, 1).cpu_s)
    except Exception:  # an operator that PyTorch refuses for a format, by any exception, is no probe
        return None
    return min(readings)
