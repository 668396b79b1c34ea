"""What documents state of a target that was edited, or is part of a device."""

import re
from functools import lru_cache

from nearpeak.core.target import Target
from nearpeak.targets import TARGETS, target_of


def stock_of(target: Target) -> Target:
    """Return the whole device that a partition, power mode or edit derives from, on which coefficients were fitted.

    >>> stock_of(target_of("h100_sxm:1g.10gb")).name
    'h100_sxm'
    """
    return target if ":" not in target.name and "+" not in target.name else _stock(target.name) or target


def documented_of(target: Target) -> Target:
    """Return the device, partition or power mode that an edit derives from: documents state its clock at its limit.

    >>> documented_of(target_of("h100_sxm:1g.10gb", ['power.limit="300 W"'])).name
    'h100_sxm:1g.10gb'
    """
    return target if "+" not in target.name else _documented(target.name.partition("+")[0]) or target


@lru_cache(maxsize=256)
def _stock(name: str) -> Target | None:
    return _documented(re.split("[:+]", name, maxsplit=1)[0])


@lru_cache(maxsize=256)
def _documented(name: str) -> Target | None:
    return target_of(name) if name.partition(":")[0] in TARGETS else None
