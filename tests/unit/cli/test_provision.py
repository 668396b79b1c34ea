"""`nearpeak provision`: needs of a time, in a pipe, on a terminal of 80 columns, and with wrong words."""

import dataclasses
import json
import os
import pty
import subprocess
import sys

import pytest

import nearpeak
from nearpeak.bounds.device_requirements import provision_of
from nearpeak.cli import main
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError

GEMM = ("gemm", "m=4096", "n=4096", "k=4096", "dtype=bf16")
FLOP = 2 * 4096**3


@pytest.fixture
def run(capsys, monkeypatch):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["nearpeak", "provision", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


def needs_of(record):
    return {need["resource"]: need for need in record["needs"]}


def test_needs_of_a_case_follow_from_its_work_and_the_time(run):
    code, out, _ = run(*GEMM, "--within", "100 us", "--json")
    needs = needs_of(json.loads(out))
    assert code == 0
    assert needs["products of bf16"]["least"] == pytest.approx(FLOP / 1e-4)
    assert needs["DRAM bandwidth"]["least"] == pytest.approx(2 * 4096**2 * 2 / 1e-4)
    assert needs["memory capacity"]["least"] == 3 * 4096**2 * 2


def test_a_base_target_shows_what_falls_short_and_by_what_factor(run):
    _, out, _ = run(*GEMM, "--within", "100us", "--on", "h100_sxm", "--json")
    record = json.loads(out)
    first = record["needs"][0]
    bound = nearpeak.bound(nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), "h100_sxm")
    assert (record["reached"], record["limiter"], first["resource"]) == (False, "matrix", "products of bf16")
    assert first["factor_ratio"] == pytest.approx(bound.time_s / 1e-4)
    assert needs_of(record)["DRAM bandwidth"]["factor_ratio"] < 1


def test_a_target_given_exactly_the_needs_reaches_the_time_and_hardly_more():
    case, device = nearpeak.case("softmax", rows=2, columns=10**9, dtype="bf16"), nearpeak.target("h100_sxm")
    need = next(one for one in nearpeak.provision(case, 2e-3, device).needs if one.resource == "DRAM bandwidth")
    for factor, reached in ((1 + 1e-9, True), (1 - 1e-9, False)):
        dram = dataclasses.replace(device.dram, bandwidth_bytes_per_s=need.least * factor)
        assert nearpeak.provision(case, 2e-3, dataclasses.replace(device, dram=dram)).reached is reached


def test_the_frontier_falls_with_storage_and_the_least_storage_lies_on_it():
    case = nearpeak.case("gemm", m=32_768, n=32_768, k=32_768, dtype="bf16")
    found = nearpeak.provision(case, 50e-3, "h100_sxm")
    bandwidths = [point.dram_bytes_per_s for point in found.frontier]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert found.frontier[-1].dram_bytes == 2 * 32_768**2 * 2
    below, above = (
        [p for p in found.frontier if (p.storage_bytes >= found.least_storage_bytes) is side] for side in (False, True)
    )
    assert min(p.dram_bytes_per_s for p in below) > 3.35e12 >= max(p.dram_bytes_per_s for p in above)


def test_a_time_below_the_compulsory_traffic_is_out_of_reach_of_any_storage():
    case = nearpeak.case("elementwise", elements=10**9, function="exp", dtype="fp32")
    assert nearpeak.provision(case, 1e-4, "h100_sxm").least_storage_bytes is None


def test_formats_that_share_the_units_need_their_rates_together():
    cases = [nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype=dtype) for dtype in ("bf16", "fp8_e4m3")]
    calls = tuple(Call(case=one, operator="gemm", phase="forward") for one in cases)
    found = nearpeak.provision(Workload(name="two", step="sweep", calls=calls), 1e-4, "h100_sxm")
    ratios = [need.factor_ratio for need in found.needs if need.resource.startswith("products")]
    assert ratios[0] == pytest.approx(ratios[1]) == pytest.approx(1.5 * FLOP / (132 * 4096 * 1.98e9) / 1e-4)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((*GEMM,), 2, "--within"),
        ((*GEMM, "--within", "5 parsec"), 2, "--within '5 parsec'"),
        ((*GEMM, "--within", "fast"), 2, "--within 'fast'"),
        ((*GEMM, "--within", "0 ms"), 2, "must be above 0"),
        ((*GEMM, "--within", "-1 ms"), 2, "must be above 0"),
        ((*GEMM, "--within", "1 ms", "--on", "h100"), 2, "did you mean h100_"),
        ((*GEMM, "--within", "1 ms", "--set", "sm_count=2"), 2, "give --on TARGET too"),
        ((*GEMM, "--within", "1 ms", "--json", "--text"), 2, "exclude each other"),
        ((*GEMM, "--within", "1 ms", "--policy", "fast"), 2, "strict, tf32, hard"),
        (("gemm", "m=1", "--within", "1 ms"), 2, "axis 'n' is missing"),
        (("gemm", "m", "--within", "1 ms"), 2, "'m' is not AXIS=EXTENT"),
        (("gemn", "m=1", "--within", "1 ms"), 2, "did you mean gemm"),
        (("nowhere.onnx", "--within", "1 ms"), 2, "nowhere.onnx: not found"),
    ],
)
def test_wrong_words_are_one_line_that_names_them(run, words, code, message):
    found, out, err = run(*words)
    assert (found, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("within_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(within_s):
    with pytest.raises(SpecError, match="above 0 and finite"):
        provision_of(nearpeak.case("gemm", m=1, n=1, k=1, dtype="bf16"), within_s)


def test_a_terminal_of_80_columns_shows_every_line_whole():
    words = ["softmax", "rows=2", "columns=1000000000", "dtype=bf16", "--within", "2ms", "--on", "h100_sxm"]
    main_end, child_end = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "xterm"}
    command = [sys.executable, "-m", "nearpeak", "provision", *words]
    with subprocess.Popen(command, stdout=child_end, stderr=child_end, env=environment) as process:
        os.close(child_end)
        text = b""
        while chunk := _read(main_end):
            text += chunk
    os.close(main_end)
    lines = text.decode().splitlines()
    assert process.returncode == 0
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("within 2 ms on h100_sxm: out of reach") for line in lines)
    assert any(line.split()[:2] == ["DRAM", "bandwidth"] and "1.75×" in line for line in lines)


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other end is closed
        return b""
