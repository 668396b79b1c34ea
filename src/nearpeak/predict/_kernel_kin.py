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


def runs_products_of(target: Target, other: Target) -> bool:
    """Return whether products of matrices run the same kernels, on multiprocessors of about the same size.

    Boards and chips share names of architectures, not matrix units. Hopper is one chip: where its rate is held back,
    as on the H20, multiprocessors are the same.

    >>> from nearpeak.targets import target_of
    >>> h100, a100 = target_of("h100_sxm"), target_of("a100_sxm_80gb")
    >>> runs_products_of(target_of("h20"), h100), runs_products_of(target_of("rtx_3090"), a100)
    (True, False)
    """
    if not runs_kernels_of(target, other):
        return False
    rates = [one.peaks["tensor.bf16"].flop_per_clock for one in (other, target) if "tensor.bf16" in one.peaks]
    if len(rates) != 2:
        return len(rates) == 0
    return target.architecture == "hopper" or max(rates) <= 2 * min(rates)
