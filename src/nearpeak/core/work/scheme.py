"""Quantisation schemes of products: storage format and scale-block shape of each operand."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One factor of a product of narrow numbers, seen as rows along which the product sums."""

    dtype: str
    """Format of its elements."""
    row_count: int = 0
    """Rows that share a scale; 0 means all."""
    column_count: int = 0
    """Neighbours along the sum that share a scale; 0 means all."""
    scaled: bool = True
    """False where the operand is not quantised and has no scales."""

    def scale_count(self, rows: int, columns: int) -> int:
        """Return the scales of `rows` by `columns` elements; blocks at the edges may be cut.

        >>> Operand(dtype="fp8_e4m3", row_count=128, column_count=128).scale_count(256, 300)
        6
        """
        if not self.scaled:
            return 0
        high = -(-rows // self.row_count) if self.row_count else 1
        wide = -(-columns // self.column_count) if self.column_count else 1
        return high * wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """Storage of both factors of a product."""

    a: Operand
    """The left factor, activations as a rule; rows are its own."""
    b: Operand
    """The right factor, weights as a rule; rows are the columns of the product."""
    scale: str = "fp32"
    """Format of the scales."""
    out: str = "bf16"
    """Format of the product."""
    zeros: bool = False
    """Each scale of B comes with a zero point in the same format."""
    tensor_scale_count: int = 0
    """fp32 scales of whole tensors, in addition to those of blocks."""
    source: str = field(repr=False)
    """Definition of the scheme."""


_MICIKEVICIUS = "Micikevicius et al. 2022, arXiv:2209.05433, section 3"
_DEEPSEEK = "DeepSeek-AI 2024, arXiv:2412.19437, section 3.3.2"
_MX = "Open Compute Project 2023, OCP Microscaling Formats (MX) Specification 1.0, table 1"
_NVFP4 = "NVIDIA 2025, arXiv:2509.25149, section 2"
_SMOOTH = "Xiao et al. 2022, arXiv:2211.10438, section 2"
_GROUPS = "Frantar et al. 2022, arXiv:2210.17323, section 4"
_PYTORCH = "PyTorch 2.13, torch.nn.functional.ScalingType"


def _alike(dtype: str, rows: int, columns: int, source: str, *, scale: str = "fp32", tensor_scales: int = 0) -> Scheme:
    """Return the scheme whose factors are stored alike."""
    operand = Operand(dtype=dtype, row_count=rows, column_count=columns)
    return Scheme(a=operand, b=operand, scale=scale, tensor_scale_count=tensor_scales, source=source)


def _weights(dtype: str, columns: int, source: str, *, scale: str = "bf16", zeros: bool = False) -> Scheme:
    """Return the scheme whose weights alone are quantised."""
    a, b = Operand(dtype="bf16", scaled=False), Operand(dtype=dtype, row_count=1, column_count=columns)
    return Scheme(a=a, b=b, scale=scale, zeros=zeros, source=source)


SCHEMES: dict[str, Scheme] = {
    "fp8_tensor": _alike("fp8_e4m3", 0, 0, _MICIKEVICIUS),
    "fp8_row": _alike("fp8_e4m3", 1, 0, _PYTORCH),
    "fp8_block": Scheme(
        a=Operand(dtype="fp8_e4m3", row_count=1, column_count=128),
        b=Operand(dtype="fp8_e4m3", row_count=128, column_count=128),
        source=_DEEPSEEK,
    ),
    "fp8_block_1x128": _alike("fp8_e4m3", 1, 128, _DEEPSEEK),
    "mxfp8": _alike("fp8_e4m3", 1, 32, _MX, scale="fp8_e8m0"),
    "mxfp4": _alike("fp4_e2m1", 1, 32, _MX, scale="fp8_e8m0"),
    "nvfp4": _alike("fp4_e2m1", 1, 16, _NVFP4, scale="fp8_e4m3", tensor_scales=2),
    "int8_tensor": _alike("int8", 0, 0, _SMOOTH),
    "int8_row": _alike("int8", 1, 0, _SMOOTH),
    "int8_weight_only": _weights("int8", 0, "PyTorch 2.13, aten::_weight_int8pack_mm"),
    "int4_weight_only": _weights("int4", 128, _GROUPS, zeros=True),
    "int4_weight_only_64": _weights("int4", 64, _GROUPS, zeros=True),
    "int4_weight_only_32": _weights("int4", 32, _GROUPS, zeros=True),
    "mxfp4_weight_only": _weights("fp4_e2m1", 32, _MX, scale="fp8_e8m0"),
}  # fmt: skip
"""All schemes by name; each is a row of the table of number formats too."""
