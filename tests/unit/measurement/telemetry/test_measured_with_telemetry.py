"""Telemetry in measurements: kept in files, exported, shown, and a device that was held down is throttled."""

import dataclasses
import json
import math

import pytest
from typer.testing import CliRunner

import nearpeak
from nearpeak.cli import BARE, application
from nearpeak.core.runs.measurement import Measurement, Outcome
from nearpeak.core.runs.telemetry import Channel, Stream, Telemetry
from nearpeak.errors import NearpeakError
from nearpeak.exchange.measurement_lines import measurement_of, measurement_record
from nearpeak.exchange.telemetry_lines import telemetry_of, telemetry_record
from nearpeak.measurement.result_export import write_parquet
from nearpeak.measurement.telemetry.sensor_session import with_telemetry
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.telemetry_report import in_brief, telemetry_document

CASE = nearpeak.case("softmax", rows=8, columns=8, dtype="fp32")
SECOND = 10**9


def telemetry(reasons=0x1, watts=300.0):
    power = Channel(name="gpu0.power", unit="W", kind="instantaneous", meaning="now", domain="gpu0", resolution=1e-3)
    energy = Channel(
        name="gpu0.energy", unit="J", kind="counter", meaning="", domain="gpu0", status="NVML: Not Supported"
    )
    why = Channel(
        name="gpu0.throttle", unit="bits", kind="flags", meaning="",
        bits=(("idle", 1), ("software power cap", 4), ("hardware thermal slowdown", 0x40)),
    )  # fmt: skip
    times = tuple(range(0, 2 * SECOND + 1, SECOND // 10))
    values = (tuple([watts] * 21), tuple([math.nan] * 21), tuple([float(reasons)] * 21))
    stream = Stream(source="nvml_power", channels=(power, energy, why), before_ns=times, after_ns=times, values=values)
    return Telemetry(
        begin_ns=0, end_ns=2 * SECOND, wall_ns=1, streams=(stream,), rate_hz=10.0, tick_count=21,
        spans=(("warm-up", 0, SECOND // 2), ("samples", SECOND // 2, 2 * SECOND)),
        unavailable=(("rapl", "no such counter"),),
    )  # fmt: skip


def measurement(**more):
    return Measurement(case=CASE, target="gpu", runner="null", samples_s=(1e-3,) * 5, **more)


def test_a_record_keeps_every_reading_and_says_the_energy():
    found = measurement(telemetry=telemetry(), spans_ns=(("samples", 1, 2),))
    record = json.loads(json.dumps(measurement_record(found, "key"), allow_nan=False))
    (energy,) = record["telemetry"]["energy"]
    assert (energy["domain"], energy["energy_j"]) == ("gpu0", pytest.approx(450.0))
    again = measurement_of(record, {}, "here")
    assert again.spans_ns == found.spans_ns
    assert telemetry_record(again.telemetry) == telemetry_record(found.telemetry)
    assert math.isnan(again.telemetry.streams[0].values[1][0])


def test_a_line_from_before_telemetry_has_none():
    record = measurement_record(measurement(), "key")
    del record["telemetry"], record["spans_ns"]
    assert measurement_of(record, {}, "here").telemetry is None


def test_a_broken_record_of_telemetry_is_refused_with_its_place():
    record = telemetry_record(telemetry())
    del record["begin_ns"]
    with pytest.raises(NearpeakError, match="here: has no 'begin_ns'"):
        telemetry_of(record, "here")


def test_parquet_has_the_bounds_of_the_energy_by_domain(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    write_parquet(tmp_path / "r.parquet", [measurement(telemetry=telemetry()), measurement()])
    rows = duckdb.sql(f"select energy_j, telemetry from '{tmp_path / 'r.parquet'}'").fetchall()
    low, high = json.loads(rows[0][0])["gpu0"]
    assert low < 450.0 < high
    assert json.loads(rows[0][1])["rate_hz"] == 10.0
    assert rows[1] == (None, None)


@pytest.mark.parametrize(("reasons", "outcome"), [(0x1, "budget"), (0x4, "budget"), (0x44, "throttled")])
def test_a_device_held_down_for_heat_is_throttled_and_a_power_cap_is_said_beside(reasons, outcome):
    found = with_telemetry(measurement(), telemetry(reasons))
    assert found.outcome.value == outcome
    assert ("power cap" in in_brief(found.telemetry)) == bool(reasons & 0x4)
    if outcome == "throttled":
        assert found.note == "the device held its clock down: hardware thermal slowdown"


def test_what_failed_stays_what_it_is():
    failed = dataclasses.replace(measurement(), outcome=Outcome.CRASH)
    assert with_telemetry(failed, telemetry(0x40)).outcome is Outcome.CRASH


def test_the_terminal_shows_energy_with_its_error_and_unknowns_by_name():
    text = " ".join(to_terminal(telemetry_document(telemetry())).split())
    assert "gpu0 by integral of gpu0.power: 600 ± 0.001 J, 300 W over 2 s" in text
    assert "gpu0.energy unknown: NVML: Not Supported" in text
    assert "rapl not available: no such counter" in text
    assert "samples 1.5 s gpu0 450 ± 0.00075 J, 300 W" in text
    assert in_brief(telemetry()) == "gpu0 450 ± 0.00075 J, 300 W"


def test_a_measured_case_has_its_phases_and_what_sensors_said(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("psutil")
    from nearpeak.api.measured_analysis import measure
    from nearpeak.core.runs.measurement import Timing
    from nearpeak.measurement.result_file import read_results

    out = tmp_path / "results.jsonl"
    timing = Timing(cache="hot", budget_s=0.3, validate=False)
    (found,) = measure(CASE, "torch_cpu", timing, out=out, telemetry_hz=50)
    assert [name for name, _, _ in found.spans_ns] == ["prepare", "check", "warm-up", "samples"]
    ends = [time for _, *pair in found.spans_ns for time in pair]
    assert ends == sorted(ends)
    assert (found.telemetry.begin_ns, found.telemetry.end_ns) == (ends[0], ends[-1])
    assert "host" in [stream.source for stream in found.telemetry.streams]
    (kept,) = read_results(out)
    assert telemetry_record(kept.telemetry) == telemetry_record(found.telemetry)


def run(*words):
    return CliRunner().invoke(application(), list(words))


def test_the_command_reads_a_log_and_keeps_it(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("t_s,board_w\n" + "".join(f"{n},{10 + n % 2}\n" for n in range(21)))
    done = run("telemetry", "--import", str(log), "--out", str(tmp_path / "kept.json"), "--json")
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout.splitlines()[0])
    assert record["energy"][0]["energy_j"] == pytest.approx(210.0)
    assert json.loads((tmp_path / "kept.json").read_text()) == record


def test_the_command_watches_this_machine():
    pytest.importorskip("psutil")
    done = run("telemetry", "--for", "200ms", "--rate", "20", "--source", "host", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["streams"][0]["source"] == "host"


@pytest.mark.parametrize(
    ("words", "said"),
    [(("telemetry", "--rate", "fast"), "--rate 'fast'"), (("telemetry", "--interval", "1s"), "give --import"),
     (("measure", "fill", "elements=8", "dtype=fp32", "--telemetry=x"), "--telemetry 'x'"),
     (("telemetry", "--for", "0s"), "more than 0")],
)  # fmt: skip
def test_wrong_options_are_refused_by_name(words, said):
    done = run(*words)
    assert isinstance(done.exception, NearpeakError)
    assert said in str(done.exception)


def test_the_bare_option_asks_for_a_hundred_readings_a_second():
    assert BARE == {"--telemetry": "--telemetry=100"}
