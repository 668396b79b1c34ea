"""`nearpeak plan federated`: the golden fleet, predicted clients, changes, and one-line errors."""

import json

import pytest
from typer.testing import CliRunner

from nearpeak.api.questions import case
from nearpeak.cli import application
from nearpeak.core.work.workload import Buffer, Call, Use, Workload
from nearpeak.errors import NearpeakError
from nearpeak.frontends.files.saved_workload import save_text

STATED = """
epochs = 2
[[client]]
name = "fast"
board = "any"
samples = 600
sample_time = "2 ms"
down = "100 Mbit/s"
up = "100 Mbit/s"
power = "15 W"
idle = "5 W"
[[client]]
name = "middle"
board = "any"
samples = 400
sample_time = "5 ms"
down = "50 Mbit/s"
up = "50 Mbit/s"
power = "10 W"
idle = "3 W"
[[client]]
name = "slow"
board = "any"
samples = 200
sample_time = "20 ms"
down = "20 Mbit/s"
up = "20 Mbit/s"
power = "5 W"
idle = "2 W"
"""
BUFFERS = ((4_194_304, "weight"), (65_536, "input"), (65_536, "activation"))
BOARDS = """
[[client]]
board = "jetson_orin_nano"
mode = "15W"
count = 3
samples = 64
down = "50 Mbit/s"
up = "20 Mbit/s"
[[client]]
board = "jetson_agx_orin"
samples = 64
down = "90 Mbit/s"
up = "90 Mbit/s"
"""


def run(tmp_path, fleet, *words):
    file = tmp_path / "fleet.toml"
    file.write_text(fleet, "utf-8")
    return CliRunner().invoke(application(), ["plan", "federated", str(file), *words])


def answer_of(tmp_path, fleet, *words):
    done = run(tmp_path, fleet, *words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def saved_step(tmp_path, step="train", batch="16"):
    """A training step of two products, as `nearpeak capture --step train -o` saves one."""
    calls = tuple(
        Call(
            case=case("gemm", m=16, n=1024, k=1024, dtype="fp32"),
            operator="mm",
            phase=phase,
            reads=(Use(buffer=0, bytes=4_194_304), Use(buffer=1, bytes=65_536)),
            writes=(Use(buffer=2, bytes=65_536),),
        )
        for phase in ("forward", "backward", "backward")
    )
    workload = Workload(
        name="small", step=step, calls=calls, origin={"batch": batch},
        buffers=tuple(Buffer(bytes=size, kind=kind) for size, kind in BUFFERS),
    )  # fmt: skip
    file = tmp_path / "small.json"
    file.write_text(save_text(workload), "utf-8")
    return str(file)


def test_the_golden_fleet_is_exact_and_policies_stand_side_by_side(tmp_path):
    words = ("--model-bytes", "46.758 MB", "--rounds", "4", "--against", "deadline=20s", "--against", "fastest")
    found = answer_of(tmp_path, STATED, *words)
    usual, deadline, fastest = found["outcomes"]
    assert round(usual["round_mean_s"], 3) == 45.406
    assert round(usual["round_j"], 2) == 530.06
    assert usual["round_bytes"] == 6 * 46_758_000
    assert usual["stragglers"] == [{"group": "slow", "cause": "link", "share_ratio": 1.0}]
    assert round(deadline["round_mean_s"], 3) == 18.963
    assert deadline["late_count"] == 4
    assert fastest["paired_ratio"] == [1.0, 1.0, 1.0]
    assert usual["jain_ratio"] == 1.0
    assert deadline["jain_ratio"] == pytest.approx(2 / 3)


def test_times_come_from_model_board_and_mode(tmp_path):
    step = saved_step(tmp_path)
    found = answer_of(tmp_path, BOARDS, "--model", step, "--rounds", "3", "--what-if", "mode", "--what-if", "link")
    assert found["model_bytes"] == 4_194_304
    nano, orin = found["outcomes"][0]["groups"]
    assert nano["compute_s"] > orin["compute_s"] > 0
    assert "jetson_orin_nano:15W" in nano["source"]
    faster = next(row for row in found["changes"] if row["words"] == "jetson_orin_nano:15W in mode 25W")
    slower = next(row for row in found["changes"] if row["words"] == "jetson_orin_nano:15W in mode 7W")
    assert faster["round_mean_s"] < found["outcomes"][0]["round_mean_s"] < slower["round_mean_s"]
    assert found["cheapest"].endswith("faster links")


def test_a_saved_step_is_shared_by_its_own_batch_and_must_train(tmp_path):
    times = [
        answer_of(tmp_path, BOARDS, "--model", saved_step(tmp_path, batch=batch), "--rounds", "1")["outcomes"][0][
            "groups"
        ]
        for batch in ("16", "32")
    ]
    assert times[0][0]["compute_s"] == pytest.approx(2 * times[1][0]["compute_s"])
    done = run(tmp_path, BOARDS, "--model", saved_step(tmp_path, step="forward"))
    assert "is a forward step" in str(done.exception)


def test_the_text_is_short_and_leads_with_the_answer(tmp_path):
    page = tmp_path / "fleet.html"
    words = ("--model-bytes", "46.758 MB", "--rounds", "3", "--against", "fastest", "--what-if", "link")
    done = run(tmp_path, STATED, *words, "--text", "--html", str(page))
    assert done.exit_code == 0, done.output
    assert "45.4 s per round" in done.stdout
    assert "slow ends 100 % of the rounds by slower links" in " ".join(done.stdout.split())
    assert len(done.stdout.splitlines()) <= 25
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "Stragglers" in run(tmp_path, STATED, *words, "--text", "--why").stdout


@pytest.mark.parametrize("words", [("--server", "async"), ("--server", "buffered=2")])
def test_servers_that_do_not_wait_are_faster_and_stale(tmp_path, words):
    found = answer_of(tmp_path, STATED, "--model-bytes", "46.758 MB", "--rounds", "20", *words)["outcomes"][0]
    assert found["round_mean_s"] < 45
    assert found["staleness_count"] > 0
    assert found["jain_ratio"] < 1


@pytest.mark.parametrize(("fleet", "words", "message"), [
    (STATED, (), "bytes of the model are unknown"),
    (STATED, ("--model-bytes", "big"), "--model-bytes"),
    (STATED, ("--model-bytes", "1 MB", "--policy", "slow"), "is not one of random"),
    (STATED, ("--model-bytes", "1 MB", "--server", "lazy"), "is not one of sync"),
    (STATED, ("--model-bytes", "1 MB", "--server", "async", "--policy", "omnifedge"), "all clients at once"),
    (STATED, ("--model-bytes", "1 MB", "--what-if", "colour"), "is not one of mode"),
    (STATED, ("--model-bytes", "1 MB", "--rounds", "99999999"), "are simulated"),
    (BOARDS, ("--model-bytes", "1 MB"), "has no sample_time"),
    (BOARDS, ("--model", "lost.json"), "lost.json"),
    ("epochs = 1", ("--model-bytes", "1 MB"), "client is missing"),
    ("x = ", ("--model-bytes", "1 MB"), "fleet.toml"),
    (STATED.replace("600", "0").replace("400", "0").replace("200", "0"), ("--model-bytes", "1 MB"), "with samples"),
])  # fmt: skip
def test_wrong_input_is_one_line(tmp_path, fleet, words, message):
    done = run(tmp_path, fleet, *words)
    assert done.exit_code != 0
    assert isinstance(done.exception, (NearpeakError, SystemExit))
    said = f"{done.output}{done.exception}"
    assert message in said
    assert "Traceback" not in said


def test_a_mode_that_the_board_lacks_is_refused_with_those_it_has(tmp_path):
    done = run(tmp_path, BOARDS.replace("15W", "16W"), "--model", saved_step(tmp_path))
    assert "no partition or power mode '16W'" in str(done.exception)
    assert "25W" in str(done.exception)


def test_a_small_model_is_trained_along_the_rounds(tmp_path):
    words = ("--model-bytes", "46.758 MB", "--rounds", "12", "--train", "--goal", "40%", "--against", "fastest")
    curve = answer_of(tmp_path, STATED, *words)["outcomes"][0]["curve"]
    assert len(curve["accuracy_ratio"]) == 12
    assert curve["goal_s"] == pytest.approx(curve["goal_round_count"] * 45.4064)
    assert "to goal" in run(tmp_path, STATED, *words, "--text").stdout
    assert "share in per cent" in str(run(tmp_path, STATED, *words, "--goal", "2").exception)
