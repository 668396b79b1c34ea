"""Which devices run the kernels of which others."""

from nearpeak.core.target import Target

_PAIRED_FLOP = 8192
"""FLOP per clock from which multiprocessors multiply tiles of 256 rows in pairs: data-centre Blackwell."""


def multiplies_in_pairs(target: Target) -> bool:
    """Return whether two multiprocessors form a product together, as those of data-centre Blackwell do.

    >>> from nearpeak.targets import target_of
    >>> multiplies_in_pairs(target_of("b200_sxm")), multiplies_in_pairs(target_of("rtx_pro_6000"))
    (True, False)
    """
    unit = target.peaks.get("tensor.bf16")
    return target.vendor == "NVIDIA" and unit is not None and unit.flop_per_clock >= _PAIRED_FLOP


def runs_kernels_of(target: Target, other: Target) -> bool:
    """Return whether libraries run the same kernels on both: workstation Blackwell has the matrix units of Ada.

    >>> from nearpeak.targets import target_of
    >>> ws, h20 = target_of("rtx_pro_6000"), target_of("h20")
    >>> runs_kernels_of(ws, target_of("b200_sxm")), runs_kernels_of(h20, target_of("h100_sxm"))
    (False, True)
    """
    return (target.vendor, _generation(target)) == (other.vendor, _generation(other))


def _generation(target: Target) -> str:
    if multiplies_in_pairs(target):
        return "paired"
    return "ada" if target.architecture.startswith("blackwell") else target.architecture
