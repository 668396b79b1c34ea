"""The bars that predictions are held to, as data: what each is of, which figure, and how much is allowed."""

import math
import re
from dataclasses import dataclass

from benchmarks.accuracy.records import (
    ALL,
    DESIGNED,
    FAMILY,
    GROUP,
    KIN,
    LEFT_OUT,
    MODELS,
    POWER,
    STRANGE,
    Record,
)  # fmt: skip

SITES = "sites"
HALF_PRECISION = r"aiconfigurator .* (bfloat16|fp8|fp8_block|nvfp4)$"
NVLINK, PCIE = r"(_sxm)\b", r"(_pcie_\w+|_pcie|l40s)\b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: the figure of each record that it is of must lie between two ends."""

    text: str
    """What it is of, in words."""
    origin: str
    """Kind of record."""
    value: str
    """Name of the figure."""
    most: float
    """Upper end."""
    least: float = -math.inf
    """Lower end."""
    family: str = ""
    """Family of the records; any where empty."""
    names: str = ""
    """Regular expression that the names of records match."""
    allows_noise: bool = False
    """Whether 1.2 times the difference between versions of one software takes the bar's place where it is larger."""
    is_mean: bool = False
    """Whether only the mean over records counts, not each."""
    is_percent: bool = True
    """Whether figures are shown in percent."""

    def is_of(self, record: Record) -> bool:
        """Return whether a record is held to this bar."""
        return (
            record.origin == self.origin and self.value in record.values
            and self.family in ("", record.family) and re.search(self.names, record.name) is not None
        )  # fmt: skip


def _gemm(origin: str, where: str, whole: float, long: float, names: str) -> tuple[Bar, ...]:
    return (
        Bar(text=f"{where}: all shapes", origin=origin, family="gemm", names=names, value="mean", most=whole),
        Bar(text=f"{where}: above 50 us", origin=origin, family="gemm", names=names, value="long_mean", most=long),
    )


_SEEN = "products in 16 bits and less, device seen, sites unseen"
_OTHER = "products in 16 bits and less, architecture unseen, no data"
_DESIGNED = "products in 16 bits and less, architecture unseen, 30 designed cases"
BARS = (
    *_gemm(SITES, _SEEN, 0.065, 0.05, HALF_PRECISION),
    Bar(text=f"{_SEEN}: 90th percentile", origin=SITES, family="gemm", names=HALF_PRECISION, value="p90", most=0.13),
    Bar(text=f"{_SEEN}: bias", origin=SITES, family="gemm", names=HALF_PRECISION, value="bias", most=0.02),
    *_gemm(KIN, "products, device unseen, architecture seen", 0.08, 0.065, ""),
    *_gemm(LEFT_OUT, f"{_OTHER}, goal", 0.15, 0.12, HALF_PRECISION),
    *_gemm(LEFT_OUT, f"{_OTHER}, floor", 0.20, 0.14, HALF_PRECISION),
    Bar(
        text=f"{_OTHER}: over the roofline's error", origin=LEFT_OUT, family="gemm", names=HALF_PRECISION,
        value="over_roofline", most=0.5, is_percent=False,
    ),
    *_gemm(STRANGE, "products, device and architecture unseen, other sources, floor", 0.20, 0.14, ""),
    *_gemm(DESIGNED, f"{_DESIGNED}, mean of 8 seeds", 0.11, 0.075, HALF_PRECISION),
    Bar(
        text=f"{_DESIGNED}, worst of 8 seeds: above 50 us", origin=DESIGNED, family="gemm", names=HALF_PRECISION,
        value="long_worst", most=0.09,
    ),
    Bar(
        text="fp32 products of NeuSight, sites unseen", origin=SITES, family="gemm", names=r"neusight .* float32",
        value="mean", most=0.12,
    ),
    Bar(
        text="decode attention, sites unseen", origin=SITES, family="attention", names="decode", value="mean",
        most=0.09, allows_noise=True,
    ),
    Bar(
        text="prefill attention, sites unseen", origin=SITES, family="attention", names="context", value="mean",
        most=0.10,
    ),
    Bar(text="attention, device unseen, same architecture", origin=KIN, family="attention", value="mean", most=0.13),
    Bar(text="attention, device left out", origin=LEFT_OUT, family="attention", value="mean", most=0.13),
    Bar(
        text="layers of experts, sites unseen", origin=SITES, family="grouped_gemm", names=" moe ", value="mean",
        most=0.12, allows_noise=True,
    ),
    Bar(
        text="norm, softmax, element-wise above 20 us, sites unseen", origin=SITES, family="stream",
        value="mean_from_20_us", most=0.08,
    ),
    Bar(text="convolutions, sites unseen", origin=SITES, family="conv", value="mean", most=0.20),
    Bar(
        text="convolutions by device: over the roofline's error", origin=GROUP, family="conv", value="over_roofline",
        most=0.5, is_percent=False,
    ),
    Bar(
        text="collectives over NVLink, sizes held out", origin=SITES, family="collective", names=NVLINK, value="mean",
        most=0.05,
    ),
    Bar(
        text="collectives over PCIe, sizes held out", origin=SITES, family="collective", names=PCIE, value="mean",
        most=0.11,
    ),
    Bar(text="90 % intervals, all held-out sites: covered", origin=ALL, value="covered", least=0.88, most=0.93),
    Bar(text="90 % intervals by family and device: covered", origin=GROUP, value="covered", least=0.85, most=0.95),
    Bar(
        text="90 % intervals by family and device: median half width over the mean error", origin=GROUP, value="width",
        most=2.0, is_percent=False,
    ),
    Bar(
        text="power of products on the B200, unseen buckets, through the meter", origin=POWER, value="mean",
        most=0.12,
    ),
    Bar(
        text="power of products on the B200, unseen buckets, as it stands", origin=POWER, value="as_it_stands",
        most=0.12,
    ),
    Bar(
        text="whole models of NeuSight", origin=MODELS, family="neusight", value="mean", most=0.08, is_mean=True,
    ),
    Bar(text="predictions below their bound", origin=ALL, value="below_bound", most=0.0),
    Bar(text="predictions that the bound decides", origin=ALL, value="decided", most=0.005),
    Bar(text="predictions that the bound decides, by family", origin=FAMILY, value="decided", most=0.005),
    Bar(text="measurements from cold caches that beat their bound", origin=ALL, value="beaten", most=0.002),
    Bar(
        text="measurements from cold caches that beat their bound, by family", origin=FAMILY, value="beaten",
        most=0.002,
    ),
    Bar(
        text="measurements from cold caches that beat the bound of classical algorithms", origin=ALL,
        value="beaten_classical", most=0.002,
    ),
    Bar(text="bounds weaker than the plain roofline", origin=ALL, value="weaker", most=0.0),
)  # fmt: skip
"""Every bar of accuracy, in the order in which they were asked for."""
FIGURES = {
    "this CPU, one thread: median error": "cpu_prediction_median",
    "this CPU, one thread: 90th percentile of the error": "cpu_prediction_p90",
    "products predicted per second, one core": "predict_gemm_rate",
    "one product again": "predict_scalar_seconds",
    "one product, its shape new": "predict_new_gemm_seconds",
    "one attention, its shape new": "predict_new_attention_seconds",
    "one softmax, its shape new": "predict_new_softmax_seconds",
    "first call of a process": "predict_first_call_seconds",
    "first call from a read-only installation": "predict_read_only_first_call_seconds",
    "file of a million rows": "predict_file_seconds",
    "a 70B model's step again": "predict_70b_step_seconds",
    "a 70B model's step, its length new": "predict_70b_new_step_seconds",
    "a 70B model's step for the first time after capture": "predict_70b_first_step_seconds",
}
"""Bars that other benchmarks measure: their figures by what they are of."""
