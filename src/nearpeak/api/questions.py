"""The public functions case, target, capture, bound, analyze and provision."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from nearpeak.core.answers.analysis import Analysis
from nearpeak.core.answers.bound import Bound, Policy
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.bounds.bound_table import BoundTable
    from nearpeak.core.answers.provision import Provision
    from nearpeak.ops.shared.tables.case_table import CaseTable


def case(op: str, phase: str = "forward", **arguments: int | str | bool) -> Case:
    """Return the case of operator `op` with the given axes, formats and attributes.

    >>> case("gemm", m=8, n=4, k=2, dtype="bf16") == case("gemm", k=2, n=4, m=8, dtype="bfloat16")
    True
    """
    from nearpeak import ops

    return ops.case(op, phase, **arguments)


def case_table(columns: Any) -> "CaseTable":
    """Return the table that `columns` state: `op`, `dtype`, the operators' axes, optionally `phase`.

    Args:
        columns: a mapping of columns, or a data frame of pandas, polars or pyarrow (extra `tables`).

    >>> case_table({"op": "gemm", "dtype": "bf16", "m": [1, 2], "n": 4, "k": 8}).row_count
    2
    """
    from nearpeak.ops.shared.tables import case_table as _table

    return _table.case_table(columns)


def target(name: str, edits: Sequence[str] = ()) -> Target:
    """Return the target called `name`: a device, a partition (`h100_sxm:1g.10gb`), `cpu`, or the path of a TOML file.

    >>> target("h100_sxm", ['dram.bandwidth="8 TB/s"']).dram.bandwidth_bytes_per_s
    8000000000000.0
    """
    from nearpeak.targets import target_of

    return target_of(name, edits)


@overload
def bound(cases: Case | Workload, target: str | Target, policy: Policy = ...) -> Bound: ...
@overload
def bound(
    cases: "CaseTable | Mapping[str, Any] | Iterable[Case]", target: str | Target, policy: Policy = ...
) -> "BoundTable": ...


def bound(cases: Any, target: str | Target, policy: Policy = Policy()) -> Any:
    """Return the time that nothing can beat: a Bound for a case or a workload, a BoundTable for many cases.

    Args:
        cases: a Case, several, a Workload, a CaseTable, or columns or a data frame as `case_table` takes them.

    >>> bound(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), "h100_sxm").limiter
    'matrix'
    >>> bound({"op": "gemm", "dtype": "bf16", "m": [1, 4096], "n": 4096, "k": 4096}, "h100_sxm").limiter.tolist()
    ['dram', 'matrix']
    """
    from nearpeak.bounds.bound_table import bound_table
    from nearpeak.bounds.case_bound import case_bound
    from nearpeak.bounds.step.step_bound import step_bound
    from nearpeak.ops.shared.tables.case_table import table_from

    device = device_of(target)
    if isinstance(cases, Case):
        return case_bound(cases, device, policy)
    if isinstance(cases, Workload):
        return step_bound(cases, device, policy)
    return bound_table(table_from(cases, "bound"), device, policy)


def analyze(
    workload: Workload,
    targets: str | Target | Sequence[str | Target],
    policy: Policy = Policy(),
    *,
    execution: str = "",
    software: str = "best",
) -> Analysis:
    """Return the least and the expected time of the workload and of its parts on each target, and what limits them.

    Args:
        software: framework that runs the step, as `predict` takes it; calls without data of it keep the best.
        execution: mode of headline and opportunities, `eager`, `graph` or `compiled`; by default the usual one of the
            workload's source. Times are given in all of them.

    In a step that TensorRT runs, fp32 products may round to TF32, as that engine does by default.

    >>> from nearpeak.core.work.workload import Call
    >>> calls = (Call(case=case("gemm", m=8, n=8, k=8, dtype="bf16"), operator="gemm", phase="forward"),)
    >>> analyze(Workload(name="one", step="sweep", calls=calls), ["h100_sxm"]).covered_count
    1
    """
    from nearpeak.bounds.step.step_analysis import analysis_of
    from nearpeak.prediction.kernel_model import Setting
    from nearpeak.prediction.software_ratio import checked_software
    from nearpeak.prediction.step_expectation import with_expectations

    if not isinstance(workload, Workload):
        raise SpecError(f"analyze: takes a Workload, got {type(workload).__name__}; nearpeak.capture makes one")
    targets = [targets] if isinstance(targets, (str, Target)) else list(targets)
    if not targets:
        raise SpecError("analyze: no target is given; name at least one, e.g. 'h200_sxm'")
    devices = [device_of(name) for name in targets]
    if policy.dtype == "strict" and workload.origin.get("engine", "").startswith("tensorrt"):
        policy = dataclasses.replace(policy, dtype="tf32")
    analysis = analysis_of(workload, devices, policy, version=version())
    setting = Setting(software=checked_software(software))
    return with_expectations(analysis, workload, devices, execution=execution, setting=setting, policy=policy.dtype)


def provision(
    cases: Case | Workload, within_s: float, target: str | Target | None = None, policy: Policy = Policy()
) -> "Provision":
    """Return what a device must have at least so that a case or a step could be done within `within_s` seconds.

    Args:
        target: base target whose figures stand beside the needs.

    >>> found = provision(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), 1e-4, "h100_sxm")
    >>> found.needs[0].resource, round(found.needs[0].factor_ratio, 2), found.reached
    ('products of bf16', 1.28, False)
    """
    from nearpeak.bounds.device_requirements import provision_of

    if not isinstance(cases, (Case, Workload)):
        raise SpecError(f"provision: takes a Case or a Workload, got {type(cases).__name__}")
    return provision_of(cases, within_s, None if target is None else device_of(target), policy)


def capture(
    source: str | Path | Callable[..., object],
    *,
    inputs: Any = None,
    step: str = "forward",
    training: bool | None = None,
    batch: int | None = None,
    sequence: int | None = None,
    kv: int | None = None,
    layers: int | None = None,
    dtype: str | None = None,
    autocast: str | None = None,
    weights: str | None = None,
    activations: str | None = None,
    kv_cache: str | None = None,
    fusion: str | None = None,
    guess_sizes: bool = False,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    input_values: Mapping[str, tuple[float, ...]] | None = None,
    axes: Mapping[str, int] | None = None,
    engine: str | None = None,
    timeout_s: float = 600.0,
    memory_bytes: int = 16 << 30,
) -> Workload:
    """Return the workload of a model step.

    A file or a named model is captured in a child process, as capturing executes it; a callable runs here.

    Args:
        source: a model name, `hf:` and a model type of transformers, a Hugging Face config.json or its folder, a
            problem file (.py), an exported program (.pt2), an ONNX file, a sweep (.toml, .jsonl), a suite
            (.jsonl) or the name of a ready-made one, a log of operator inputs (.txt, .log), a header of DeepBench
            problems (.h), a saved workload (.json), a kernel definition (.json), or a callable or module, which may be
            compiled, scripted, exported or wrapped for data parallelism; a JAX function, jitted or with JAX arrays as
            inputs.
        inputs: positional inputs of a callable, tensors or fake ones; a mapping gives keyword inputs.
        step: `forward` (or `prefill`), `decode`, `train`.
        training: whether modules are in training mode; by default only for `train`, and for problem files.
        layers: most layers of each stack of a model type, all of them when not given.
        autocast: format to which `torch.autocast` on a GPU lowers the step, `bf16` or `fp16`; weights stay fp32.
        weights: format in which weights of repeated layers are stored: `fp8`, `fp8_block`, `mxfp8`, `int8`, `int4`,
            `nvfp4`, `mxfp4` or a scheme's name, `experts=mxfp4` for experts alone; the rest of the step is in bf16.
        activations: format of the activations of these products, where it is not the usual one: `bf16` with `int8`.
        kv_cache: format in which a decode step stores keys and values: `fp8`, `fp8_e5m2`, `int8`.
        fusion: `inductor` gives the calls of TorchInductor's graph, grouped as it would fuse them; forward only.
        guess_sizes: modules and problem files: guess extents that are data (a mask picks everything), and count it;
            ONNX files: give open dimensions a usual extent, and say which.
        shapes: shape of each ONNX input by name.
        input_values: values of ONNX inputs that decide what runs, such as a sample rate; one stands for all elements.
        axes: extent of each variable axis of a kernel definition.
        engine: inference engine that runs the step: `tensorrt`, `onnxruntime`, with `:fp16` or `:int8` where it is told
            to build in that format; bounds and times are then those of its kernels.
    """
    options = CaptureOptions(
        step=step, training=training, batch=batch, sequence=sequence, kv=kv, layers=layers, dtype=dtype,
        autocast=autocast, weights=weights, activations=activations, kv_cache=kv_cache, fusion=fusion,
        guess_sizes=guess_sizes, shapes=shapes or {},
        input_values=input_values or {}, axes=axes or {}, engine=engine,
        timeout_s=timeout_s, memory_bytes=memory_bytes,
    )  # fmt: skip
    return capture_with(source, options, inputs)


def capture_with(source: str | Path | Callable[..., object], options: CaptureOptions, inputs: Any = None) -> Workload:
    """Return the workload of a model step, see `capture`, whose options are one value."""
    from nearpeak.core.work.engine_choice import engine_of
    from nearpeak.frontends.inference_engine.engine_lowering import lowered
    from nearpeak.frontends.source_types import captured, captured_callable, refuse_for_lists
    from nearpeak.suites.suite_names import names_suite, read_suite
    from nearpeak.suites.suite_workload import workload_of

    if options.engine is not None:
        step = capture_with(source, dataclasses.replace(options, engine=None), inputs)
        return lowered(step, engine_of(options.engine))
    if callable(source):
        return captured_callable(source, inputs, options)
    if inputs is not None:
        raise SpecError(f"capture: inputs go with a module or function; {str(source)!r} makes its own")
    if options.axes or options.shapes or options.input_values or not names_suite(source):
        return captured(str(source), options)
    refuse_for_lists(str(source), options)
    return workload_of(read_suite(source))


def device_of(device: str | Target) -> Target:
    """Return the target that is given, or the one of that name.

    >>> device_of("h100_sxm").name
    'h100_sxm'
    """
    if isinstance(device, str):
        return target(device)
    if isinstance(device, Target):
        return device
    raise SpecError(f"target: {device!r} is neither a name nor a Target; give e.g. 'h200_sxm'")


def version() -> str:
    """Return the version of nearpeak, empty when it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return re.sub(r"\+.*", "", version("nearpeak"))
    except PackageNotFoundError:
        return ""
