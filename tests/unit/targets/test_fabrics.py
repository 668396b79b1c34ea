"""Fabric files and clusters: sources, composition of node and network, and errors of one line."""

import re

import pytest

from nearpeak.errors import SpecError, UnknownNameError
from nearpeak.targets import TARGETS, target_of
from nearpeak.targets.clusters import cluster_of, fabric_names, fabric_of, shipped_fabric
from nearpeak.targets.fabric_file import fabric_text, parse_fabric

WANTED = (
    "hgx_a100", "hgx_h100", "hgx_h200", "hgx_b200", "nvl72_gb200", "mi300x_oam", "pcie4", "pcie5", "ib_edr", "ib_hdr",
    "ib_ndr", "ib400", "roce400", "ethernet_10g", "ethernet_100g", "opa100",
)  # fmt: skip
TIER = {"name": "x", "device_count": 0, "bandwidth": "1 GB/s", "latency": "1 us", "source": "datasheet"}
FILE = {"title": "Mine", "kind": "network", "tier": [TIER]}


def test_every_fabric_is_read_and_states_sources():
    assert set(WANTED) <= set(fabric_names())
    for name in fabric_names():
        for tier in fabric_of(name).tiers:
            for word in ("bandwidth: ", "latency: ", "reached: "):
                assert word in tier.source, (name, word)
            assert 0.5 < tier.reached_ratio <= 1


def test_nodes_are_built_of_targets_that_exist():
    targets = [target for name in fabric_names("node") for target in shipped_fabric(name).targets]
    assert set(targets) <= set(TARGETS.names())
    assert len(targets) == len(set(targets)), "one node for each target"


def test_links_of_nodes_are_those_of_their_targets():
    for name in fabric_names("node"):
        for target in shipped_fabric(name).targets:
            link = next((link for key, link in target_of(target).links.items() if key != "host"), None)
            if link is not None:
                assert link.bandwidth_bytes_per_s == fabric_of(name).tiers[0].bandwidth_bytes_per_s, target


def test_a_cluster_joins_nodes_by_the_ports_that_they_have():
    tiers = cluster_of("64xh100_sxm", "ib400").fabric.tiers
    assert [(tier.name, tier.device_count, tier.shared_by) for tier in tiers] == [("nvlink", 8, 1), ("ib", 0, 1)]
    assert cluster_of("64xa100_sxm_80gb", "ib_hdr:4").fabric.tiers[1].shared_by == 2
    assert cluster_of("64xv100_sxm", "ib_edr").fabric.tiers[1].shared_by == 2
    assert cluster_of("64xv100_sxm", "ib_edr:16").fabric.tiers[1].bandwidth_bytes_per_s == 25e9
    assert cluster_of("16xrtx_4090", "pcie4+ethernet_10g:1").fabric.name == "pcie4+ethernet_10g:1"
    assert cluster_of("72xgb200").fabric.name == "nvl72_gb200"
    assert cluster_of("8xh100_sxm").device_count == 8
    assert cluster_of("h100_sxm", rank_count=4).device_count == 4


@pytest.mark.parametrize(
    ("devices", "fabric", "words"),
    [
        ("64xh100_sxm", "", "ib400"),
        ("64xh100_sxm", "ib401", "did you mean ib400"),
        ("0xh100_sxm", "", "at least 1"),
        ("16xrtx_4090", "ib_edr", "pcie4+ib_edr:1"),
        ("16xrtx_4090", "pcie4+ib_edr", "pcie4+ib_edr:1"),
        ("64xh100_sxm", "ib400:3", "2 would"),
        ("64xh100_sxm", "ib400:x", "no number of ports"),
        ("64xh100_sxm", "ib400+ib_edr", "no node"),
        ("16xh100_sxm", "hgx_h100", "names the network"),
        ("16xh100_sxm", "none.toml", "none.toml"),
    ],
)
def test_what_is_left_open_is_one_line_that_says_what_would_work(devices, fabric, words):
    with pytest.raises((SpecError, UnknownNameError, FileNotFoundError)) as error:
        cluster_of(devices, fabric)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_of_one_s_own_reads_back_as_written(tmp_path):
    fits = [{"kind": "all_reduce", "rank_count": 2, "base_s": 1e-4, "bytes_per_s": 1e9, "low_ratio": 0.9}]
    first = parse_fabric("mine", {**FILE, "kind": "whole", "tier": [{**TIER, "fit": fits, "shared_by": 2}]}).fabric
    path = tmp_path / "mine.toml"
    path.write_text(fabric_text(first))
    assert fabric_of(str(path)) == first
    assert cluster_of("4xcpu", str(path)).fabric == first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "rack"}, "node, network, whole"),
        ({"kind": "node"}, "how many devices"),
        ({"colour": 1}, "not known"),
        ({"tier": []}, "at least one tier"),
        ({"tier": [3]}, "must be a table"),
        ({"tier": [{**TIER, "bandwidth": "1 GHz"}]}, "B/s"),
        ({"tier": [{**TIER, "shared_by": True}]}, "type int"),
        ({"tier": [{**TIER, "reached_ratio": 2}]}, "at most 1"),
        ({"tier": [{key: TIER[key] for key in TIER if key != "source"}]}, "'source' is missing"),
        (
            {"tier": [{**TIER, "fit": [{"kind": "send", "rank_count": 1, "base_s": 0.0, "bytes_per_s": 1.0}]}]},
            "2 ranks",
        ),
        ({"port_count": 8}, "port_source"),
    ],
)
def test_malformed_files_are_refused_in_one_line(change, words):
    with pytest.raises(SpecError, match=re.escape(words)) as error:
        parse_fabric("mine", {**FILE, **change})
    assert "\n" not in str(error.value)


def test_one_device_needs_no_fabric():
    from nearpeak.targets.clusters import cluster_of

    assert cluster_of("l4").device_count == 1
    assert cluster_of("1xl4").fabric.name == "none"


def test_a_device_that_does_not_exist_is_named_with_the_closest_one():
    from nearpeak.errors import UnknownNameError
    from nearpeak.targets.clusters import cluster_of

    with pytest.raises(UnknownNameError, match="h100_sxm"):
        cluster_of("8xh100")
