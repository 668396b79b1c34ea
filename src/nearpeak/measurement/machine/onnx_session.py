"""ONNX export by PyTorch, ONNX Runtime sessions with pinned threads, and node assignments to providers."""

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearpeak.errors import MissingExtraError, NotModelledError

OPSET = 20
"""Operator set of exported operators."""


def runtime_or_refusal(what: str) -> Any:
    """Return ONNX Runtime, or raise an error that names its package."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError(f"{what} needs ONNX Runtime; install onnxruntime (or onnxruntime-gpu)") from None
    return onnxruntime


def exported(torch: Any, call: Any, tensors: Mapping[str, Any], outputs: tuple[str, ...]) -> bytes:
    """Return the ONNX model of `call`, which takes named tensors and returns named ones.

    Raises:
        NotModelledError: PyTorch's exporter has no node for something in it.
    """
    names = tuple(tensors)

    class Named(torch.nn.Module):  # type: ignore[misc]  # torch is a parameter
        def forward(self, *args: Any) -> tuple[Any, ...]:
            result = call(dict(zip(names, args, strict=True)))
            return tuple(result[name] for name in outputs)

    return exported_module(torch, Named(), tuple(tensors.values()), input_names=list(names), output_names=list(outputs))


def exported_module(torch: Any, module: Any, inputs: tuple[Any, ...], **options: Any) -> bytes:
    """Return the ONNX model of a module on the shapes of `inputs`.

    Raises:
        NotModelledError: PyTorch's exporter has no node for something in it.
    """
    file = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, inputs, file, opset_version=OPSET, dynamo=False, do_constant_folding=False, **options
            )  # fmt: skip
    except (RuntimeError, TypeError, ValueError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise NotModelledError(f"ONNX export: {reason[:200]}") from None
    return file.getvalue()


def session_of(runtime: Any, model: bytes | Path, thread_count: int, *, device: str = "cpu", profile: str = "") -> Any:
    """Return a session with pinned threads and a record of where each node runs.

    Args:
        profile: prefix of the file of node times; empty for none.
    """
    options = runtime.SessionOptions()
    options.intra_op_num_threads = thread_count
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    wanted = {"cpu": ["CPUExecutionProvider"], "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"]}[device]
    source = str(model) if isinstance(model, Path) else model
    return runtime.InferenceSession(source, options, providers=wanted)


def assignments(session: Any) -> tuple[tuple[str, str, str], ...]:
    """Return provider, operator type and name of every node of the session's graph, as the runtime partitioned it."""
    rows = []
    for part in session.get_provider_graph_assignment_info():
        rows += [(str(part.ep_name), str(node.op_type), str(node.name)) for node in part.get_nodes()]
    return tuple(rows)
