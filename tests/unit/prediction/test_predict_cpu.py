import json

import numpy as np
import pytest

import nearpeak
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.measurement.machine.roofs import cpu_target_text
from nearpeak.prediction.calibration import probe_file
from nearpeak.prediction.calibration.probe_file import path_of, save_text
from nearpeak.targets import target_of, user_folder

ROOFS = {"fp32": 1e11, "fp64": 5e10, "memory": 2e10, "launch": 1e-6}


@pytest.fixture
def cpu(tmp_path, monkeypatch):
    """Give a CPU with known roofs, and a way to write its probes."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (user_folder() / "targets").mkdir(parents=True)
    (user_folder() / "targets" / "cpu.toml").write_text(cpu_target_text(ROOFS))
    target = target_of("cpu")

    def write(pairs, title=None):
        path_of().parent.mkdir(parents=True, exist_ok=True)
        path_of().write_text(save_text(pairs, title or target.title, "a test"))
        return target

    return write


def softmax(rows, columns, **more):
    return nearpeak.case("softmax", rows=rows, columns=columns, dtype="fp32", **more)


def took(case):
    """Stand for a machine: 5 us a call, 30 ns a row, 10 GB/s."""
    sizes = dict(case.axes)
    return 5e-6 + 30e-9 * sizes["rows"] + 8e-10 * sizes["rows"] * sizes["columns"]


PROBES = [softmax(rows, columns) for rows in (1, 32, 1024) for columns in (16, 512, 8192)]


def test_without_probes_the_remedy_is_named(cpu):
    cpu([])
    path_of().unlink()
    with pytest.raises(NotModelledError, match="calibrate roofs"):
        nearpeak.predict(PROBES[0], "cpu")


def test_sizes_between_the_probes_are_predicted_from_them(cpu):
    cpu([(case, took(case)) for case in PROBES])
    draw = np.random.default_rng(1)
    cases = [softmax(int(2 ** draw.uniform(0, 10)), int(2 ** draw.uniform(4, 13))) for _ in range(50)]
    found = nearpeak.predict(cases, "cpu")
    errors = np.abs(found.predicted_s / [took(case) for case in cases] - 1)
    assert np.median(errors) < 0.05
    assert errors.max() < 0.3


def test_parts_add_up_and_the_interval_holds_the_time(cpu):
    cpu([(case, took(case)) for case in PROBES])
    found = nearpeak.predict(softmax(100, 1000), "cpu")
    assert sum(found.waterfall_s.values()) == pytest.approx(found.time_s, rel=1e-9)
    assert found.bound_s <= found.low_s <= found.time_s <= found.high_s
    assert found.distance_count == 0
    assert found.calibration.row_count == 9


def test_a_choice_without_probes_takes_those_of_its_operator_and_says_so(cpu):
    cpu([(case, took(case)) for case in PROBES])
    found = nearpeak.predict(softmax(100, 1000, log=True), "cpu")
    assert found.distance_count == 1
    assert "other choices" in found.calibration.name
    other = nearpeak.predict(nearpeak.case("layer_norm", rows=100, hidden=1000, dtype="fp32"), "cpu")
    assert "family" in other.calibration.name


def test_probes_of_another_machine_or_damaged_ones_are_refused(cpu):
    cpu([(PROBES[0], 1e-5)], title="This CPU: another one")
    with pytest.raises(NotModelledError, match="another one"):
        nearpeak.predict(PROBES[0], "cpu")
    path_of().write_text(json.dumps({"schema": probe_file.SCHEMA, "case_count": 3}) + "\n")
    with pytest.raises(SpecError, match="damaged"):
        nearpeak.predict(PROBES[0], "cpu")


def test_a_step_on_the_cpu_is_the_sum_of_its_calls(cpu):
    from nearpeak.core.work.workload import Call, Workload

    cpu([(case, took(case)) for case in PROBES])
    calls = (Call(case=PROBES[4], operator="softmax", phase="forward", call_count=3),)
    found = nearpeak.predict(Workload(name="some", step="forward", calls=calls), "cpu")
    assert found.time_s == pytest.approx(3 * nearpeak.predict(PROBES[4], "cpu").time_s)
    assert found.energy is None


def test_probes_cover_most_operators_and_run_on_one_thread():
    from nearpeak.measurement.machine.cpu_probes import probe_cases, thread_times

    cases = probe_cases()
    assert len({case.op for case in cases}) > 50
    small = [case for case in cases if case.op in ("softmax", "gemm")][:3]
    assert [case for case, time_s in thread_times(small, 1) if time_s > 0] == small


def test_coefficients_for_the_cpu_are_refused_as_nothing_would_read_them(cpu, tmp_path):
    cpu([(case, took(case)) for case in PROBES])
    (tmp_path / "own.toml").write_text("[groups]\n")
    for cases in (PROBES[0], PROBES[:2]):
        with pytest.raises(SpecError, match=r"own\.toml: the target cpu is predicted from probes of its own"):
            nearpeak.predict(cases, "cpu", calibration=tmp_path / "own.toml")


def test_an_edited_cpu_is_refused_as_probes_are_of_the_one_at_hand(cpu):
    cpu([(case, took(case)) for case in PROBES])
    with pytest.raises(NotModelledError, match=r'tell nothing of it with dram\.bandwidth="1 TB/s"; leave --set out'):
        nearpeak.predict(PROBES[0], target_of("cpu", ['dram.bandwidth="1 TB/s"']))
