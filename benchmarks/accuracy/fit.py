"""Fits the coefficients that ship with nearpeak: `python -m benchmarks.accuracy.fit CORPUS`.

Only the devices of ALLOWED and only the folds of FITTED are read for scalars, only INTERVAL for intervals.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.corpus import Block, blocks, folds
from benchmarks.accuracy.names import Product
from nearpeak.predict._form import Setting
from nearpeak.predict.fit import Fit, fit
from nearpeak.predict.forms.gemm import FORM
from nearpeak.targets import target_of

ALLOWED = (
    "aiconfigurator h100_sxm", "aiconfigurator a100_sxm_80gb", "aiconfigurator b200_sxm", "aiconfigurator l40s",
    "neusight", "aiter",
)  # fmt: skip
"""Sources and devices that scalars may be fitted on; others are held out whole."""
ALLOWED_BUCKETS = range(3, 20)
"""Shape buckets that may be read; 0 to 2 are not in the corpus."""
FITTED, INTERVAL = (0, 1), (2,)
SAMPLE = 3000
"""Rows per fit, drawn evenly: more do not move the scalars by what matters."""
SEED = 20261120
LEAST_ROWS = 400
"""Blocks with fewer rows are held out whole."""
ALONE = 2.0
"""How much wider, in logarithms, an interval is where no device can be left out to measure it."""
SOURCES = {
    "aiconfigurator": "ai-dynamo/aiconfigurator 095f58a (Apache-2.0)", "neusight": "sitar-lab/NeuSight 6945927 (MIT)",
    "aiter": "ROCm/aiter e404860 (MIT)",
}  # fmt: skip
FOLDER = Path(__file__).parents[2] / "src/nearpeak/predict/coefficients"


def main() -> None:
    """Fit each allowed block, and all devices of a format together as the prior; write one file per device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    allowed = [block for block in blocks(options.corpus) if is_allowed(block, ALLOWED)]
    files: dict[str, list[str]] = {}
    for block in allowed:
        files.setdefault(block.device, []).append(_own(block))
        print(f"fitted {block.name}", flush=True)
    for maker, dtype in sorted({(maker_of(block), block.product.dtype) for block in allowed}):
        group = [b for b in allowed if b.product.dtype == dtype and maker_of(b) == maker]
        files.setdefault(f"_prior_{maker}", []).append(_prior(group, dtype))
        print(f"fitted {dtype} of all devices of {maker}", flush=True)
    for stem, groups in files.items():
        (options.out / f"{stem}.toml").write_text("\n".join(groups), encoding="utf-8")


def maker_of(block: Block) -> str:
    """Return who made the device of a block, as prior files spell it."""
    return target_of(block.device).vendor.lower()


def times_of(block: Block, rows: Any, target: str = "") -> Any:
    """Return the predicted times of rows of a block as a function of the scalars."""
    device, axes = target_of(target or block.device), {name: column[rows] for name, column in block.axes.items()}
    setting, dtypes = setting_of(block.product), {"dtype": block.product.dtype}
    return lambda scalars: FORM.rows(device, dtypes, axes, np.asarray(scalars), setting).time_s


def setting_of(product: Product) -> Setting:
    """Return how the rows of a block ran."""
    return Setting(quantises_input=product.quantises_input)


def fixed_of(product: Product) -> tuple[str, ...]:
    """Return the scalars that the rows say nothing about."""
    return () if product.quantises_input else ("quantise_s", "quantise_ramp_s", "quantise_passes_count")


def sample(chosen: Any, count: int) -> Any:
    """Return the positions of at most `count` of the chosen rows."""
    rows = np.flatnonzero(chosen)
    return np.sort(np.random.default_rng(SEED).permutation(rows)[:count])


def fitted(block: Block, parts: Sequence[int] = FITTED, count: int = SAMPLE) -> Fit:
    """Return the scalars of one block."""
    rows = sample(np.isin(folds(block), parts), count)
    return fit(FORM, times_of(block, rows), block.measured_s[rows], fixed=fixed_of(block.product))


def fitted_together(group: Sequence[Block], count: int = SAMPLE) -> Fit:
    """Return the scalars that fit several devices at once, each with the same weight."""
    picked = [(block, sample(np.isin(folds(block), FITTED), count // len(group))) for block in group]
    each = [times_of(block, rows) for block, rows in picked]
    measured = np.concatenate([block.measured_s[rows] for block, rows in picked])
    return fit(FORM, lambda v: np.concatenate([one(v) for one in each]), measured, fixed=fixed_of(group[0].product))


def interval(pairs: Sequence[tuple[Block, Any]]) -> dict[str, tuple[float, float]]:
    """Return the 5th and 95th percentile of measured over predicted by regime, on rows that no fit has seen.

    A regime with fewer than 30 rows takes those of all regimes, a fifth wider.
    """
    ratios, regimes = [], []
    for block, values in pairs:
        rows = np.flatnonzero(np.isin(folds(block), INTERVAL))
        axes = {name: column[rows] for name, column in block.axes.items()}
        dtypes = {"dtype": block.product.dtype}
        found = FORM.rows(target_of(block.device), dtypes, axes, values, setting_of(block.product))
        ratios.append(block.measured_s[rows] / found.time_s)
        names = np.array([FORM.regimes[name] for name in FORM.terms], dtype=object)
        regimes.append(names[np.argmax(found.parts_s, axis=1)])
    ratio, regime = np.concatenate(ratios), np.concatenate(regimes)
    low, high = np.quantile(ratio, [0.05, 0.95])
    whole = (min(low, 1.0) ** 1.2, max(high, 1.0) ** 1.2)
    ends = {}
    for name in sorted(set(FORM.regimes.values())):
        own = ratio[regime == name]
        ends[name] = whole if len(own) < 30 else tuple(_conformal(own))
    return ends


def _conformal(ratios: Any) -> tuple[float, float]:
    """Return both ends with the finite-sample rank of split conformal prediction, around 1."""
    high = min(1.0, 0.95 * (len(ratios) + 1) / len(ratios))
    return min(float(np.quantile(ratios, 1 - high)), 1.0), max(float(np.quantile(ratios, high)), 1.0)


def is_allowed(block: Block, allowed: Sequence[str]) -> bool:
    """Return whether scalars may be fitted on a block: those of its sources, with enough rows."""
    return len(block.measured_s) >= LEAST_ROWS and any(block.name.startswith(one) for one in allowed)


def _own(block: Block) -> str:
    """Return the group of one device and format as TOML."""
    found = fitted(block)
    return _group(block.product.dtype, found, interval([(block, found.values)]), [block])


def _prior(group: Sequence[Block], dtype: str) -> str:
    """Return the group of all devices together; its interval comes from leaving each device out in turn."""
    found = fitted_together(group)
    if len(group) == 1:
        ends = interval([(group[0], found.values)])
        return _group(dtype, found, {name: (low**ALONE, high**ALONE) for name, (low, high) in ends.items()}, group)
    left_out = [(one, fitted_together([b for b in group if b is not one], SAMPLE // 2).values) for one in group]
    return _group(dtype, found, interval(left_out), group)


def _group(dtype: str, found: Fit, ends: dict[str, tuple[float, float]], group: Sequence[Block]) -> str:
    """Return one group of a coefficient file."""
    count = sum(int(np.isin(folds(block), FITTED).sum()) for block in group)
    origin = "; ".join(sorted({SOURCES[block.source] for block in group}))
    devices = ", ".join(sorted({block.device for block in group}))
    scalars = [f"{s.name} = {v:.4g}" for s, v in zip(FORM.scalars, found.values, strict=True)]
    lines = [
        f'[groups."{FORM.name}.{dtype}"]', f'version = "{FORM.version}"', f"row_count = {count}",
        f'source = "{origin}; newest software, best implementation per shape; {devices}"',
        f"unidentified = [{', '.join(repr(name).replace(chr(39), chr(34)) for name in found.unidentified)}]",
        f'[groups."{FORM.name}.{dtype}".scalars]', *scalars,
        f'[groups."{FORM.name}.{dtype}".interval]',
        *(f"{name} = [{low:.4f}, {high:.4f}]" for name, (low, high) in ends.items()),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
