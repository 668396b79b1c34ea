"""Nodes that an inference engine installed on this machine refuses, asked of its own parser."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from nearpeak.conversion.capability_table import CapabilityTable
from nearpeak.errors import MeasureError


def refused_nodes(table: CapabilityTable, path: Path) -> Mapping[int, str] | None:
    """Return by position the nodes that the installed engine refuses, with reasons; none where it is not installed.

    Only TensorRT of the version that the table is about is asked. Nothing is built: its ONNX parser names the stretches
    of nodes that it takes.

    Raises:
        MeasureError: the parser of this version cannot be asked.

    Source: TensorRT Python interface, class `OnnxParser`: `supports_model_v2`, `num_subgraphs`,
    `is_subgraph_supported`, `get_subgraph_nodes`, `get_error`.
    """
    if table.engine != "tensorrt":
        return None
    try:
        tensorrt = import_module("tensorrt")
    except ImportError:
        return None
    version = str(tensorrt.__version__)
    if not f"{version}.".startswith(f"{table.version}."):
        return None
    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    network = tensorrt.Builder(logger).create_network(0)
    parser = tensorrt.OnnxParser(network, logger)
    try:
        is_whole = parser.supports_model_v2(path.read_bytes(), str(path))
    except AttributeError:
        raise MeasureError(f"tensorrt {version}: its parser does not name the nodes that it takes") from None
    return {} if is_whole else _refused(parser)


def _refused(parser: Any) -> Mapping[int, str]:
    """Return the nodes of stretches that are not taken, each with the parser's error about it."""
    reasons: dict[int, str] = {}
    for number in range(parser.num_errors):
        error = parser.get_error(number)
        reasons.setdefault(int(error.node()), " ".join(str(error.desc()).split())[:200])
    stretches = [
        parser.get_subgraph_nodes(number) for number in range(parser.num_subgraphs)
        if not parser.is_subgraph_supported(number)
    ]  # fmt: skip
    nodes = sorted({int(node) for stretch in stretches for node in stretch})
    return {node: reasons.get(node, "its parser refuses the node") for node in nodes}
