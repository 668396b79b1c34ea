"""A realistic analysis for tests of reports: a decoder's training step on several devices, with hostile names."""

from nearpeak.core.answers.analysis import (
    Analysis,
    CaseRow,
    CaseTime,
    Fit,
    MemoryUse,
    Opportunity,
    Share,
    TargetAnalysis,
)
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.case import Case

HOSTILE = "</script><script>alert(1)</script>\x1b[31m<!-- [bold]layers[/bold] | `x`"

DEVICES = (
    # name, title, matrix FLOP/s, byte/s, capacity, launch floor
    ("h200_sxm", "NVIDIA H200 SXM", 989.4e12, 4.8e12, 141 * 10**9, 1.4e-6),
    ("mi300x", "AMD Instinct MI300X", 1307.4e12, 5.3e12, 192 * 10**9, None),
    ("b200", "NVIDIA B200", 2250e12, 8e12, 180 * 10**9, 1.2e-6),
    ("a100_80gb", "NVIDIA A100 80GB", 312e12, 2.039e12, 80 * 10**9, 2.0e-6),
    ("l4", "NVIDIA L4", 121e12, 300e9, 24 * 10**9, None),
    ("jetson_orin_nano", "NVIDIA Jetson Orin Nano with a long marketing name", 10e12, 68e9, None, None),
)


FAMILY_OF = {
    "gemm": "product", "conv": "convolution", "attention": "attention", "softmax": "norm", "rms_norm": "norm",
    "copy": "movement", "max_pool": "reduction", "adamw": "optimizer",
}  # fmt: skip


def case_row(op, axes, *, phase="forward", module="layers.*", calls=32, matrix=0, total=0, read=0, write=0, source=""):
    case = Case(
        op=op,
        phase="backward" if phase == "backward" else "forward",
        axes=tuple(axes.items()),
        dtypes=(("dtype", "bf16"),),
        attributes=(("causal", True),),
    )
    return CaseRow(
        case=case,
        label=case.label(),
        family=FAMILY_OF.get(op, "pointwise"),
        phase=phase,
        module=module,
        source=source or f"modeling_llama.py:{len(op) * 37}",
        call_count=calls,
        matrix_flop=matrix,
        total_flop=total or matrix,
        read_bytes=read,
        write_bytes=write,
    )


def gemm(m, n, k, **more):
    flop = 2 * m * n * k
    return case_row(
        "gemm", {"m": m, "n": n, "k": k}, matrix=flop, total=flop, read=2 * (m * k + k * n), write=2 * m * n, **more
    )


def pointwise(op, count, flop, **more):
    return case_row(op, {"count": count}, total=flop * count, read=4 * count, write=2 * count, **more)


def decoder_rows(tokens=2048, hidden=4096, inner=14336, vocabulary=128256):
    rows = []
    for phase, times in (("forward", 1), ("backward", 2)):
        for n, k, module in (
            (hidden, hidden, "model.layers.*.self_attn.q_proj"),
            (1024, hidden, "model.layers.*.self_attn.k_proj"),
            (hidden, inner, "model.layers.*.mlp.down_proj"),
            (inner, hidden, "model.layers.*.mlp.gate_proj"),
        ):
            rows.append(gemm(tokens, n, k, phase=phase, module=module, calls=32 * times))
        rows.append(gemm(tokens, vocabulary, hidden, phase=phase, module="lm_head", calls=times))
        attention = 2 * 32 * tokens * tokens * 128 * times
        rows.append(
            case_row(
                "attention",
                {"heads": 32, "q": tokens, "kv": tokens, "dim": 128},
                phase=phase,
                matrix=attention,
                total=attention * 2,
                read=6 * tokens * hidden,
                write=2 * tokens * hidden,
                module="model.layers.*.self_attn",
            )
        )
        rows.append(
            pointwise("rms_norm", tokens * hidden, 4, phase=phase, module="model.layers.*.input_layernorm", calls=64)
        )
        rows.append(pointwise("add", tokens * hidden, 1, phase=phase, module="model.layers.*", calls=64))
        rows.append(pointwise("silu", tokens * inner, 5, phase=phase, module=f"model.layers.*.{HOSTILE}"))
    rows.append(pointwise("adamw", 8_030_261_248, 14, phase="optimizer", module="", calls=1))
    rows.append(
        case_row(
            "embedding",
            {"rows": tokens, "hidden": hidden},
            read=2 * tokens * hidden,
            write=2 * tokens * hidden,
            module="model.embed_tokens",
            calls=1,
        )
    )
    rows.append(
        case_row(
            "copy",
            {"count": tokens * hidden},
            read=2 * tokens * hidden,
            write=2 * tokens * hidden,
            phase="backward",
            module="model.layers.*.self_attn",
            source=f"{HOSTILE}.py:1",
        )
    )
    return tuple(rows)


def case_time(row, rate, bandwidth, measured):
    terms = {"dram": (row.read_bytes + max(0, row.write_bytes - 50e6)) / bandwidth, "vector": row.total_flop / rate * 4}
    if row.matrix_flop:
        terms["matrix"] = row.matrix_flop / rate
    limiter = max((name for name in terms if name != "vector"), key=lambda name: terms[name])
    bound_s = terms[limiter]
    factor = 0.8 if row.case.op == "add" else 1.7
    return CaseTime(bound_s=bound_s, limiter=limiter, terms_s=terms, measured_s=bound_s * factor if measured else None)


def shares(rows, times, names):
    total_s = sum(time.bound_s * row.call_count for row, time in zip(rows, times, strict=True))
    found = {}
    for row, time, name in zip(rows, times, names, strict=True):
        calls, limited = found.get(name, (0, {}))
        limited = {**limited, time.limiter: limited.get(time.limiter, 0.0) + time.bound_s * row.call_count}
        found[name] = (calls + row.call_count, limited)
    parts = [
        Share(
            name=name,
            call_count=calls,
            time_s=sum(limited.values()),
            share_ratio=sum(limited.values()) / total_s,
            limiter_s=limited,
        )
        for name, (calls, limited) in found.items()
    ]
    return tuple(sorted(parts, key=lambda part: -part.time_s))


def target_analysis(device, rows, memory, *, measured=False):
    name, title, rate, bandwidth, capacity, floor_s = device
    times = tuple(case_time(row, rate, bandwidth, measured) for row in rows)
    unfused_s = sum(time.bound_s * row.call_count for row, time in zip(rows, times, strict=True))
    calls = sum(row.call_count for row in rows)
    fits = None if capacity is None else memory.peak_bytes <= capacity
    return TargetAnalysis(
        target=name,
        title=title,
        measured_roofs=measured,
        matrix_unit="tensor.bf16",
        matrix_flop_per_s=rate,
        dram_bytes_per_s=bandwidth,
        bound_s=unfused_s * 0.71,
        limiter="matrix",
        terms_s={"dram": unfused_s * 0.31, "matrix": unfused_s * 0.71},
        chained_s=unfused_s * 0.88,
        unfused_s=unfused_s,
        launch_floor_s=None if floor_s is None else floor_s * calls,
        times=times,
        by_phase=shares(rows, times, [row.phase for row in rows]),
        by_operator=shares(rows, times, [row.case.op for row in rows]),
        by_module=shares(rows, times, [row.module for row in rows]),
        opportunities=opportunities(unfused_s),
        fit=Fit(
            fits=fits, capacity_bytes=capacity, largest_batch_count=None if capacity is None else (2 if fits else 0)
        ),
        assumptions=("A1", "A2", "A3", "A4", "A5", "A6", "A7", "A9", "A11"),
        unverified=("l2.bandwidth",) if name == "b200" else (),
    )


def opportunities(unfused_s):
    return (
        Opportunity(
            kind="precision",
            title="Form the products in fp8 where accuracy allows.",
            where="gemm",
            gain_s=unfused_s * 0.34,
            evidence="71 % of the time is limited by matrix units, which do fp8 twice as fast.",
        ),
        Opportunity(
            kind="fusion",
            title="Fuse the element-wise operators into the products before them.",
            where=f"model.layers.*.{HOSTILE}",
            gain_s=unfused_s * 0.12,
            evidence="They read and write 41 GB that need not leave the chip.",
        ),
        Opportunity(
            kind="launch",
            title="Capture the step as a graph.",
            where="whole step",
            gain_s=unfused_s * 0.004,
            evidence="Launches.",
        ),
    )


MEMORY = MemoryUse(
    weight_bytes=16_060_522_496,
    gradient_bytes=16_060_522_496,
    state_bytes=64_242_089_984,
    kv_cache_bytes=0,
    input_bytes=16_384,
    activation_peak_bytes=21_474_836_480,
    peak_bytes=112_000_000_000,
)


def analysis(
    *, devices=DEVICES, rows=None, complete=False, measured=False, name="Llama-3-8B shaped decoder", **changes
):
    """Return an analysis; `measured` adds a last target with measurements, one of them below its bound."""
    rows = decoder_rows() if rows is None else rows
    calls = sum(row.call_count for row in rows)
    targets = [target_analysis(device, rows, MEMORY) for device in devices]
    if measured:
        cpu = ("cpu", "This machine's CPU", 0.4e12, 30e9, 16 * 10**9, 1e-6)
        targets.append(target_analysis(cpu, rows, MEMORY, measured=True))
    fields = {
        "name": name,
        "step": "train",
        "batch_count": 1,
        "dtype": "bf16",
        "origin": {
            "dimensions": "published by Meta in the model's card",
            "model": "llama-3-8b",
            "file": f"/models/{HOSTILE}",
        },
        "capture_assumptions": ("Shapes are those of the example input; other branches are not seen.",),
        "policy": Policy(),
        "rows": rows,
        "call_count": calls if complete else calls + 3,
        "covered_count": calls,
        "uncovered": {} if complete else {"aten.cumsum.default": 2, HOSTILE: 1},
        "skipped_count": 1834,
        "matrix_flop": sum(row.matrix_flop * row.call_count for row in rows),
        "total_flop": sum(row.total_flop * row.call_count for row in rows),
        "fused_bytes": 93_500_000_000,
        "unfused_bytes": sum((row.read_bytes + row.write_bytes) * row.call_count for row in rows),
        "parameter_count": 8_030_261_248,
        "memory": MEMORY,
        "targets": tuple(targets),
        "created": "nearpeak 0.1.0 on Python 3.11",
    }
    return Analysis(**{**fields, **changes})


def many_rows(count):
    """Return `count` distinct cases of all families, some without FLOP."""
    operators = ("gemm", "conv", "attention", "add", "softmax", "copy", "max_pool", "adamw")
    rows = []
    for number in range(count):
        op, size = operators[number % len(operators)], 1024 * (1 + number)
        flop = {"gemm": size * 4000, "conv": size * 900, "attention": size * 300}.get(op, 0)
        total = flop or (0 if op == "copy" else size * 3)
        rows.append(
            case_row(
                op,
                {"count": size},
                module=f"block.{number % 17}.part",
                matrix=flop,
                total=total,
                read=size * 4,
                write=size * 2,
            )
        )
    return tuple(rows)
