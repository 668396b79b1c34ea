"""What all device files have in common."""

import re

import pytest

from nearpeak.core.work.dtype import DTYPES
from nearpeak.targets import TARGETS, target_of

NAMES = TARGETS.names()


def numbered_tables(raw):
    """Yield every table of a device file that holds numbers, with its dotted key."""
    for key, value in raw.items():
        if key in ("peak", "link", "partition"):
            yield from ((f"{key}.{name}", row) for name, row in value.items())
        elif isinstance(value, dict):
            yield key, value


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_source_that_can_be_looked_up(name):
    raw = TARGETS[name]
    for key, table in [*numbered_tables(raw), ("sm_count", {"source": raw["sm_source"]})]:
        source = table["source"]
        assert len(source) >= 15, f"{name}: {key}: {source!r}"
        assert not re.search(r"https?://|\?\?", source), f"{name}: {key}: {source!r}"


@pytest.mark.parametrize("name", NAMES)
def test_every_peak_is_of_a_unit_that_some_number_format_can_use(name):
    usable = {unit for row in DTYPES.values() for unit in (*row.matrix_units, *row.vector_units)}
    assert set(target_of(name).peaks) <= usable


@pytest.mark.parametrize("name", NAMES)
def test_every_device_states_what_a_bound_needs(name):
    target = target_of(name)
    assert "vector.fp32" in target.peaks
    assert target.dram.bandwidth_bytes_per_s
    assert target.dram.capacity_bytes
    assert target.l2.capacity_bytes
    assert target.power_w
    assert target.clock_hz >= max(peak.clock_hz for peak in target.peaks.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_unverified_table_is_surfaced(name):
    raw = TARGETS[name]
    flagged = {key for key, table in numbered_tables(raw) if table.get("verified") is False}
    assert set(target_of(name).unverified) == flagged | ({"sm_count"} if raw.get("sm_verified") is False else set())


@pytest.mark.parametrize("name", NAMES)
def test_device_file_is_data_only(name):
    import nearpeak.targets as package

    text = (package._FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    assert "#" not in text, "a number's explanation belongs in its source"


@pytest.mark.parametrize("name", [name for name in NAMES if TARGETS[name].get("partition")])
def test_partition_never_exceeds_its_device(name):
    whole = target_of(name)
    for part in whole.partitions:
        target = target_of(f"{name}:{part}")
        assert target.sm_count <= whole.sm_count
        assert target.clock_hz <= whole.clock_hz
        assert target.dram.bandwidth_bytes_per_s <= whole.dram.bandwidth_bytes_per_s
        assert target.dram.capacity_bytes <= whole.dram.capacity_bytes
        assert target.l2.capacity_bytes <= whole.l2.capacity_bytes
        assert target.power_w <= whole.power_w
        assert target.on_chip_bytes <= whole.on_chip_bytes
        for unit in whole.peaks:
            # Documents may state rates below the highest clock, which a mode can reach.
            assert target.flop_per_s(unit) <= whole.highest_flop_per_s(unit)
            assert target.highest_flop_per_s(unit) <= whole.highest_flop_per_s(unit)
