"""Plans of inference servers: closed forms, the cheapest setting, streams with deadlines, and one-line errors."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from nearpeak.api.serving import inference_service
from nearpeak.api.serving.inference_service import ServerQuestion, plan_server
from nearpeak.api.serving.server_words import batch_times_of
from nearpeak.cli import application
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.reports.systems.inference_server_report import document_of
from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes, serve_batches
from nearpeak.systems.serving.inference_server.model_config import (
    MOST_BATCH,
    EnsembleStep,
    ModelConfig,
    model_config_of,
    read_model_config,
    with_batching,
)
from nearpeak.systems.serving.inference_server.shared_device import Tenant, serve_tenants

CONFIG = """name: "net"
max_batch_size: 16
dynamic_batching { max_queue_delay_microseconds: 1000 }
instance_group [ { count: 1 kind: KIND_GPU } ]
"""
ENSEMBLE = """name: "both"
max_batch_size: 16
ensemble_scheduling { step [ { model_name: "net" }, { model_name: "second" } ] }
"""


def plan(tmp_path, *words, text=CONFIG):
    path = tmp_path / "config.pbtxt"
    path.write_text(text, "utf-8")
    done = CliRunner().invoke(application(), ["plan", "inference-server", str(path), *words])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def few_requests(monkeypatch):
    monkeypatch.setattr(inference_service, "REQUESTS", 500)


def test_one_request_at_a_time_waits_as_an_m_d_1_queue():
    """At half of its rate, a server without batches keeps requests for 1.5 service times in the mean."""
    config = ModelConfig(name="net", most_batch_count=1)
    times = BatchTimes(batch_count=(1,), seconds_s=(1e-3,))
    arrivals = np.cumsum(np.random.default_rng(1).exponential(2e-3, 20_000))
    (served,) = serve_tenants([Tenant(config=config, times=times, arrival_s=arrivals)], 0.0)
    assert served.latency_s.mean() == pytest.approx(1.5e-3, rel=0.05)
    alone = serve_batches(arrivals, config, times)
    assert served.end_s.tolist() == pytest.approx(alone.end_s.tolist())


def test_models_that_take_turns_wait_for_each_other():
    times = BatchTimes(batch_count=(1, 8), seconds_s=(1e-3, 4e-3))
    arrivals = np.cumsum(np.random.default_rng(2).exponential(3e-3, 2000))
    tenants = [Tenant(config=ModelConfig(name=name, most_batch_count=8, has_dynamic_batching=True), times=times,
                      arrival_s=arrivals) for name in "ab"]  # fmt: skip
    apart, together = (serve_tenants(tenants, ratio) for ratio in (0.0, 1.0))
    assert together[1].latency_s.mean() > 1.3 * apart[1].latency_s.mean()
    assert apart[0].end_s.tolist() == serve_batches(arrivals, tenants[0].config, times).end_s.tolist()


def test_the_cheapest_setting_is_written_and_latency_grows_with_load(tmp_path):
    out = tmp_path / "best.pbtxt"
    found = json.loads(plan(tmp_path, "--times", "1=2ms,16=8ms", "--rate", "1200/s", "--slo", "p99=20ms", "--out",
                            str(out), "--json"))  # fmt: skip
    tails = [load["p99_s"] for load in found["loads"]]
    assert tails == sorted(tails)
    assert found["capacity_per_s"] == pytest.approx(16 / 8e-3)
    assert found["cheapest"]["device_count"] == found["cheapest"]["instance_count"] == 1
    assert found["cheapest_p99_s"] <= 0.02
    assert 1200 < found["highest_per_s"] < 2000
    assert read_model_config(out).most_batch_count == found["cheapest"]["most_batch_count"]


def test_a_rate_beyond_the_named_device_is_given_more_of_them(monkeypatch):
    """Four devices of 500/s each carry 1,500/s; the configuration that is written names them, the stated one first."""
    few_requests(monkeypatch)
    text = CONFIG.replace("max_batch_size: 16", "max_batch_size: 1").replace("KIND_GPU", "KIND_GPU gpus: [ 7 ]")
    times = BatchTimes(batch_count=(1,), seconds_s=(2e-3,))
    planned = plan_server(ServerQuestion(configs=(model_config_of(text),), times={"net": times}, rate_per_s=1500.0,
                                         limit_s=20e-3))  # fmt: skip
    assert planned.setting.device_count == 1
    assert planned.cheapest.device_count == 4
    assert model_config_of(planned.config).device_numbers == (0, 1, 2, 7)


@pytest.mark.parametrize(("count", "numbers"), [(0, (2, 3)), (1, (2,)), (2, (2, 3)), (4, (0, 1, 2, 3))])
def test_named_devices_are_kept(count, numbers):
    config = ModelConfig(name="net", most_batch_count=1, device_numbers=(2, 3))
    assert with_batching(config, instances=1, most_batch=1, queue_delay_s=0.0,
                         device_count=count).device_numbers == numbers  # fmt: skip


def test_times_of_the_largest_batch_are_read():
    times = batch_times_of([f"{MOST_BATCH}=2ms"], ["net"], lambda _: 0.0)
    assert times["net"].batch_count == (MOST_BATCH,)
    with pytest.raises(SpecError, match="with batches of 1 to 1,000,000"):
        batch_times_of([f"{MOST_BATCH + 1}=2ms"], ["net"], lambda _: 0.0)


def test_streams_miss_deadlines_that_are_shorter_than_a_batch(tmp_path):
    text = plan(tmp_path, "--times", "1=5ms,16=20ms", "--stream", "front=30/s:50ms", "--stream", "rear=30/s:4ms",
                "--text")  # fmt: skip
    assert "1 of 2 miss deadlines" in text
    assert "100.0 %" in text


def test_larger_batches_than_known_cost_in_proportion_where_the_known_times_fall():
    times = BatchTimes(batch_count=(1, 8), seconds_s=(2e-3, 1e-3))
    assert times.by_size(16)[16] == pytest.approx(2e-3)


TIMES = BatchTimes(batch_count=(1, 16), seconds_s=(2e-3, 8e-3))


def both(*steps):
    """Return an ensemble of steps: model, tensor that it takes, tensor that it gives."""
    made = [EnsembleStep(model=model, inputs=(("in", taken),), outputs=(("out", given),))
            for model, taken, given in steps]  # fmt: skip
    return ModelConfig(name="both", most_batch_count=16, steps=tuple(made))


def test_steps_of_an_ensemble_hinder_each_other_on_one_device(monkeypatch):
    """Two equal steps in turns carry half of what one does; of MIG parts or on the host's processors all of it."""
    few_requests(monkeypatch)
    net, ensemble = model_config_of(CONFIG), both(("net", "a", "b"), ("second", "b", "c"))

    def planned(ratio, kind="KIND_GPU"):
        second = model_config_of(CONFIG.replace("net", "second").replace("KIND_GPU", kind))
        return plan_server(ServerQuestion(configs=(ensemble, net, second), times={"net": TIMES, "second": TIMES},
                                          rate_per_s=500.0, sharing_ratio=ratio))  # fmt: skip

    turns, parts, host = planned(1.0), planned(0.0), planned(1.0, "KIND_CPU")
    assert turns.capacity_per_s == pytest.approx(1000)
    assert parts.capacity_per_s == host.capacity_per_s == pytest.approx(2000)
    assert turns.asked.p99_s > 1.2 * parts.asked.p99_s
    assert parts.loads[0].busy_ratio < 0.6


def test_instances_on_the_host_are_that_many_workers(monkeypatch):
    """Two of 16 items in 20 ms carry 1,600/s, at 55 % of which nobody waits long; no device is counted or shared."""
    few_requests(monkeypatch)
    text = CONFIG.replace("count: 1 kind: KIND_GPU", "count: 2 kind: KIND_CPU gpus: [ 0, 1, 2 ]")
    times = BatchTimes(batch_count=(1, 16), seconds_s=(5e-3, 20e-3))
    question = ServerQuestion(configs=(model_config_of(text),), times={"net": times})
    planned = plan_server(question)
    assert planned.capacity_per_s == pytest.approx(1600)
    middle = planned.loads[inference_service.SHARES.index(0.55)]
    assert middle.p50_s < 40e-3
    assert middle.busy_ratio < 1
    assert planned.sharing_ratio == planned.setting.device_count == 0
    assert "2 instances on the host, batches to 16, delay 1 ms; instances on the host" in document_of(planned).subject
    with pytest.raises(SpecError, match=r"--devices: instances of .* run on the host"):
        plan_server(ServerQuestion(configs=question.configs, times=question.times, device_count=4))


@pytest.mark.parametrize(("steps", "words"), [
    ((("net", "a", "b"), ("net", "b", "c")), "2 of its steps run the model 'net', whose queue"),
    ((("net", "a", "a"),), "in a circle, so that no request can begin: 'net' for 'a' of 'net'"),
    ((("net", "c", "b"), ("second", "b", "c")), ": 'net' for 'c' of 'second', 'second' for 'b' of 'net'"),
])  # fmt: skip
def test_an_ensemble_that_no_request_passes_is_refused(steps, words):
    configs = [model_config_of(CONFIG.replace("net", name)) for name in ("net", "second")]
    question = ServerQuestion(configs=(both(*steps), *configs), times={"net": TIMES, "second": TIMES})
    with pytest.raises(SpecError) as error:
        plan_server(question)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_branches_of_an_ensemble_run_beside_each_other():
    """A request that waits for two branches ends after the longer one; in a chain after the sum."""
    times = BatchTimes(batch_count=(1,), seconds_s=(1e-3,))
    arrivals = np.arange(5) * 1.0
    steps = [Tenant(config=ModelConfig(name=name, most_batch_count=1), times=times, arrival_s=arrivals, after=after)
             for name, after in (("a", ()), ("b", ()), ("c", (0, 1)))]  # fmt: skip
    served = serve_tenants(steps, 0.0)
    assert served[2].end_s - arrivals == pytest.approx(np.full(5, 2e-3))
    assert serve_tenants(steps, 1.0)[2].end_s - arrivals == pytest.approx(np.full(5, 3e-3))


def test_steps_of_an_ensemble_follow_each_other(tmp_path):
    others = []
    for name in ("net", "second"):
        others.append(tmp_path / f"{name}.pbtxt")
        others[-1].write_text(CONFIG.replace("net", name), "utf-8")
    words = (*map(str, others), "--times", "net:1=1ms,16=2ms", "--times", "second:1=3ms,16=6ms", "--rate", "100/s")
    found = json.loads(plan(tmp_path, *words, "--json", text=ENSEMBLE))
    assert [step["name"] for step in found["steps"]] == ["net", "second"]
    assert found["asked"]["p50_s"] >= 4e-3


@pytest.mark.parametrize(("words", "message"), [
    (("--times", "1=2ms", "--rate", "10/s", "--slo", "p99=1ms"), "no configuration meets p99 <= 1 ms"),
    (("--times", "x"), "is not of the form"),
    (("--times", f"{'9' * 400}=2ms"), "… (406 characters): is not of the form"),
    (("--times", "1=9e99s"), "must be above 0 and at most 3,600 s"),
    (("--times", "1=2ms", "--rate", f"{'9' * 400}/s"), "… (404 characters): is not a number of requests"),
    (("--times", "1=step.json"), "name the device, --on TARGET"),
    (("--times", "other:1=2ms"), "names the model 'other'"),
    (("--times", "1=2ms", "--stream", "cam=30"), "NAME=RATE/s"),
    (("--times", "1=2ms", "--stream", "cam@other=30/s"), "asks the model 'other'"),
    (("--times", "1=2ms", "--share", "half"), "is not turns, mps"),
    (("--times", "1=2ms", "--slo", "p50=1ms"), "is not p99=TIME"),
    (("--times", "1=2ms", "--items", "99"), "exceeds max_batch_size 16"),
])  # fmt: skip
def test_wrong_words_are_refused_in_one_line(tmp_path, words, message):
    with pytest.raises(NearpeakError) as error:
        plan(tmp_path, *words)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_slowdown_that_nobody_stated_is_said_to_be_assumed(tmp_path):
    words = ("--times", "1=2ms,16=8ms", "--rate", "100/s", "--share")
    silent, stated = (json.loads(plan(tmp_path, *words, share, "--json")) for share in ("mps", "mps:0.3"))
    assert (silent["sharing_ratio"], silent["is_sharing_assumed"]) == (0.5, True)
    assert (stated["sharing_ratio"], stated["is_sharing_assumed"]) == (0.3, False)
    text = " ".join(plan(tmp_path, *words, "mps", "--text").split())
    assert "slowdown by a busy neighbour under MPS, 50 %, is assumed" in text
    assert "is assumed" not in plan(tmp_path, *words, "mps:0.3", "--text")


def test_the_answer_is_the_first_line(tmp_path):
    assert plan(tmp_path, "--times", "1=2ms,16=8ms", "--rate", "100/s", "--text").startswith("At most ")
