"""How the corpus calls devices, and what nearpeak calls them."""

import re

from nearpeak.targets import TARGETS
from nearpeak.targets.device_names import UNKNOWN, known_target

DEVICES = {
    "nvidia_a100_sxm_80gb": "a100_sxm_80gb", "nvidia_a100_pcie_40gb": "a100_pcie_40gb",
    "nvidia_a100_pcie_80gb": "a100_pcie_80gb", "nvidia_h100_sxm": "h100_sxm", "nvidia_h200_sxm": "h200_sxm",
    "nvidia_h800_sxm": "h800_sxm", "nvidia_h20": "h20", "nvidia_b200_sxm": "b200_sxm", "nvidia_b300_sxm": "b300_sxm",
    "nvidia_gb200": "gb200", "nvidia_gb300": "gb300", "nvidia_l40s": "l40s", "nvidia_l4": "l4", "nvidia_t4": "t4",
    "nvidia_rtx_pro_6000": "rtx_pro_6000", "nvidia_p4": "p4", "nvidia_p100_pcie_16gb": "p100_pcie",
    "nvidia_p100_unknown": "p100_pcie", "nvidia_v100_pcie_32gb": "v100_pcie", "nvidia_v100_sxm2": "v100_sxm",
    "nvidia_m40": "m40", "nvidia_1080ti": "gtx_1080_ti", "nvidia_titanx_pascal": "titan_x_pascal",
    "nvidia_titanx_maxwell": "titan_x_maxwell", "nvidia_h100_pcie": "h100_pcie", "nvidia_a30": "a30",
    "amd_mi25": "mi25", "amd_mi100": "mi100", "amd_mi210": "mi210", "amd_mi250x": "mi250x_gcd", "amd_mi300x": "mi300x",
    "amd_mi325x": "mi325x", "amd_mi355x": "mi355x", "nvidia_a6000": "rtx_a6000", "amd_gfx942_304cu": "mi300x",
    "amd_gfx1030_72cu": "rx_6800_xt", "amd_gfx900_56cu": "vega_56", "amd_gfx900_64cu": "vega_64",
}  # fmt: skip
"""Target by the corpus' name of a device; other names are looked up without the maker, then as a driver gives them."""

ELSEWHERE = {
    "amd_gfx906_60cu": "mi50", "amd_gfx906_64cu": "mi60", "amd_gfx908_120cu": "mi100", "amd_gfx90a_104cu": "mi210",
    "amd_gfx90a_110cu": "mi250x_gcd", "intel_b60": "arc_pro_b60",
    "amd_mi250": "mi210",  # one of its two dies, with the units, the clock and the memory of an MI210
}  # fmt: skip
"""Target by a name that other tables of these sources use."""


def target_name(device: str) -> str:
    """Return the target that a corpus calls `device`; the name as it stands where no device file answers to it.

    >>> target_name("nvidia_h100_sxm"), target_name("nvidia_rtx3090"), target_name("NVIDIA H200 SXM")
    ('h100_sxm', 'rtx_3090', 'h200_sxm')
    >>> target_name("h800_sxm"), target_name("mystery_gpu")
    ('h800_sxm', 'mystery_gpu')
    """
    name = re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_")
    plain = name.partition("_")[2]
    stated = next((one for one in (DEVICES.get(name), ELSEWHERE.get(name), name, plain) if one in TARGETS), None)
    if stated is not None:
        return stated
    alike = [one for one in TARGETS if one.replace("_", "") in (name.replace("_", ""), plain.replace("_", ""))]
    found = alike[0] if len(alike) == 1 else known_target(device)
    return device if found == UNKNOWN else found
