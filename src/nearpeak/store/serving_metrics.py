"""Metrics of served language models under one name each, whatever tool measured them: latencies and rates."""

from nearpeak.core.history.stored_run import Metric

LATENCIES = {
    "ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "request_latency", "e2e_latency": "request_latency",
    "time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "request_latency",
    "inter_chunk_latency": "itl",
}  # fmt: skip
"""Metric by the tools' names: time to first token, time per output token of a request, gap between tokens, whole
request. AIPerf's inter-token latency is a request's time after its first token over the tokens after the first.
Source: vllm/benchmarks/serve.py, sglang/bench_serving.py, AIPerf's metrics reference."""
RATES = {
    "request_throughput": "request_rate", "request_goodput": "request_goodput", "goodput": "request_goodput",
    "output_throughput": "output_token_rate", "output_token_throughput": "output_token_rate",
    "total_token_throughput": "total_token_rate", "total_throughput": "total_token_rate",
    "input_throughput": "input_token_rate", "requests_per_second": "request_rate",
    "tokens_per_second": "total_token_rate",
}  # fmt: skip
"""Metric by the tools' names: requests and tokens per second."""


def latency(name: str, statistic: str = "") -> Metric:
    """Return the metric of a latency in seconds.

    Args:
        statistic: `p99` or `mean`; empty for the samples or their median.

    >>> latency("ttft").name, latency("itl", "p99").name
    ('ttft', 'itl_p99')
    """
    return Metric(name=f"{LATENCIES[name]}_{statistic}" if statistic else LATENCIES[name], unit="s")


def rate(name: str) -> Metric:
    """Return the metric of a rate per second."""
    return Metric(name=RATES[name], unit="1/s", direction="higher", kind="throughput")
