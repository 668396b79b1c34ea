"""Host times of an engine from own benchmarks: known ones are found again, and files are read or refused."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from nearpeak.api.serving.engine_calibration import served_points
from nearpeak.api.serving.serving_plan import serving_time
from nearpeak.cli import application
from nearpeak.errors import NearpeakError
from nearpeak.systems.serving.engine_costs import engine_costs

LOADS = ((1, 64, 16), (8, 64, 16), (16, 64, 16))
VLLM = {
    "date": "20260101-120000", "backend": "vllm", "model_id": "m", "num_prompts": 40, "completed": 40,
    "max_concurrency": 8, "request_throughput": 3.0, "mean_ttft_ms": 21.0, "median_ttft_ms": 20.0, "mean_tpot_ms": 9.0,
    "median_tpot_ms": 8.9, "random_input_len": 64, "random_output_len": 16,
}  # fmt: skip


def table(path, host):
    """Write latencies as a server would have them whose host takes other times."""
    costs = replace(engine_costs("vllm_v1"), **host)
    rows = ["concurrency,input_tokens,output_tokens,ttft_ms,tpot_ms"]
    for concurrency, inputs, outputs in LOADS:
        answer = serving_time(
            "llama-3.2-1b", "h100_sxm", engine=costs, input_tokens=inputs, output_tokens=outputs, has_trust=False,
            concurrency=concurrency, length_spread=0.02, requests_per_client=4,
        )  # fmt: skip
        row = concurrency, inputs, outputs, 1e3 * answer.ttft_s.value, 1e3 * answer.tpot_s.value
        rows.append(",".join(map(str, row)))
    path.write_text("\n".join(rows), "utf-8")
    return path


def test_known_host_times_are_found_and_a_plan_reads_them(tmp_path):
    data = table(tmp_path / "own.csv", {"host_step_s": 2e-3, "host_sequence_s": 9e-5})
    out = tmp_path / "mine.toml"
    words = ("plan", "serve", "calibrate", str(data), "--model", "llama-3.2-1b", "--on", "h100_sxm", "--out", str(out))
    done = CliRunner().invoke(application(), [*words, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    assert found["after_s"]["host_step_s"] == pytest.approx(2e-3, rel=0.1)
    assert found["after_s"]["host_sequence_s"] == pytest.approx(9e-5, rel=0.2)
    costs = engine_costs(str(out))
    assert costs.host_step_s == pytest.approx(found["after_s"]["host_step_s"])
    assert (costs.policy, costs.graph_sizes) == ("vllm", engine_costs("vllm_v1").graph_sizes)


def test_results_of_a_benchmark_are_read(tmp_path):
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(VLLM), "utf-8")
    (point,) = served_points(path, "h100_sxm")
    assert (point.concurrency, point.input_tokens, point.output_tokens) == (8, 64, 16)
    assert (point.ttft_s, point.tpot_s) == pytest.approx((0.021, 0.009))


@pytest.mark.parametrize(("text", "name", "message"), [
    (json.dumps(VLLM | {"max_concurrency": None}), "a.json", "states no concurrency"),
    ("concurrency,input_tokens,output_tokens\n1,2,3", "a.csv", "one of ttft_s, tpot_s"),
    ("concurrency,input_tokens,output_tokens,tpot_ms\n1,2,3,-4", "a.csv", "must be a time above 0"),
    ("concurrency,input_tokens,output_tokens,tpot_ms\n0,2,3,4", "a.csv", "whole number from 1 to 10,000"),
    ("concurrency,input_tokens,output_tokens,tpot_ms\n999999999,2,3,4", "a.csv", "whole number from 1 to 10,000"),
    (f"concurrency,input_tokens,output_tokens,tpot_ms\n1,{'9' * 400},3,4", "a.csv", r"402 characters\); it must be"),
])  # fmt: skip
def test_files_that_cannot_be_fitted_to_are_refused_in_one_line(tmp_path, text, name, message):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(NearpeakError, match=message) as error:
        served_points(path, "h100_sxm")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("text", "message"), [
    ("title = 3", "title = 3 is no str"), ('title = "x"\nspeed = 2', "speed is no key of an engine"),
    ('title = "x"\nhost_step_s = -1\nhost_sequence_s = 0\nhost_call_s = 0\nsource = ""', "must be at least 0"),
    ('title = "x"', "host_step_s, host_sequence_s, host_call_s, source is missing"),
])  # fmt: skip
def test_files_of_engines_are_checked(tmp_path, text, message):
    path = tmp_path / "engine.toml"
    more = "" if "host_step_s" in text or "is missing" in message else (
        "\nhost_step_s = 0\nhost_sequence_s = 0\nhost_call_s = 0\nsource = \"\""
    )  # fmt: skip
    path.write_text(text + more, "utf-8")
    with pytest.raises(NearpeakError, match=message):
        engine_costs(str(path))
