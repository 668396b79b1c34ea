"""Plans over power modes: bounds, profiles, limits, scopes, and the command."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from nearpeak.api.edge.edge_plan import EdgeJob, plan_edge
from nearpeak.api.questions import analyze, capture, case
from nearpeak.cli import application
from nearpeak.core.edge.board_mode import ModeSample
from nearpeak.core.edge.scoped_power import PowerScope, ScopedPower
from nearpeak.core.work.engine_choice import engine_of
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.exchange.mode_samples import read_mode_samples
from nearpeak.frontends.files.saved_workload import save_text
from nearpeak.frontends.inference_engine.engine_lowering import lowered
from nearpeak.reports.systems import edge_plan_report as report

BOARD, WALL, RAIL = "jetson_orin_nano", PowerScope.WALL, PowerScope.VDD_IN


@pytest.fixture(scope="module")
def step():
    conv = case("conv", batch=1, in_channels=64, out_channels=64, h=80, w=80, kh=3, kw=3, ph=1, pw=1, dtype="fp16")
    product = case("gemm", m=1, n=1000, k=2048, dtype="fp16")
    calls = tuple(Call(case=one, operator=one.op, phase="forward") for one in (conv, conv, product))
    return lowered(Workload(name="net", step="forward", calls=calls), engine_of("tensorrt"))


def sample(mode, time_s, power_w, scope=RAIL, model=""):
    return ModeSample(mode=mode, time_s=time_s, power=ScopedPower(power_w=power_w, scope=scope), model=model)


def test_no_time_is_below_its_bound_and_slower_modes_have_higher_bounds(step):
    planned = plan_edge(step, BOARD, WALL)
    assert all(row.bound_s <= row.time_s.low <= row.time_s.value <= row.time_s.high for row in planned.rows)
    bounds = {row.mode.name: row.bound_s for row in planned.rows}
    assert bounds["full"] <= bounds["25W"] <= bounds["15W"] <= bounds["7W"]


def test_a_time_raised_to_its_bound_stays_within_its_interval(step, monkeypatch):
    monkeypatch.setattr("nearpeak.prediction.engine.engine_time.engine_time_s", lambda *_, **__: 1e-9)
    planned = plan_edge(step, BOARD, WALL)
    assert all(row.time_s.low == row.time_s.value == row.time_s.high == row.bound_s for row in planned.rows)


def test_an_analysis_lets_tensorrt_round_to_tf32_as_the_plan_does():
    product = case("gemm", m=1024, n=1024, k=1024, dtype="fp32")
    plain = Workload(name="net", step="forward", calls=(Call(case=product, operator="gemm", phase="forward"),))
    engine = lowered(plain, engine_of("tensorrt"))
    full = next(row for row in plan_edge(engine, BOARD, WALL).rows if row.mode.name == "full")
    assert analyze(engine, BOARD).targets[0].bound_s == pytest.approx(full.bound_s)
    assert analyze(plain, BOARD).targets[0].bound_s > full.bound_s


def test_a_board_without_measurement_says_so(step):
    assert any("No measurement of this board" in note for note in plan_edge(step, BOARD, WALL).notes)


def test_measured_modes_are_kept_and_move_the_others(step):
    prior = plan_edge(step, BOARD, RAIL)
    slower = {row.mode.name: 1.4 * row.time_s.value for row in prior.rows}
    samples = [sample(name, slower[name], 9.0 + place) for place, name in enumerate(("7W", "15W", "25W"))]
    planned = plan_edge(step, BOARD, RAIL, samples)
    assert planned.row("15W").time_s.value == pytest.approx(slower["15W"])
    assert planned.row("full").time_s.value == pytest.approx(slower["full"], rel=1e-6)
    assert planned.row("25W").is_measured
    assert not planned.row("full").is_measured


def test_a_reference_model_gives_the_shape_over_modes(step):
    shape = {"full": 1.0, "7W": 5.0, "15W": 2.0, "25W": 1.2}
    reference = [sample(mode, 0.01 * factor, 10.0, model="other") for mode, factor in shape.items()]
    planned = plan_edge(step, BOARD, RAIL, [*reference, sample("full", 0.002, 12.0)])
    ratios = {mode: planned.row(mode).time_s.value / 0.002 for mode in shape}
    assert ratios == pytest.approx(shape, rel=1e-6)


def test_powers_of_another_scope_are_refused(step):
    with pytest.raises(SpecError, match="state all powers for one scope"):
        plan_edge(step, BOARD, WALL, [sample("15W", 0.01, 9.0)])


def test_limits_leave_modes_out_and_may_leave_none(step):
    planned = plan_edge(step, BOARD, WALL, job=EdgeJob(minimise="time", power_w=11.0))
    assert all(row.power_w.value <= 11.0 for row in planned.rows if row.meets)
    assert planned.row(planned.chosen).meets
    none = plan_edge(step, BOARD, WALL, job=EdgeJob(deadline_s=1e-9))
    assert none.chosen == ""
    assert "No mode keeps the limits" in report.document_of(none).lead


def test_headline_has_rate_power_and_joules_per_item(step):
    planned = plan_edge(step, BOARD, WALL, job=EdgeJob(item_count=4, item="image"))
    row, raw = planned.row(planned.chosen), json.loads(report.to_json(planned))
    assert raw["joules_per_item"] == pytest.approx(row.energy_j.value / 4)
    assert raw["items_per_s"] == pytest.approx(4 / row.time_s.value)
    lead = report.document_of(planned).lead
    assert "J per image" in lead
    assert "images/s" in lead


def test_rest_of_the_period_counts_at_idle_power(step):
    busy = plan_edge(step, BOARD, WALL)
    rested = plan_edge(step, BOARD, WALL, job=EdgeJob(idle_w=3.0, period_s=0.1))
    for row in busy.rows:
        added = 3.0 * (0.1 - row.time_s.value)
        assert rested.row(row.mode.name).energy_j.value == pytest.approx(row.energy_j.value + added)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"mode": "99W", "time": "1 ms"}', "has no mode '99W'; there are 7W, 15W"),
        ('{"mode": "15W", "time": "1 ms", "power": "9 W"}', "without scope"),
        ('{"mode": "15W", "time": "9 W"}', "9 W"),
        ('{"mode": "15W", "time": "-1 ms"}', ":1"),
        ('{"mode": "15W", "time": "1 ms", "watts": 3}', "'watts' is not known"),
        ("[1, 2]", "no JSON object"),
        ("", "holds 0 measurements"),
    ],
)
def test_malformed_profiles_are_one_line(tmp_path, line, words):
    path = tmp_path / "p.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_mode_samples(path, ["7W", "15W"])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_answers_a_saved_workload(step, tmp_path):
    path, profile = tmp_path / "net.json", tmp_path / "p.jsonl"
    path.write_text(save_text(replace(step, origin={})), encoding="utf-8")
    profile.write_text('{"mode": "15W", "time": "1 ms", "power": "9.1 W", "scope": "vdd_in"}\n', encoding="utf-8")
    words = ["plan", "edge", str(path), "--target", BOARD, "--engine", "tensorrt:int8", "--profile", str(profile),
             "--within", "30fps", "--power", "15W", "--measure-next", "2", "--json"]  # fmt: skip
    answered = CliRunner().invoke(application(), words)
    assert answered.exit_code == 0, answered.output
    raw = json.loads(answered.stdout.splitlines()[-1])
    assert raw["scope"] == "vdd_in"
    assert raw["engine"] == "tensorrt:int8"
    assert len(raw["next_modes"]) == 2


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_without_measurements_times_and_intervals_are_those_of_analyze(mode):
    step = capture("resnet-50")
    planned = plan_edge(step, "jetson_agx_orin", WALL, job=EdgeJob(execution=mode))
    for row in planned.rows:
        answer = analyze(step, row.mode.target, execution=mode).targets[0]
        expected = next(execution for execution in answer.executions if execution.mode == mode)
        assert (row.time_s.value, row.time_s.low, row.time_s.high) == pytest.approx(
            (expected.time_s, expected.low_s, expected.high_s), rel=1e-6
        )
    assert planned.execution == mode
    assert f"operators one by one, {mode}," in report.document_of(planned).subject
