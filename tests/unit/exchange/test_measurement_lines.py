"""Lines of result files: a measurement that is read again is the one that was taken, in every type."""

import dataclasses
import json
import math

import pytest

import nearpeak
from nearpeak.base.canonical_json import canonical_json
from nearpeak.core.answers.suite import Why
from nearpeak.core.runs.measurement import Environment, Fallback, Measurement, Method, Outcome
from nearpeak.core.runs.telemetry import Channel, Stream, Telemetry
from nearpeak.core.runs.validation import CheckResult, Validation, WorstElement
from nearpeak.errors import SpecError
from nearpeak.exchange.measurement_lines import environment_record, measurement_of, measurement_record, parse_results
from nearpeak.measurement.result_file import read_results, result_file

CASE = nearpeak.case("gemm", m=8, n=8, k=8, dtype="fp32")
WORST = WorstElement(output="y", offset=(1, 2), got="nan", expected="1.0", bound="0.5", bound_ratio=math.inf)
STREAM = Stream(
    source="nvml",
    channels=(Channel(name="gpu0.flags", unit="bits", kind="flags", meaning="why", bits=(("idle", 1),)),),
    before_ns=(1, 3), after_ns=(2, 4), values=((5.0, math.nan),),
)  # fmt: skip
TAKEN = Measurement(
    case=CASE, target="h100_sxm", runner="torch", samples_s=(1e-5, 2e-5), cpu_samples_s=(1e-6, 3e-6), warmup_s=(0.1,),
    call_count=3, timer_s=1e-9, outcome=Outcome.CONVERGED, note="n", details="d", activity_s=1e-5, launch=2,
    method=Method(
        timer="t", mode="m", cache="cold", flush="none", process="fresh", thread_count=1, clock_policy="free"
    ),
    environment=Environment(device="x", packages=(("torch", "2"), ("numpy", "1")), settings=(("b", "1"), ("a", "2"))),
    phases_s={"build": 0.5}, clock_probes_s=(0.2, 0.3), algorithm="a",
    ledger=(Fallback(node="n", ran_on="cpu", reason="r", flop=2**60, flop_ratio=0.5, chosen=True),),
    validation=Validation(case=CASE, implementation="torch", seed=7, command="c", policy={"kind": "p"}, engine="e",
                          results=(CheckResult(check="V1", status="NUMERIC_FAIL", worst=WORST, figures={"ulp": "3"}),)),
    why=(Why(kind="usecase", source="w", module="a.*", call_count=3),), spans_ns=(("samples", 1, 2),),
    telemetry=Telemetry(begin_ns=0, end_ns=9, wall_ns=5, streams=(STREAM,), unavailable=(("rapl", "absent"),)),
)  # fmt: skip


def test_a_measurement_that_is_read_again_is_the_one_that_was_taken(tmp_path):
    with result_file(tmp_path / "r.jsonl") as file:
        file.append(TAKEN, "1")
    (again,) = read_results(tmp_path / "r.jsonl")
    assert again == TAKEN
    assert isinstance(again.validation.results[0].worst, WorstElement)
    assert canonical_json(measurement_record(again, "1")) == canonical_json(measurement_record(TAKEN, "1"))


def test_a_line_from_before_later_fields_is_read():
    bare = dataclasses.replace(TAKEN, telemetry=None, spans_ns=(), details="", why=(), activity_s=None, launch=1)
    record = json.loads(canonical_json(measurement_record(bare, "1")))
    del record["telemetry"], record["spans_ns"]
    for name in ("policy", "engine"):
        del record["validation"][name]
    again = measurement_of(record, {TAKEN.environment.digest: TAKEN.environment}, "here")
    assert again == dataclasses.replace(bare, validation=dataclasses.replace(TAKEN.validation, policy={}, engine=""))


def changed(**fields):
    return json.dumps({**measurement_record(TAKEN, "1"), **fields}) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(schema=2), "r:1: has schema version 2; this nearpeak reads version 1"),
        (changed(samples_s=[1.0, "x"]), r"r:1.samples_s\[1\]: is a text; must be a number"),
        (changed(outcome="great"), "r:1.outcome: is 'great'; must be one of converged"),
        (changed(case={"op": "gemm"}), "r:1: case .* needs op, phase"),
        (changed(case_digest="0"), "r:1: its case is not the one"),
        (json.dumps(environment_record(TAKEN.environment) | {"packages": []}), "r:1.packages: is a list"),
    ],
)
def test_a_damaged_line_is_refused_with_its_place(text, message):
    with pytest.raises(SpecError, match=message):
        parse_results(text, "r")
