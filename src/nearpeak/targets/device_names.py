"""Lookup of a target by the device name that a driver or profiler reports."""

import re

from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError
from nearpeak.targets import TARGETS, target_of

UNKNOWN = "gpu"
"""Name for a GPU that no device file describes."""
_FORMS = {"sxm", "pcie", "nvl", "16gb", "32gb", "40gb", "80gb", "144gb"}


def known_target(name: str) -> str:
    """Return the device file of a GPU by the name that its driver gives; `gpu` where there is none.

    >>> known_target("NVIDIA H200"), known_target("NVIDIA A100-SXM4-80GB"), known_target("Tesla T4"), known_target("")
    ('h200_sxm', 'a100_sxm_80gb', 't4', 'gpu')
    >>> known_target("NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    'h100_sxm:1g.10gb'
    """
    words = set(re.sub(r"sxm\d", "sxm", re.sub(r"[^a-z0-9]+", " ", name.lower())).split())
    parts = {device: set(device.split("_")) for device in TARGETS}
    matches = [device for device in parts if parts[device] - _FORMS <= words]
    # Of several forms of one device, the one that the name says; the name of a module in a socket does not say it.
    matches.sort(
        key=lambda device: (-len(parts[device] & words), len(parts[device] - words), "sxm" not in parts[device])
    )
    if not matches:
        return UNKNOWN
    mig = re.search(r"\bmig (\d+g\.\d+gb)", name.lower())
    is_documented = mig and mig[1] in TARGETS[matches[0]].get("partition", {})
    return f"{matches[0]}:{mig[1]}" if mig and is_documented else matches[0]


def target_of_gpu(name: str) -> Target | None:
    """Return the device of a GPU by the name that its driver gives; none where no file describes it.

    >>> target_of_gpu("NVIDIA H100 80GB HBM3").name, target_of_gpu("Some New Card")
    ('h100_sxm', None)
    """
    try:
        device = known_target(name)
        return None if device == UNKNOWN else target_of(device)
    except NearpeakError:
        return None
