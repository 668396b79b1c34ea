"""Command `nearpeak plan calibrate-serving`: an engine's host times from the user's own benchmark."""

import sys
from pathlib import Path

import typer

from nearpeak.cli.plans.serve_command import cache_of
from nearpeak.cli.shared import options as shared
from nearpeak.core.systems.service_words import replica_of

_RESULTS = typer.Argument(
    help="Results of vllm bench serve, SGLang's bench_serving or AIPerf, or tables (.csv, .parquet) with concurrency, "
    "input_tokens, output_tokens, ttft_ms, tpot_ms."
)


def calibrate_serving(
    results: list[Path] = _RESULTS,
    model: str = typer.Option(..., "--model", help="Model that was served: a name, hf:TYPE, or a config.json."),
    on: str = typer.Option(..., "--on", help="Device that served it, e.g. h100_sxm."),
    engine: str = typer.Option("vllm_v1", "--engine", help="Engine family to start from, or its TOML file."),
    parallel: str = typer.Option("", "--parallel", help="Replica, e.g. tp=2."),
    weights: str = typer.Option("bf16", "--weights", help="Format of weights: bf16, fp8, nvfp4, …"),
    kv_cache: str = typer.Option("bf16", "--kv-cache", help="Format of the cache: bf16 or fp8."),
    input_tokens: int = typer.Option(0, "--input", min=0, help="Tokens of a prompt, where the results do not say so."),
    output_tokens: int = typer.Option(0, "--output", min=0, help="Generated tokens likewise."),
    out: Path | None = typer.Option(None, "--out", help="TOML file of the fitted engine, for --engine FILE."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Fit an engine's host times, at most four, to latencies of your own server at constant concurrency.

    Kernels stay as predicted; what the device waits for is the host's, and differs by machine, version and model.
    `nearpeak plan serve calibrate` is the same command.
    """
    from dataclasses import replace

    from nearpeak.api.serving.engine_calibration import calibrate_engine, served_points
    from nearpeak.api.serving.service_plan import weight_scheme
    from nearpeak.reports.systems import engine_fit_report as report
    from nearpeak.targets import target_of

    shared.check_writable(out)
    as_json = shared.as_json(json=json, text=text)
    points = [
        point for path in results for point in served_points(path, on, input_tokens=input_tokens,
                                                             output_tokens=output_tokens)
    ]  # fmt: skip
    layout = replace(replica_of(parallel), weight_format=weight_scheme(weights), kv_format=cache_of(kv_cache))
    with shared.progress("fitting"):
        fit = calibrate_engine(points, model, target_of(on), layout, engine)
    if out is not None:
        shared.write_whole(out, fit.text)
    if as_json:
        sys.stdout.write(report.to_json(fit) + "\n")
    else:
        shared.print_document(report.document_of(fit, str(out or "")), why=why)
