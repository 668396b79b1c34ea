"""The unedited, documented device from which an edited target, partition or power mode derives."""

import re
from dataclasses import replace
from functools import lru_cache

from nearpeak.base.canonical_json import digest
from nearpeak.base.identity_key import Same
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError
from nearpeak.targets import TARGETS, shipped_target, target_of


def stock_of(target: Target) -> Target:
    """Return the whole device that a partition, power mode or edit derives from, on which coefficients were fitted.

    A file of the user's own with the name of a device is an edit of it.

    >>> stock_of(target_of("h100_sxm:1g.10gb")).name
    'h100_sxm'
    """
    return _stock(target.name) or target


def documented_of(target: Target) -> Target:
    """Return the device, partition or power mode that an edit derives from: documents state its clock at its limit.

    >>> documented_of(target_of("h100_sxm:1g.10gb", ['power.limit="300 W"'])).name
    'h100_sxm:1g.10gb'
    """
    return _documented(target.name.partition("+")[0]) or target


def at_documented_power(target: Target) -> Target:
    """Return an edited target under the power limit that documents state of it; other devices are what they are.

    >>> at_documented_power(target_of("h100_sxm", ['power.limit="300 W"'])).power_w
    700.0
    """
    documented = documented_of(target)
    if documented.power_w == target.power_w or differing(target):
        return target
    return replace(target, power_w=documented.power_w)


def differing(target: Target) -> tuple[str, ...]:
    """Return the figures by which a target is not the device that ships under its name, on which data were measured.

    None where it is that device, where none of its name ships, and of edits, which say so in their name.

    >>> from dataclasses import replace
    >>> differing(target_of("h100_sxm")), differing(replace(target_of("h100_sxm"), sm_count=144))
    ((), ('sm_count',))
    """
    return _differing(Same(target))


@lru_cache(maxsize=256)
def _differing(same: "Same[Target]") -> tuple[str, ...]:
    target = same.held
    if "+" in target.name or target.name.partition(":")[0] not in TARGETS:
        return ()
    try:
        shipped = shipped_target(target.name)
    except NearpeakError:  # a part that the device which ships does not have
        return ("partition",)
    if target is shipped:
        return ()
    stated, documented = _figures(target), _figures(shipped)
    return tuple(name for name in dict.fromkeys((*documented, *stated)) if stated.get(name) != documented.get(name))


def figures_digest(target: Target) -> str:
    """Return a digest of the figures of a target that predictions read, by which a fit knows its device again."""
    return digest(_figures(target))


def _figures(target: Target) -> dict[str, object]:
    """Return the figures of a target that predictions read, by the names of its file."""
    peaks = {f'peak."{u}"': [part.flop_per_s, part.flop_per_clock, part.clock_hz] for u, part in target.peaks.items()}
    levels = {
        f"{name}.{key}": value
        for name, part in (("dram", target.dram), ("l2", target.l2))
        for key, value in (("bandwidth", part.bandwidth_bytes_per_s), ("capacity", part.capacity_bytes))
    }
    return {
        "vendor": target.vendor, "kind": target.kind, "architecture": target.architecture, "sm_count": target.sm_count,
        "clock": target.clock_hz, **peaks, **levels, "on_chip": target.on_chip_bytes,
        "special": target.special_per_clock, "launch_floor": target.launch_floor_s, "power.limit": target.power_w,
        **{f"link.{name}": part.bandwidth_bytes_per_s for name, part in target.links.items()},
    }  # fmt: skip


@lru_cache(maxsize=256)
def _stock(name: str) -> Target | None:
    return _documented(re.split("[:+]", name, maxsplit=1)[0])


@lru_cache(maxsize=256)
def _documented(name: str) -> Target | None:
    return target_of(name) if name.partition(":")[0] in TARGETS else None
