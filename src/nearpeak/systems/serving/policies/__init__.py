"""Scheduling policies of serving engines, one file each."""

from nearpeak.base.registry import Registry
from nearpeak.systems.serving.scheduling_policy import SchedulingPolicy

POLICIES: Registry[SchedulingPolicy] = Registry.of_modules(
    "POLICY", kind="serving policy", package=__name__, file=__file__, group="nearpeak.serving_policies"
)
"""All scheduling policies by name."""
