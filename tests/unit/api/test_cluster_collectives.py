"""Collectives between nodes as questions and commands: interval, named tier, bound with proof, and refusals."""

import json

import pytest

import nearpeak
from nearpeak.api.cluster_collectives import bound_collective, inside_node, predict_collective, transfer_time
from nearpeak.bounds.proof_checker import proof_of, verify
from nearpeak.cli import application
from nearpeak.core.answers.bound import Policy
from nearpeak.core.systems.fabric import Fabric, Tier, TransferFit
from nearpeak.core.systems.mesh import Mesh
from nearpeak.core.systems.rank_program import Transfer
from nearpeak.core.work.process_group import group_of_text, process_group
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.frontends.files.saved_workload import save_text
from nearpeak.targets import target_of
from nearpeak.targets.clusters import cluster_of
from nearpeak.targets.fabric_file import fabric_text

WORDS = ("collective", "elements=67108864", "dtype=bf16", "ranks=64", "-t", "h100_sxm")


def run(capsys, *words):
    application()(list(words), standalone_mode=False)
    return capsys.readouterr().out


def exchange(kind="all_reduce", ranks=64, elements=2**26, **rest):
    return nearpeak.case("collective", elements=elements, dtype="fp16", ranks=ranks, kind=kind, **rest)


@pytest.mark.parametrize(
    "kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv"]
)
def test_collectives_between_nodes_have_an_interval_above_a_bound_that_verifies(kind):
    case = exchange(kind)
    found, bound = predict_collective(case, "h100_sxm", "ib400"), bound_collective(case, "h100_sxm", "ib400")
    assert 0 < bound.time_s == found.bound_s <= found.low_s < found.time_s < found.high_s
    assert found.tier == "ib"
    assert sum(part.time_s for part in found.parts) == pytest.approx(found.time_s)
    verify(proof_of(case.digest, bound, target_of("h100_sxm"), Policy()))


def test_a_group_inside_a_node_takes_its_predicted_time():
    case = exchange(ranks=8)
    predicted = nearpeak.predict(case, "h100_sxm")
    found = predict_collective(case, "h100_sxm", "ib400")
    assert (found.time_s, found.low_s, found.high_s) == (predicted.time_s, predicted.low_s, predicted.high_s)
    assert predict_collective(case, "h100_sxm", "ib400", stride=8).time_s > 3 * found.time_s


def test_a_rank_program_s_transfer_names_the_tier_of_its_dimension():
    cluster, mesh = cluster_of("64xh100_sxm", "ib400"), Mesh(dims=(("tp", 8), ("dp", 8)))
    tiers = {
        dim: transfer_time(Transfer(kind="all_reduce", bytes=2**26, dim=dim), mesh, cluster).tier
        for dim in ("tp", "dp")
    }
    assert tiers == {"tp": "nvlink", "dp": "ib"}


def test_the_rate_of_eight_h100_is_the_public_one():
    # github.com/NVIDIA/nccl-tests/issues/290 and 212: 476 to 480 GB/s of the bus at the largest sizes.
    time_s = inside_node("h100_sxm")("all_reduce", 2**33, 8).time_s
    assert 2 * 7 / 8 * 2**33 / time_s == pytest.approx(478e9, rel=0.1)


def test_a_measured_fabric_answers_for_any_device(tmp_path):
    fit = TransferFit(kind="all_reduce", rank_count=2, base_s=1e-4, bytes_per_s=1e9, low_ratio=0.9, high_ratio=1.5)
    tier = Tier(
        name="loopback", device_count=0, bandwidth_bytes_per_s=4e9, latency_s=1e-4, fits=(fit,), source="measured"
    )
    path = tmp_path / "own.toml"
    path.write_text(fabric_text(Fabric(name="own", title="Own", tiers=(tier,))))
    found = predict_collective(exchange(ranks=2), "t4", str(path))
    assert found.time_s == pytest.approx(1e-4 + 2**27 / 1e9)
    assert (found.low_s, found.high_s) == pytest.approx((0.9 * found.time_s, 1.5 * found.time_s))


def test_commands_answer_between_nodes(capsys):
    found = json.loads(run(capsys, "predict", *WORDS, "--fabric", "ib400", "--json"))
    assert (found["tier"], found["fabric"]) == ("ib", "hgx_h100+ib400")
    assert found["bound_s"] < found["low_s"] < found["predicted_s"] < found["high_s"]
    assert set(found["provenance"]) == set(found["waterfall_s"])
    assert "across ib" in run(capsys, "predict", *WORDS, "--fabric", "ib400", "--text")
    bound = json.loads(run(capsys, "bound", *WORDS, "--fabric", "ib400", "--json"))
    assert bound["limiter"] == "network"
    assert bound["bound_s"] == found["bound_s"]


def captured(*groups):
    calls = tuple(
        Call(case=exchange(ranks=8), operator="all_reduce", phase="forward", group=group, call_count=count)
        for group, count in groups
    )
    return Workload(name="step", step="train", calls=calls)


def test_a_captured_step_s_collectives_are_listed_by_dimension_and_tier(tmp_path, capsys):
    path = tmp_path / "step.json"
    tp, dp = process_group(tuple(range(8)), 0, "tp"), process_group(tuple(range(0, 64, 8)), 0, "dp")
    path.write_text(save_text(captured((tp, 2), (dp, 1), (tp, 3))))
    words = ("predict", str(path), "-t", "h100_sxm", "--fabric", "ib400")
    rows = [json.loads(line) for line in run(capsys, *words, "--json").splitlines()]
    assert [(row["dim"], row["tier"], row["call_count"]) for row in rows] == [("dp", "ib", 1), ("tp", "nvlink", 5)]
    assert rows[0]["predicted_s"] > rows[1]["predicted_s"] >= rows[1]["bound_s"] > 0
    assert "collectives of one rank on 64xh100_sxm" in run(capsys, *words, "--text")


@pytest.mark.parametrize(
    ("group", "says"), [(None, "does not say which ranks"), (group_of_text("ranks=8,rank=0"), "does not say which")]
)
def test_a_step_without_groups_says_what_would_work(tmp_path, group, says):
    path = tmp_path / "step.json"
    path.write_text(save_text(captured((group, 1))))
    with pytest.raises(SpecError, match=says) as error:
        application()(["predict", str(path), "-t", "h100_sxm", "--fabric", "ib400"], standalone_mode=False)
    assert "--stride" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        (("predict", *WORDS), NotModelledError, "--fabric names it"),
        (("predict", *WORDS, "--fabric", "ib999"), LookupError, "ib_ndr|ib400"),
        (("predict", *WORDS, "--stride", "8"), SpecError, "needs --fabric"),
        (("bound", *WORDS, "--stride", "8"), SpecError, "go together"),
        (("predict", *WORDS, "--fabric", "ib400", "--stride", "0"), SpecError, "at least 1"),
        (("predict", *WORDS, "kind=gather", "--fabric", "ib400"), NotModelledError, "no rule for gather"),
        (("predict", "gemm", "m=1", "n=1", "k=1", "dtype=bf16", "-t", "t4", "--fabric", "ib400"), SpecError, "gemm"),
        (("predict", *WORDS[:4], "-t", "h100_sxm:1g.10gb", "--fabric", "ib400"), SpecError, "reach no peers"),
        (("predict", "--cases", "a.csv", "-t", "t4", "--fabric", "ib400"), SpecError, "one collective"),
    ],
)
def test_refusals_name_what_would_work(words, error, says):
    with pytest.raises(error, match=says) as raised:
        application()(list(words), standalone_mode=False)
    assert "\n" not in str(raised.value)
