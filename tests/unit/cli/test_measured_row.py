"""The line of `nearpeak measure`: a share of the bound of all cores says on how many the case ran."""

from dataclasses import replace

import pytest

import nearpeak
from nearpeak.cli.run.measure import _row
from nearpeak.core.runs.measurement import Measurement, Method
from nearpeak.targets import CPU, target_of

CASE = nearpeak.case("gemm", m=64, n=64, k=64, dtype="fp32")


def ran_on(threads):
    method = Method(
        timer="perf_counter", mode="host", cache="hot", flush="none", process="fresh", thread_count=threads,
        clock_policy="free",
    )  # fmt: skip
    return Measurement(case=CASE, target=CPU, runner="torch_cpu", samples_s=(1e-3,) * 9, method=method)


@pytest.mark.parametrize(
    ("name", "threads", "said"),
    [(CPU, 1, "attained on 1 of 2 cores)"), (CPU, 2, "attained)"), ("h20", 1, "attained)")],
)
def test_a_share_of_the_bound_of_more_cores_says_so(name, threads, said):
    device = replace(target_of("h20"), name=name, sm_count=2)
    assert said in _row(ran_on(threads), device)
