"""Kernel times of one serving framework relative to the fastest framework measured, by operator and device."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.answers.prediction import BEST_SOFTWARE, SOFTWARE
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.prediction.calibration.related_devices import is_other_format
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Setting

FILE = Path(__file__).parent / "coefficients/software.toml"
DECODE = "_decode"
"""Suffix of groups of decode steps, which other kernels run than prefills."""
_OTHER_BOARD = 0.10
"""Additional spread, in logarithms, of a framework on another board of the architecture: medians of the measured
versions of one framework on one board differ by that much (README of the corpus: products 3 to 5 %, decode 19 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareRatio:
    """Times of a framework over the best ones, with their interval."""

    places: Any
    """Logarithms of best times."""
    logs: Any
    """Logarithms of the framework's times over them; straight between places, level beyond."""
    low_ratio: float
    """Low end of the 90 % interval over the framework's time."""
    high_ratio: float
    """High end."""
    note: str
    """What stands behind it, a sentence."""

    def of(self, time_s: Any) -> Any:
        """Return the ratio of each time."""
        return np.exp(np.interp(np.log(np.maximum(time_s, 1e-12)), self.places, self.logs))


def checked_software(name: str) -> str:
    """Return the framework, empty for the best of all.

    Raises:
        SpecError: none of this name is known.

    >>> checked_software("vllm"), checked_software("best"), checked_software("")
    ('vllm', '', '')
    """
    if name in ("", BEST_SOFTWARE):
        return ""
    if name not in SOFTWARE:
        raise SpecError(f"software {name!r} is not known; {BEST_SOFTWARE} (the usual), {', '.join(SOFTWARE)} are")
    return name


def ratio_of_cases(
    model: KernelModel, target: Target, cases: CaseColumns, setting: Setting, *, decodes: bool
) -> SoftwareRatio | None:
    """Return the ratio of a setting's framework; none for the best of all.

    Args:
        decodes: whether cases run as decode steps.

    Raises:
        NotModelledError: the framework has no data for such cases, and the best of all must not stand in.
    """
    if not setting.software:
        return None
    first, *others = model.groups(cases.op, cases.dtypes)[:2]
    alike = [first, *(name for name in others if not (model.is_by_format and is_other_format(first, name)))]
    groups = [name + DECODE * decodes for name in alike]
    for group in groups:
        ratio = _ratio(model.name, group, target.architecture, target.name, setting.software)
        if ratio is not None:
            return ratio
    if setting.software_or_best:
        return None
    known = []
    for group in groups:
        boards = _entries().get(model.name, {}).get(group, {})
        measured_boards = [name for name, its in boards.items() if setting.software in its]
        names = [setting.software] if measured_boards else sorted({name for its in boards.values() for name in its})
        known += (
            [f"{', '.join(names)} for {group.replace(DECODE, ' decode')} on {', '.join(measured_boards or boards)}"]
            if boards
            else []
        )
    raise NotModelledError(
        f"predict: no data of {setting.software} for {cases.op} in {cases.dtypes.get('dtype', 'its format')} on "
        f"{target.name} or boards of its architecture; there is {'; '.join(known) or 'none of any framework'}; leave "
        "it out for the best of all"
    )


def is_measured(model: str, group: str, target: Target, software: str) -> bool:
    """Return whether a framework's times of a group are known on boards of the architecture.

    >>> from nearpeak.targets import target_of
    >>> [is_measured("stream", "pointwise", target_of(name), "pytorch") for name in ("h200_sxm", "a100_sxm_80gb")]
    [True, False]
    """
    return _ratio(model, group, target.architecture, target.name, software) is not None


@lru_cache(maxsize=256)
def _ratio(model: str, group: str, architecture: str, device: str, software: str) -> SoftwareRatio | None:
    from nearpeak.targets import target_of

    boards = _entries().get(model, {}).get(group, {})
    known = {name: its[software] for name, its in boards.items() if software in its}
    alike = [name for name in known if target_of(name).architecture == architecture]
    if not alike:
        return None
    name = device if device in known else alike[0]
    entry, more = known[name], 0.0 if name == device else _OTHER_BOARD
    low, high = np.log(entry["interval"])
    return SoftwareRatio(
        places=np.log(entry["times_s"]), logs=np.array(entry["ratio_logs"]),
        low_ratio=float(np.exp(-np.hypot(low, more))),
        high_ratio=float(np.exp(np.hypot(high, more))), note=(
            f"time of {setting_name(software)} where it is not the best of the frameworks measured, by "
            f"{entry['row_count']} measurements on {name}"
        ),
    )  # fmt: skip


def setting_name(software: str) -> str:
    """Return the name of a framework as its makers write it.

    >>> setting_name("trtllm")
    'TensorRT-LLM'
    """
    return {"vllm": "vLLM", "trtllm": "TensorRT-LLM", "sglang": "SGLang", "pytorch": "PyTorch"}[software]


@lru_cache(maxsize=1)
def _entries() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
