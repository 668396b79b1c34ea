"""The tables, keys and units that a device file may have."""

KINDS = ("gpu", "npu", "cpu")
"""Kinds of device; an `npu` has matrix engines and processors of another kind, and `sm_count` counts the engines."""

TOP: dict[str, type] = {
    "title": str, "vendor": str, "kind": str, "architecture": str, "sm_count": int, "sm_source": str,
    "sm_verified": bool, "clock": dict, "peak": dict, "dram": dict, "l2": dict, "on_chip": dict, "special": dict,
    "link": dict, "launch": dict, "power": dict, "partition": dict, "measured": bool,
    "unstated": list, "unstated_source": str,
}  # fmt: skip
"""Entries of the top level with their TOML types."""

REQUIRED = ("title", "vendor", "kind", "architecture", "sm_count", "sm_source", "peak", "dram", "l2")
"""Entries that no device file goes without."""

TABLES: dict[str, dict[str, str]] = {
    "clock": {"max": "Hz"},
    "dram": {"bandwidth": "B/s", "capacity": "B"},
    # A result may stay in the caches of single dies too, so `die_capacity`, all dies together, adds to `capacity`.
    "l2": {"bandwidth": "B/s", "capacity": "B", "die_capacity": "B"},
    # `shared_memory` is all that one multiprocessor has besides registers: shared memory and level-1 cache.
    "on_chip": {"register_file": "B", "shared_memory": "B", "tensor_memory": "B"},
    "special": {"sm_clock": "OP"},
    "launch": {"floor": "s"},
    "power": {"limit": "W"},
}
"""Keys of the plain tables with their units; a file may leave any of them open."""

NESTED: dict[str, dict[str, str]] = {
    "peak": {"rate": "FLOP/s", "sm_clock": "FLOP", "clock": "Hz"},
    "link": {"bandwidth": "B/s"},
}
"""Keys, all required, of the tables that exist once per execution unit or link."""

JOINED = "devices"
"""Key of a link that may be left open: how many devices such links join."""

PARTITION: dict[str, type] = {
    "sm_count": int, "dram_ratio": float, "l2_ratio": float, "clock": str, "power": str,
    "host_count": int, "host_clock": str, "source": str, "verified": bool,
}  # fmt: skip
"""Keys of a partition (`sm_count`, ratios of memory and cache) or power mode (`clock`, `power`, `sm_count` of the
multiprocessors that it leaves on, `dram_ratio`, cores of the host that it leaves on and their clock)."""

TAGS: dict[str, type] = {"source": str, "verified": bool}
"""Keys that every table may have in addition to its numbers."""
