"""Loads: random arrivals, and files of requests as other tools write them."""

import json
from pathlib import Path

import numpy as np
import pytest

from nearpeak.errors import SpecError
from nearpeak.systems.serving.loads.arrival_process import closed_load, gap_variation, open_load
from nearpeak.systems.serving.loads.request_file import read_log, read_requests
from nearpeak.systems.serving.request_columns import Requests, prefix_hit_ratio

TRACES = Path(__file__).resolve().parents[5] / "shared" / "scale" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="no folder of public traces beside the checkout")


@pytest.mark.parametrize("cv", [0.0, 1.0, 3.0])
def test_gaps_have_the_rate_and_the_variation_asked_for(cv):
    load = open_load(5.0, 20_000, input_count=1, output_count=1, cv=cv, seed=2)
    assert load.rate == pytest.approx(5.0, rel=0.07)
    assert gap_variation(load) == pytest.approx(cv, rel=0.07)


def test_the_same_seed_at_another_rate_gives_the_same_requests():
    slow, fast = (open_load(rate, 50, input_count=[1, 2, 3], output_count=[4, 5], seed=9) for rate in (1.0, 4.0))
    assert slow.arrival_s.tolist() == pytest.approx((fast.arrival_s * 4).tolist())
    assert slow.input_count.tolist() == fast.input_count.tolist()


CSV = "arrival,input,output\n0,10,5\n1.5,20,6\n"
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,10,5,15,API\n6,GPT-4,9,0,9,API\n"
    "7,ChatGPT,20,6,26,API\n"
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,10,5\n2023-11-16 18:15:48,20,6\n"
MOONCAKE = [
    {"timestamp": 0, "input_length": 10, "output_length": 5, "hash_ids": [0]},
    {"timestamp": 1500, "input_length": 20, "output_length": 6, "hash_ids": [0]},
]


@pytest.mark.parametrize(
    ("name", "text", "second"),
    [
        ("load.csv", CSV, 1.5), ("burst.csv", BURST, 2.0), ("azure.csv", AZURE, 1.5),
        ("mooncake.jsonl", "\n".join(map(json.dumps, MOONCAKE)), 1.5),
    ],
)  # fmt: skip
def test_files_of_other_tools_are_read(tmp_path, name, text, second):
    path = tmp_path / name
    path.write_text(text)
    load = read_requests(path)
    assert load.arrival_s.tolist() == [0.0, second]
    assert load.input_count.tolist() == [10, 20]
    assert load.output_count.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arrival,input,output\n5,1,1\n4,1,1\n", "row 2 arrives 1 s before the one above"),
        ("arrival,output\n5,1\n", "no column of input tokens"),
        ("input,output\n5,1\n", "no column of arrivals .* give a rate"),
        ("arrival,input,output\n0,0,1\n", "row 1 has 0 input tokens; a whole number"),
        ("arrival,input,output\n0,1.5,1\n", "row 1 has 1.5 input tokens; a whole number"),
        ("arrival,input,output\n0,many,1\n", "holds something else than numbers"),
        ("Timestamp,Request tokens,Response tokens\n0,1,0\n", "no request has output"),
    ],
)
def test_files_that_are_no_load_are_refused_in_one_line(tmp_path, text, words):
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(SpecError, match=words) as error:
        read_requests(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"arrival_s": [1.0, 0.0]}, "no earlier than the request before"),
        ({"arrival_s": [0.0, np.nan]}, "must be a time of at least 0 s"),
        ({"output_count": [1, 0]}, "output of request 1 is 0"),
        ({"output_count": [1]}, r"columns of \[1, 2\] rows"),
    ],
)
def test_requests_that_cannot_be_are_refused(columns, words):
    given = {"arrival_s": [0.0, 1.0], "input_count": [1, 1], "output_count": [1, 1]} | columns
    with pytest.raises(SpecError, match=words):
        Requests(**{name: np.array(values) for name, values in given.items()})


def test_a_closed_loop_has_no_more_in_flight_than_requests():
    with pytest.raises(SpecError, match="9 requests in flight of 3"):
        closed_load(9, 3, input_count=1, output_count=1, seed=0)


@needs_traces
@pytest.mark.parametrize(("name", "ratio"), [("mooncake_conversation", 0.366), ("mooncake_synthetic", 0.640)])
def test_a_cache_without_limit_hits_what_the_traces_share(name, ratio):
    assert prefix_hit_ratio(read_requests(TRACES / f"{name}.parquet")) == pytest.approx(ratio, abs=5e-4)


@needs_traces
@pytest.mark.parametrize(("name", "cv"), [("azure2023_code", 13.2), ("azure2023_conv", 1.09)])
def test_traces_burst_as_published(name, cv):
    assert gap_variation(read_requests(TRACES / f"{name}.parquet")) == pytest.approx(cv, rel=0.01)


def test_a_trace_may_say_who_goes_first_and_which_adapter_is_asked_for(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,priority,adapter\n0,5,2,1,3\n1,5,2,0,-1\n", "utf-8")
    requests = read_requests(path)
    assert (requests.classes.tolist(), requests.adapters.tolist()) == ([1, 0], [3, -1])
    path.write_text("arrival_s,input_tokens,output_tokens,priority\n0,5,2,-1\n", "utf-8")
    with pytest.raises(SpecError, match="priority -1 is no whole number from 0"):
        read_requests(path)


DETAILS = {"start_times": [5.0, 4.0, 6.0], "input_lens": [20, 10, 9], "output_lens": [3, 2, 0], "completed": 2,
           "ttfts": [0.1, 0.2, 0.0], "itls": [[0.01, 0.03], [0.05], []]}  # fmt: skip
AIPERF = [
    {"metadata": {"request_start_ns": 5_000_000_000}, "error": None, "metrics": {
        "input_sequence_length": {"value": 20, "unit": "tokens"},
        "output_sequence_length": {"value": 3, "unit": "tokens"},
        "time_to_first_token": {"value": 100, "unit": "ms"}, "request_latency": {"value": 140, "unit": "ms"}}},
    {"metadata": {"request_start_ns": 4_000_000_000}, "error": None, "metrics": {
        "input_sequence_length": {"value": 10, "unit": "tokens"},
        "output_sequence_length": {"value": 2, "unit": "tokens"},
        "time_to_first_token": {"value": 200, "unit": "ms"}, "request_latency": {"value": 250, "unit": "ms"}}},
    {"metadata": {"request_start_ns": 4_500_000_000}, "error": {"code": 500}, "metrics": {}},
    {"metadata": {"request_start_ns": 4_600_000_000, "was_cancelled": True}, "error": None, "metrics": {}},
    {"metadata": {"request_start_ns": 3_000_000_000, "benchmark_phase": "warmup"}, "error": None, "metrics": {}},
]  # fmt: skip
STAMPS = [
    {
        "request_id": 1,
        "input_toks": 20,
        "output_toks": 3,
        "arrival_time": 5.0,
        "first_token_ts": 5.1,
        "last_token_ts": 5.14,
    },
    {
        "request_id": 0,
        "input_toks": 10,
        "output_toks": 2,
        "arrival_time": 4.0,
        "first_token_ts": 4.2,
        "last_token_ts": 4.25,
    },
]
OTHER_CLOCK = [
    row | {"first_token_ts": row["first_token_ts"] - 3600, "last_token_ts": row["last_token_ts"] - 3600,
           "first_token_latency": row["first_token_ts"] - row["arrival_time"]} for row in STAMPS
]  # fmt: skip
TABLE = "arrival_s,input_tokens,output_tokens,ttft_ms,tpot_ms\n4,10,2,200,50\n5,20,3,100,20\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vllm.json", json.dumps(DETAILS)), ("sglang.jsonl", json.dumps(DETAILS)),
        ("aiperf.jsonl", "\n".join(map(json.dumps, AIPERF))), ("requests.jsonl", "\n".join(map(json.dumps, STAMPS))),
        ("vllm.jsonl", "\n".join(map(json.dumps, OTHER_CLOCK))),
        ("log.csv", TABLE),
    ],
)  # fmt: skip
def test_logs_of_single_requests_are_read_in_order_of_arrival_with_their_latencies(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    load, measured = read_log(path)
    assert load.arrival_s.tolist() == pytest.approx([0.0, 1.0])
    assert load.input_count.tolist() == [10, 20]
    assert load.output_count.tolist() == [2, 3]
    assert measured["ttft"].tolist() == pytest.approx([0.2, 0.1])
    assert measured["tpot"].tolist() == pytest.approx([0.05, 0.02])
    assert measured["latency"].tolist() == pytest.approx([0.25, 0.14])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", json.dumps(DETAILS | {"start_times": None}), "states no start_times"),
        ("a.json", json.dumps(DETAILS | {"ttfts": [0.1]}), "are of unequal length"),
        ("a.json", json.dumps({"mean_ttft_ms": 3}), "is no result with single requests .* --save-detailed"),
        ("a.json", json.dumps(DETAILS | {"output_lens": [0, 0, 0]}), "no request has output"),
        ("a.jsonl", "\n".join([json.dumps(DETAILS)] * 2), "holds 2 runs"),
        (
            "a.csv",
            TABLE.replace("ttft_ms", "first_token_ts").replace("200", "1"),
            "row 1 has a ttft of -3 s",
        ),
        ("a.csv", TABLE.replace("200", "soon"), "column 'ttft_ms' holds something else"),
        ("a.jsonl", json.dumps(AIPERF[0] | {"metrics": {}}), "line 1: cannot be read as request of AIPerf"),
    ],
)
def test_logs_that_hold_no_load_are_refused_in_one_line(tmp_path, name, text, words):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(SpecError, match=words) as error:
        read_log(path)
    assert "\n" not in str(error.value)
