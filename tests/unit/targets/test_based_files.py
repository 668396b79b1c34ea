"""Device files that state only what differs from a device of the catalogue, and figures that none states."""

from pathlib import Path

import pytest

from nearpeak import targets
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import case
from nearpeak.simulation.architecture_sweep import sweep
from nearpeak.simulation.run_energy import power_of
from nearpeak.simulation.step_simulation import simulate_case
from nearpeak.targets import target_of

GEMM = case("gemm", m=1024, n=1024, k=1024, dtype="bf16")
STEP = Workload(name="w", step="one", calls=(Call(case=GEMM, operator="gemm", phase="forward", call_count=1),))


def file_of(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_file_with_a_base_states_only_what_differs(tmp_path):
    path = file_of(tmp_path, 'base = "h100_sxm"\n[dram]\nbandwidth = "5 TB/s"\nsource = "what if"\n')
    mine, base = target_of(path), target_of("h100_sxm")
    assert mine.name == "mine"
    assert mine.dram.bandwidth_bytes_per_s == 5e12
    assert mine.dram.capacity_bytes == base.dram.capacity_bytes
    assert mine.dram.source.startswith("what if; capacity as h100_sxm: ")
    assert (mine.peaks, mine.l2, mine.links, mine.power_w) == (base.peaks, base.l2, base.links, base.power_w)
    assert not mine.partitions


def test_peaks_follow_multiprocessors_and_clock_as_after_an_edit(tmp_path):
    path = file_of(
        tmp_path,
        'base = "h100_sxm"\ntitle = "Wide"\nsm_count = 264\nsm_source = "what if"\n'
        '[clock]\nmax = "1.5 GHz"\nsource = "what if"\n',
    )
    mine, edited = target_of(path), target_of("h100_sxm", ["sm_count=264", 'clock.max="1.5 GHz"'])
    assert mine.title == "Wide"
    for unit, peak in edited.peaks.items():
        assert mine.peaks[unit].flop_per_s == pytest.approx(peak.flop_per_s)
    assert simulate_case(GEMM, mine).end_ps > 0


def test_an_edit_of_a_based_file_is_an_edit_of_the_whole(tmp_path):
    path = file_of(tmp_path, 'base = "h100_sxm"\n')
    assert target_of(path, ["sm_count=66"]).sm_count == 66
    assert target_of(path).peaks == target_of("h100_sxm").peaks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "h100_smx"\n', "no device of the catalogue; e.g. h100_sxm"),
        ("base = 3\n", "no device of the catalogue"),
        ('base = "h100_sxm"\n[dram]\nbandwidth = "5 TB/s"\n', "dram has no source"),
        ('base = "h100_sxm"\ndram = 3\n', "it must be a table"),
        ('base = "h100_sxm"\nsm_count = 66\n', "without sm_source"),
        ('base = "h100_sxm"\n[dram]\nbandwith = "5 TB/s"\nsource = "x"\n', "bandwith is not known"),
        ('base = "h100_sxm"\nmemory = "5"\n', "'memory' is not known"),
    ],
)
def test_what_a_based_file_gets_wrong_is_named(tmp_path, text, message):
    with pytest.raises(SpecError, match=message):
        target_of(file_of(tmp_path, text))


def without(table, tmp_path):
    """Return the path of a copy of a device of the catalogue without one table."""
    lines, kept = [], True
    for line in Path(targets.__file__).with_name("h100_sxm.toml").read_text().splitlines():
        kept = not line.startswith(f"[{table}]") if line.startswith("[") else kept
        lines += [line] if kept else []
    return file_of(tmp_path, "\n".join(lines))


def test_a_device_without_documented_power_gets_no_limit_in_silence(tmp_path):
    path = without("power", tmp_path)
    target = target_of(path)
    assert target.power_w is None
    assert power_of(target) is None
    assert simulate_case(GEMM, target).energy_j is None
    with pytest.raises(NotModelledError, match="no document states its power limit"):
        simulate_case(GEMM, target, governed=True)
    stated = target_of(path, ['power.limit="300 W"'])
    assert power_of(stated).limit_w == 300
    assert simulate_case(GEMM, stated, governed=True).energy_j > 0


def test_a_sweep_of_a_figure_that_no_document_states_names_it(tmp_path):
    with pytest.raises(SpecError, match=r"states no special\.sm_clock"):
        sweep(STEP, without("special", tmp_path), {"special.sm_clock": ("16 OP", "32 OP")})
