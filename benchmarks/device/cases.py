"""What a device report measures: cases that reach roofs, two sizes of each family, one small case of every operator."""

from collections.abc import Iterator

from tests.golden.directed import directed

from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import OPS, case

SIZES = {"small": 0, "full": 1}
"""`small` is for a CPU in seconds, `full` for a GPU in minutes."""


def roof_cases(size: str) -> dict[str, Case]:
    """Return the cases by the roof that they come near to."""
    extent, elements = ((256, 2**20), (8192, 2**28))[SIZES[size]]
    formats = (("fp32", "bf16"), ("fp64", "fp32", "fp16", "bf16"))[SIZES[size]]
    found = {f"product {one}": case("gemm", m=extent, n=extent, k=extent, dtype=one) for one in formats}
    if size == "full":
        found["product fp8"] = case("scaled_gemm", m=extent, n=extent, k=extent, dtype="fp8_e4m3", out_dtype="bf16")
    found["memory read and write"] = case("copy", elements=elements, dtype="fp32")
    found["memory read"] = case("reduce", outputs=1, reduced=elements, dtype="fp32", function="sum")
    found["launch"] = case("elementwise", function="relu", elements=1, dtype="fp32")
    return found


def family_cases(size: str) -> tuple[Case, ...]:
    """Return cases of each family of predictions, in the sizes that models have."""
    return _small() if size == "small" else _full()


def _small() -> tuple[Case, ...]:
    return (
        case("gemm", m=128, n=256, k=128, dtype="fp32"),
        case("softmax", rows=256, columns=512, dtype="fp32"),
    )


def _full() -> tuple[Case, ...]:
    found = [case("gemm", m=m, n=n, k=4096, dtype="bf16") for m in (16, 512, 4096) for n in (4096, 14336)]
    found += [case("gemm", m=2048, n=2048, k=2048, dtype=one) for one in ("fp16", "fp32")]
    found += [
        case("attention", batch=2, heads=32, kv_heads=8, q=q, kv=kv, dim=128, dtype="bf16", causal=q == kv)
        for q, kv in ((1024, 1024), (4096, 4096), (1, 8192))
    ]
    found += [
        case("conv", batch=32, in_channels=c, out_channels=c, h=h, w=h, kh=3, kw=3, ph=1, pw=1, dtype="fp16")
        for c, h in ((64, 56), (256, 14))
    ]
    rows = (512, 16384)
    found += [case("softmax", rows=one, columns=4096, dtype="bf16") for one in rows]
    found += [case("layer_norm", rows=one, hidden=4096, dtype="bf16") for one in rows]
    found += [case("rms_norm", rows=one, hidden=4096, dtype="bf16") for one in rows]
    found += [case("elementwise", function="add", elements=one * 4096, b=one * 4096, dtype="bf16") for one in rows]
    found += [case("reduce", outputs=one, reduced=4096, dtype="fp32", function="sum") for one in rows]
    found += [case("cross_entropy", rows=4096, classes=32000, dtype="fp32")]
    return tuple(found)


def operator_cases(names: tuple[str, ...] = (), place: int = 0) -> Iterator[tuple[str, Case | None, str]]:
    """Yield each operator with its directed case at a place, or why it has none."""
    for name in names or tuple(OPS):
        if place >= len(directed(name)):
            continue
        given = {key: value for key, value in directed(name)[place].items() if key[0] != "_"}
        try:
            yield name, case(name, **{"dtype": "fp32", **given}), ""
        except NearpeakError as error:
            yield name, None, str(error)
