"""Targets for a software share of a device: MPS percentages and green contexts, which limit the multiprocessors."""

from collections.abc import Mapping
from typing import Any

from nearpeak.errors import SpecError

FORMS = "mps=PERCENT, green=MULTIPROCESSORS"
"""How a share is written after the colon of a target's name."""

_VENDOR = "NVIDIA"
_GREEN: Mapping[str, tuple[int, int]] = {
    "pascal": (1, 1),
    "volta": (2, 2),
    "turing": (2, 2),
    "ampere": (4, 2),
    "ada": (4, 2),
    "hopper": (8, 8),
    "blackwell": (8, 8),
    "blackwell ultra": (8, 8),
}
"""Fewest multiprocessors of a green context and the step above, by architecture.

Source: CUDA driver API, green contexts (CUDA 12.4 and later): minimum and alignment by compute capability.
"""


def is_share(part: str) -> bool:
    """Return whether `part` is written as a share.

    >>> is_share("mps=50"), is_share("3g.40gb")
    (True, False)
    """
    return part.startswith(("mps=", "green="))


def share_row(raw: Mapping[str, Any], stem: str, part: str) -> dict[str, Any]:
    """Return the multiprocessors of share `part` of the device `stem`, in the form of a partition's row.

    Memory, its bandwidth and the cache are shared with everybody else on the device: one share may get all of them,
    so that none is scaled. An MPS percentage is rounded up to whole multiprocessors.

    Raises:
        SpecError: the device has no such shares, or the number is out of range or of the wrong step.
    """
    kind, _, text = part.partition("=")
    where = f"target {stem}:{part}"
    if raw["vendor"] != _VENDOR or raw["architecture"] not in _GREEN:
        raise SpecError(f"{where}: MPS and green contexts are documented for NVIDIA GPUs from Pascal on")
    number = text.removesuffix("%") if kind == "mps" else text
    if not (number.isascii() and number.isdigit()):
        raise SpecError(f"{where}: {text!r} is not a whole number; write {FORMS}, e.g. {stem}:mps=50")
    row = {"dram_ratio": 1.0, "l2_ratio": 1.0}
    if kind == "mps":
        if not 1 <= int(number) <= 100:
            raise SpecError(f"{where}: {int(number)} is not a percentage from 1 to 100")
        return row | {"sm_count": -(-raw["sm_count"] * int(number) // 100), "source": _MPS}
    return row | {"sm_count": _of_green(where, int(number), raw), "source": _GREEN_CONTEXT}


_MPS = (
    "NVIDIA MPS guide: the active thread percentage limits the multiprocessors of a client; memory and cache are shared"
)
_GREEN_CONTEXT = "CUDA driver API, green contexts: multiprocessors only; memory and cache are shared"


def _of_green(where: str, wanted: int, raw: Mapping[str, Any]) -> int:
    least, step = _GREEN[raw["architecture"]]
    whole: int = raw["sm_count"]
    if not least <= wanted <= whole or (wanted % step and wanted != whole):
        raise SpecError(
            f"{where}: a green context of {raw['title']} has {least} to {whole} multiprocessors in steps of {step}"
        )
    return wanted
