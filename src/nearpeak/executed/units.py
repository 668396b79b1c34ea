"""On which units the products of a kernel run, told from its name by a table; what no row knows stays unknown."""

import re
import tomllib
from functools import cache
from pathlib import Path


@cache
def _rules() -> tuple[tuple[re.Pattern[str], str], ...]:
    with Path(__file__).with_name("units.toml").open("rb") as file:
        table = tomllib.load(file)
    return tuple((re.compile("|".join(rule["patterns"]), re.IGNORECASE), rule["unit"]) for rule in table["rule"])


@cache
def unit_of_kernel(name: str) -> str:
    """Return `tensor`, `tf32` or `vector`; empty where the name does not tell.

    >>> unit_of_kernel("ampere_sgemm_128x64_tn"), unit_of_kernel("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32")
    ('vector', 'tf32')
    >>> unit_of_kernel("nvjet_tst_128x256_64x4_2x1_v_bz_TNT"), unit_of_kernel("my_kernel")
    ('tensor', '')
    """
    return next((unit for pattern, unit in _rules() if pattern.search(name)), "")
