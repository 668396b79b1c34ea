"""`nearpeak plan serve`: a load served, the highest rate within limits, and one-line errors."""

import json

import pytest
from typer.testing import CliRunner

from nearpeak.api.serving import service_question
from nearpeak.base.compilation import Kernel
from nearpeak.cli import application
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.farm.kinds import KINDS

SMALL = "chunk=512,max_batch=16"
"""Settings with few knots in the table of step times."""
SERVE = ("plan", "serve", "llama-3.2-1b", "--on", "2xh100_sxm", "--input", "256", "--output", "32",
         "--settings", SMALL)  # fmt: skip


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Runs of a tenth of the requests of users; so few need no compiler, though those of all runs together would."""
    monkeypatch.setattr(service_question, "REQUEST_COUNTS", (60, 2_000))
    monkeypatch.setattr(service_question, "LOAD_S", 4.0)
    monkeypatch.setattr(Kernel, "is_plain_for", lambda _kernel, _count: True)


def answer_of(*words):
    done = CliRunner().invoke(application(), [*SERVE, *words, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_a_rate_is_served_and_every_layout_of_the_devices_compared():
    found = answer_of("--rate", "20/s", "--price", "2.5")
    assert {option["layout"]["tp"] for option in found["options"]} == {1, 2}
    best = found["best"]
    assert best["replica_count"] * best["layout"]["tp"] == 2
    for name in ("ttft", "tpot", "latency"):
        values = best["latencies_s"][name]
        assert 0 < values["p50"] <= values["p90"] <= values["p99"]
    assert best["usd_per_million_tokens"] == pytest.approx(2 * 2.5 / (3600 * best["output_tokens_per_s"]) * 1e6)


def test_more_clients_raise_throughput_and_latency():
    few, many = (answer_of("--concurrency", str(count), "--parallel", "tp=1")["best"] for count in (2, 16))
    assert many["output_tokens_per_s"] > few["output_tokens_per_s"]
    assert many["latencies_s"]["tpot"]["mean"] > few["latencies_s"]["tpot"]["mean"]


def test_a_trace_is_served_as_it_arrives(tmp_path):
    rows = [f"{0.1 * place},{100 + place},{20}" for place in range(60)]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]), "utf-8")
    found = answer_of("--trace", str(trace), "--parallel", "tp=2", "--weights", "fp8", "--kv-cache", "fp8")
    assert found["load"].startswith("60 requests of a trace")
    assert found["best"]["layout"]["weight_format"] == "fp8_tensor"


def test_the_terminal_says_rate_tails_cost_and_what_binds(tmp_path):
    page = tmp_path / "serve.html"
    words = ("--concurrency", "4", "--slo", "ttft=2s,tpot=1us", "--price", "2", "--text", "--html", str(page))
    done = CliRunner().invoke(application(), [*SERVE, *words])
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "requests/s" in text
    assert "of 1 µs" in text
    assert "is missed" in text
    assert "limited by" in text
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_two_services_are_compared(tmp_path):
    before = tmp_path / "a.json"
    before.write_text(json.dumps(answer_of("--concurrency", "4", "--parallel", "tp=1")), "utf-8")
    words = ("--concurrency", "4", "--parallel", "tp=2", "--against", str(before), "--text")
    done = CliRunner().invoke(application(), [*SERVE, *words])
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "% requests per second; a decode step takes" in text
    assert "collective 0 s" in text  # what came with two devices


@pytest.mark.parametrize(("words", "message"), [
    ((), "give a load"),
    (("--rate", "fast"), "is not a number of requests per second"),
    (("--rate", "1/s", "--slo", "ttft=soon"), "is not a time"),
    (("--rate", "1/s", "--slo", "speed=1s"), "is not one of ttft=TIME"),
    (("--rate", "1/s", "--engine", "vlm"), "vllm_v1"),
    (("--rate", "1/s", "--parallel", "tp=x"), "tp=NUMBER"),
    (("--rate", "1/s", "--parallel", "tp=4"), "do not make up 2"),
    (("--rate", "1/s", "--kv-cache", "int1"), "is not one of bf16"),
    (("--rate", "1/s", "--input", "200000"), "the context of llama-3.2-1b holds 131,072"),
    (("--rate", "1/s", "--weights", "fp7"), "fp7"),
])  # fmt: skip
def test_wrong_words_are_refused_in_one_line(words, message):
    done = CliRunner().invoke(application(), [*SERVE, *words])
    assert isinstance(done.exception, NearpeakError), (done.output, done.exception)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_model_beyond_the_memory_of_all_devices_is_refused_with_what_it_needs():
    done = CliRunner().invoke(application(), ["plan", "serve", "llama-3-70b", "--on", "1xl4", "--rate", "1/s"])
    assert isinstance(done.exception, NearpeakError)
    assert "cannot be served" in str(done.exception)


def test_the_farm_serves_a_load():
    payload = {"model": "llama-3.2-1b", "on": "1xh100_sxm", "concurrency": 4, "input_tokens": 64, "output_tokens": 16,
               "tp": 1}  # fmt: skip
    KINDS["serve"].check(payload)
    assert KINDS["serve"].run(payload)["best"]["output_tokens_per_s"] > 0
    with pytest.raises(SpecError, match="no load"):
        KINDS["serve"].check({"model": "llama-3.2-1b", "on": "1xh100_sxm"})


def test_a_wrong_device_is_named_before_its_price(tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text('[h100_sxm]\nusd_per_hour = 2.5\nsource = "list"\ndate = "2026-01-05"\n', "utf-8")
    words = ("plan", "serve", "llama-3.2-1b", "--on", "h100_sxmm", "--rate", "2/s", "--price", str(prices))
    done = CliRunner().invoke(application(), words)
    assert "did you mean h100_sxm" in str(done.exception)


def test_two_loads_contradict_each_other():
    done = CliRunner().invoke(application(), [*SERVE, "--rate", "2/s", "--concurrency", "4"])
    assert str(done.exception) == "--rate and --concurrency: each states a load; give one"


def test_requests_of_one_token_have_no_time_per_token():
    words = ("--rate", "20/s", "--output", "1", "--parallel", "tp=1", "--slo", "tpot=50ms", "--text")
    done = CliRunner().invoke(application(), [*SERVE, *words])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "p99 time per output token –" in " ".join(done.stdout.split())


def test_a_given_rate_is_not_given_an_interval_beyond_its_draws():
    best = answer_of("--rate", "20/s", "--parallel", "tp=1")["best"]
    assert best["low_per_s"] <= best["rate_per_s"] <= best["high_per_s"] < 1.5 * best["low_per_s"]
    assert best["output_tokens_per_s"] == pytest.approx(32 * best["rate_per_s"])


def test_one_request_is_served_and_devices_of_many_nodes_need_no_network(tmp_path):
    trace = tmp_path / "one.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,100,20\n", "utf-8")
    words = ("plan", "serve", "llama-3.2-1b", "--on", "64xh100_sxm", "--trace", str(trace), "--parallel", "tp=8",
             "--settings", SMALL)  # fmt: skip
    done = CliRunner().invoke(application(), [*words, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert json.loads(done.stdout)["load"] == "1 request of a trace, all at once"


def test_fp8_weights_are_refused_where_no_tensor_unit_has_fp8():
    words = ("plan", "serve", "llama-3.2-1b", "--on", "a100_sxm_80gb", "--rate", "2/s", "--weights", "fp8")
    assert "no document states a rate of FP8 products" in str(CliRunner().invoke(application(), words).exception)


def test_clients_are_spread_over_all_replicas_and_rate_and_latency_obey_little():
    one = answer_of("--concurrency", "4", "--parallel", "tp=2")["best"]
    assert one["rate_per_s"] == pytest.approx(4 / one["latencies_s"]["latency"]["mean"])
    two = answer_of("--concurrency", "8", "--parallel", "tp=1")["best"]
    assert two["replica_count"] == 2
    assert two["rate_per_s"] == pytest.approx(8 / two["latencies_s"]["latency"]["mean"])


def test_a_comparison_is_words_and_has_no_json(tmp_path):
    before = tmp_path / "before.json"
    before.write_text("{}", "utf-8")
    done = CliRunner().invoke(application(), [*SERVE, "--rate", "2/s", "--against", str(before), "--json"])
    assert "--json and --against" in str(done.exception)


def test_an_encoder_is_not_served():
    done = CliRunner().invoke(application(), ["plan", "serve", "bert-base", "--on", "h100_sxm", "--rate", "5/s"])
    assert "bert-base is an encoder, which generates no tokens" in str(done.exception)


def test_the_step_shown_is_the_step_that_a_token_takes():
    found = answer_of("--concurrency", "16", "--parallel", "tp=2")
    assert sum(found["parts_s"].values()) == pytest.approx(found["best"]["latencies_s"]["itl"]["p50"], rel=0.05)


def test_settings_change_what_is_reached():
    words = ("--rate", "10/s", "--parallel", "tp=1", "--settings")
    plain = answer_of(*words, SMALL)["best"]
    drafted = answer_of(*words, f"{SMALL},speculation=ngram:0.8:3")["best"]
    assert drafted["latencies_s"]["tpot"]["mean"] < 0.7 * plain["latencies_s"]["tpot"]["mean"]
    shared = answer_of(*words, f"{SMALL},prefix_cache=192,router=prefix,priority=0.3,lora=2:8:5ms")["best"]
    assert (
        (1 - 16 / 60) * 192 / 256 <= shared["reused_ratio"] <= (1 - 8 / 60) * 192 / 256
    )  # adapters miss once a replica
    assert set(shared["class_latencies_s"]) == {"urgent", "others"}


def test_pools_of_prompts_and_decoding():
    words = ("--rate", "10/s", "--disaggregate", "prefill=1xTP1,decode=1xTP1", "--settings", SMALL)
    found = answer_of(*words)
    best = found["best"]
    assert best["decode_replica_count"] == 1
    assert "pool" in best["limiter"]
    assert 100 < found["power_w"] < 700
    assert found["energy_j_per_token"] == pytest.approx(2 * found["power_w"] / best["output_tokens_per_s"])
    assert found["request_energy_j"] == pytest.approx(2 * found["power_w"] / best["rate_per_s"])
    rare = answer_of("--rate", "1/s", *words[2:])
    assert rare["power_w"] < found["power_w"]  # pools that wait draw their idle power
    assert rare["energy_j_per_token"] > found["energy_j_per_token"]


def test_adapters_take_time_and_memory_and_rank_0_takes_neither():
    words = ("--rate", "10/s", "--parallel", "tp=1", "--settings")
    plain, bare, ranked = (
        answer_of(*words, f"{SMALL}{more}") for more in ("", ",lora=4:4,lora_rank=0", ",lora=4:4,lora_rank=64")
    )
    for name in ("ttft", "tpot"):
        assert bare["best"]["latencies_s"][name]["mean"] == plain["best"]["latencies_s"][name]["mean"]
        assert ranked["best"]["latencies_s"][name]["mean"] > 1.02 * plain["best"]["latencies_s"][name]["mean"]
    assert ranked["best"]["kv_token_count"] < bare["best"]["kv_token_count"] == plain["best"]["kv_token_count"]
    (note,) = [note for note in ranked["notes"] if "LoRA" in note]
    assert "rank 64" in note
    assert "for 4 slots" in note


POOLS = ("--rate", "10/s", "--disaggregate", "prefill=1xTP1,decode=1xTP1", "--settings")


def test_adapters_live_on_both_pools():
    plain, ranked, loaded = (answer_of(*POOLS, f"{SMALL}{more}")
                             for more in ("", ",lora=4:4,lora_rank=64", ",lora=1:8:50ms,lora_rank=0"))  # fmt: skip
    for name in ("ttft", "tpot"):  # the first pool makes the first token, the second the others
        assert ranked["best"]["latencies_s"][name]["mean"] > 1.02 * plain["best"]["latencies_s"][name]["mean"]
        assert loaded["best"]["latencies_s"][name]["mean"] > 1.02 * plain["best"]["latencies_s"][name]["mean"]
    assert ranked["best"]["kv_token_count"] < plain["best"]["kv_token_count"] == loaded["best"]["kv_token_count"]
    assert any("LoRA, rank 64" in note for note in ranked["notes"])


def test_pools_draft_tokens_and_put_urgent_requests_first():
    plain, drafted = (answer_of(*POOLS, f"{SMALL}{more}")["best"] for more in ("", ",speculation=ngram:0.8:3"))
    assert drafted["latencies_s"]["tpot"]["mean"] < 0.7 * plain["latencies_s"]["tpot"]["mean"]
    assert drafted["latencies_s"]["ttft"]["mean"] == pytest.approx(plain["latencies_s"]["ttft"]["mean"])
    busy = ("--concurrency", "48", *POOLS[2:], f"{SMALL},priority=0.3")
    tails = answer_of(*busy)["best"]["class_latencies_s"]
    assert tails["urgent"]["latency"] < tails["others"]["latency"]


@pytest.fixture
def _short(monkeypatch):
    """Loads of few requests, and searches that end early."""
    monkeypatch.setattr("nearpeak.api.serving.service_question.REQUEST_COUNTS", (50, 50))
    monkeypatch.setattr("nearpeak.api.serving.service_plan.TOLERANCE_RATIO", 0.2)


@pytest.mark.usefixtures("_short")
def test_the_rate_of_a_search_is_one_at_which_the_tails_shown_meet_the_limits():
    found = answer_of("--slo", "ttft=150ms,tpot=4ms", "--parallel", "tp=1")
    best = found["best"]
    assert best["rate_per_s"] == float(f"{best['rate_per_s']:.3g}")
    assert best["low_per_s"] <= best["rate_per_s"] <= best["high_per_s"]
    for name, limit_s in found["limits_s"].items():
        assert best["latencies_s"][name]["p99"] <= limit_s
    again = answer_of("--rate", f"{best['rate_per_s']:.3g}/s", "--parallel", "tp=1")["best"]
    assert again["latencies_s"] == best["latencies_s"]


def test_a_layout_beyond_the_limits_says_so():
    words = ("--rate", "20/s", "--slo", "tpot=1us", "--text")
    text = CliRunner().invoke(application(), [*SERVE, *words]).stdout
    table = text[text.index("Layouts, best first") :].splitlines()
    assert sum("misses" in line for line in table) == 2


def test_a_request_log_is_served_and_its_latencies_stand_beside_the_predicted_ones(tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [{"arrival_s": 0.1 * place, "input_tokens": 100 + place, "output_tokens": 20, "ttft_ms": 20, "tpot_ms": 2}
            for place in range(40)]  # fmt: skip
    log.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    found = answer_of("--trace", str(log), "--parallel", "tp=1")
    logged = {(row["name"], row["statistic"]): row for row in found["logged"]}
    assert logged["ttft", "mean"]["measured_s"] == pytest.approx(20e-3)
    assert logged["latency", "p99"]["measured_s"] == pytest.approx(58e-3)
    for name in ("ttft", "tpot", "latency"):
        assert logged[name, "mean"]["predicted_s"] == pytest.approx(found["best"]["latencies_s"][name]["mean"])
        assert logged[name, "mean"]["request_count"] == 40
    words = ("--trace", str(log), "--parallel", "tp=1", "--text")
    assert "Against the log of 40 requests" in CliRunner().invoke(application(), [*SERVE, *words]).stdout


def test_splits_of_pools_are_compared():
    words = ("plan", "serve", "llama-3.2-1b", "--on", "3xh100_sxm", "--rate", "9/s", "--input", "256", "--output", "32",
             "--disaggregate", "prefill=TP1,decode=TP1", "--settings", SMALL, "--json")  # fmt: skip
    found = json.loads(CliRunner().invoke(application(), words).stdout)
    splits = {(option["replica_count"], option["decode_replica_count"]) for option in found["options"]}
    assert splits == {(1, 2), (2, 1)}


def test_replicas_follow_the_load_and_idle_ones_cost_nothing(monkeypatch):
    monkeypatch.setattr(service_question, "REQUEST_COUNTS", (300, 2_000))  # the first second weighs less
    words = ("--rate", "4/s", "--parallel", "tp=1", "--price", "2", "--settings", f"{SMALL},scale=1:64:1s")
    few = answer_of(*words)["best"]
    assert few["mean_device_count"] == pytest.approx(1, rel=0.01)
    assert few["usd_per_million_tokens"] == pytest.approx(2 / (3600 * few["output_tokens_per_s"]) * 1e6, rel=0.01)


def test_owned_devices_cost_their_price_and_power(tmp_path):
    page, trace = tmp_path / "serve.html", tmp_path / "serve.json"
    found = answer_of("--rate", "10/s", "--parallel", "tp=1", "--owned", "26280,3,0.2,1.5", "--html", str(page),
                      "--trace-out", str(trace), "--settings", SMALL)  # fmt: skip
    watts = found["power_w"]
    assert 100 < watts < 700
    assert found["usd_per_device_hour"] == pytest.approx(1.0 + watts / 1000 * 1.5 * 0.2)
    assert found["energy_j_per_token"] == pytest.approx(2 * watts / found["best"]["output_tokens_per_s"])
    assert len(found["timeline"]["decode_count"]) == len(found["timeline"]["edge_s"]) - 1
    assert "Batch, queue and cache" in page.read_text("utf-8")
    assert json.loads(trace.read_text("utf-8"))["traceEvents"]
    assert found["neighbour"]["measured_s"] > 0


def test_devices_counts_and_formats_stand_side_by_side():
    words = ("plan", "serve", "llama-3.2-1b", "--on", "1,2xh100_sxm", "--rate", "4/s", "--price",
             "h100_sxm=0.5", "--input", "64", "--output", "16", "--parallel", "tp=1", "--settings", SMALL)  # fmt: skip
    done = CliRunner().invoke(application(), [*words, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    assert [(plan["target"], plan["device_count"]) for plan in found["plans"]].count(("h100_sxm", 2)) == 1
    costs = [plan["best"]["usd_per_million_tokens"] for plan in found["plans"]]
    assert costs == pytest.approx(sorted(costs), rel=0.01)
    assert found["front"][0]


@pytest.mark.parametrize(("words", "message"), [
    (("--settings", "chunky=3"), "--settings word 'chunky'"),
    (("--settings", "speculation=eagle:1.7:4"), "speculation=ngram|eagle|mtp|MODEL:ACCEPTED:TOKENS"),
    (("--settings", "lora=2:8"), "state the time of a load"),
    (("--settings", "lora_rank=8"), "needs the adapters that have it"),
    (("--settings", "lora=2:2,lora_rank=9999"), "lora_rank=RANK, 0 to 1024"),
    (("--settings", f"lora={'2' * 300}"), "lora=SLOTS:ADAPTERS:LOAD_TIME"),
    (("--settings", "scale=1:8"), "scale=LEAST:REQUESTS_EACH:START_TIME"),
    (("--settings", "chunk=64,chunk=off"), "is stated twice"),
    (("--disaggregate", "prefill=1xTP2"), "is not of the form prefill=2xTP2,decode=1xTP4"),
    (("--disaggregate", "prefill=2xTP1,decode=1xTP2"), "takes 4 devices, --on names 2"),
    (("--disaggregate", "prefill=1xTP1,decode=1xTP1", "--settings", "scale=1:8:1s"), "is not modelled beside it"),
    (("--owned", "30000"), "USD_PER_DEVICE,YEARS,USD_PER_KWH"),
    (("--owned", "30000,4,0.1", "--price", "2"), "each states what a device costs"),
    (("--price", "l4=2"), "names no price of h100_sxm"),
])  # fmt: skip
def test_wrong_settings_are_refused_in_one_line(words, message):
    done = CliRunner().invoke(application(), [*SERVE, "--rate", "1/s", *words])
    assert isinstance(done.exception, NearpeakError), (done.output, done.exception)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.usefixtures("_short")
def test_a_rate_that_fits_within_the_limits_exits_with_0_and_another_with_10():
    words = ("--slo", "tpot=4ms", "--parallel", "tp=1", "--text", "--within")
    for rate, code, answer in (("0.5/s", 0, "yes"), ("5000/s", 10, "no")):
        done = CliRunner().invoke(application(), [*SERVE, *words, rate])
        assert done.exit_code == code, done.output
        assert f"within the limits: {answer}" in done.output
    done = CliRunner().invoke(application(), [*SERVE, "--rate", "1/s", "--within", "1/s"])
    assert "--within: asks for a rate within limits" in str(done.exception)


def test_bursts_wait_longer_than_a_clock():
    clock, burst = (answer_of("--rate", "60/s", "--cv", cv, "--parallel", "tp=1") for cv in ("0", "4"))
    assert burst["best"]["latencies_s"]["ttft"]["p99"] > 1.2 * clock["best"]["latencies_s"]["ttft"]["p99"]
    assert burst["load"].startswith("gamma (cv 4) arrivals at 60/s")


def test_prices_of_a_file_come_with_their_date_and_source(tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(
        '[h100_sxm]\nusd_per_hour = 2.5\nsource = "offer 12"\ndate = "2026-11-01"\n[l4]\nusd_per_hour = 1\n'
    )
    found = answer_of("--rate", "10/s", "--parallel", "tp=1", "--price", str(prices))
    assert (found["usd_per_device_hour"], found["price_source"]) == (2.5, "offer 12, 2026-11-01")
    for target, message in (("l4", "needs usd_per_hour above 0, source and date"), ("t4", "names no price of t4")):
        words = ["plan", "serve", "llama-3.2-1b", "--on", target, "--rate", "1/s", "--price", str(prices)]
        assert message in str(CliRunner().invoke(application(), words).exception)


def test_what_to_change_is_the_step_at_the_same_load():
    found = answer_of("--rate", "20/s", "--parallel", "tp=1")
    edits = {edit["words"]: edit for edit in found["edits"]}
    assert set(edits) == {"--weights fp8", "--weights int4", "--kv-cache fp8", "--parallel tp=2"}
    narrow = edits["--weights int4"]
    assert narrow["step_s"] < narrow["now_s"]
    assert narrow["is_beyond"]
    assert edits["--kv-cache fp8"]["kv_token_count"] > 1.9 * 2 * found["best"]["kv_token_count"]
