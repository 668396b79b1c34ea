"""The table of element-wise functions: formula, gradients, names in PyTorch, ATen and ONNX."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.base.registry import entry_of
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.reference.formula import Formula, formula, formulas


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One element-wise function of one to three operands."""

    name: str
    """Value of the attribute `function`."""
    text: str
    """Formula in the operands a, b, c."""
    gradients: tuple[str, ...] = ()
    """Formulas of the gradients of a, b, c from that of the result, g; empty when none is modelled."""
    torch: str = ""
    """Callable below `torch`; the function's own name unless given."""
    options: Mapping[str, str | float | bool] = field(default_factory=dict)
    """Keyword arguments of the callable."""
    scalars: tuple[float, float] = (1.5, 0.5)
    """Values of b and c as scalars, in reference and PyTorch call; the work does not depend on them."""
    aten: tuple[str, ...] = ()
    """Further ATen names, without overload; an underscore at the end and `_foreach_` are implied."""
    backward: tuple[str, ...] = ()
    """ATen names of the gradient."""
    onnx: tuple[str, ...] = ()
    """ONNX operator types."""
    takes: Mapping[str, str] = field(default_factory=dict)
    """Required kind of an operand or of the result (`y`), where a number of any format is not accepted: `bool`,
    `int`, `complex`, or `scalar`, a number instead of a tensor."""

    @property
    def forward(self) -> Formula:
        """The function itself."""
        return formula(self.text)

    @property
    def operand_names(self) -> str:
        """Operands in order: `a`, `ab` or `abc`."""
        used = self.forward.operands
        return "abc" if "c" in used else "ab" if "b" in used else "a"

    def gradient_formulas(self, wanted: str) -> tuple[Formula, ...]:
        """Return the formulas of the gradients of the operands `wanted`."""
        if not self.gradients:
            raise NotModelledError(f"elementwise: no rule for the gradient of {self.name}; use phase forward")
        return formulas(*(text for name, text in zip("abc", self.gradients, strict=False) if name in wanted))


def _row(name: str, text: str, *gradients: str, **more: Any) -> Function:
    return Function(name=name, text=text, gradients=gradients, **more)


_F = "nn.functional."
WHOLE = {"a": "int", "b": "int"}
_SQRT_HALF, _SQRT_2_PI, _2_SQRT_PI = "0.7071067811865476", "0.7978845608028654", "1.1283791670955126"
_TANH_ARGUMENT = f"tanh({_SQRT_2_PI} * (a + 0.044715 * a * a * a))"
_DENSITY = "0.3989422804014327 * exp(-0.5 * a * a)"
_SELU_SCALE, _SELU_PRODUCT = "1.0507009873554805", "1.7580993408473766"

_BESSEL = {
    "i0": "i0", "i0e": "i0e", "i1": "i1", "i1e": "i1e", "bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0",
    "bessel_y1": "y1", "modified_bessel_i0": "i0", "modified_bessel_i1": "i1", "modified_bessel_k0": "k0",
    "modified_bessel_k1": "k1", "scaled_modified_bessel_k0": "k0e", "scaled_modified_bessel_k1": "k1e",
}  # fmt: skip
"""Bessel functions below torch.special, with their names in formulas."""
_KINDS = tuple(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw")
_FAMILIES = (
    *((name, name.replace("polynomial_", "")) for name in _KINDS), ("hermite_polynomial_h", "hermite_h"),
    ("hermite_polynomial_he", "hermite_he"), ("laguerre_polynomial_l", "laguerre"),
    ("legendre_polynomial_p", "legendre"),
)  # fmt: skip
"""Polynomials below torch.special, of degree b, with their names in formulas."""
POLYNOMIALS = tuple(name for name, _ in _FAMILIES)
"""Polynomials of degree b; of degree 0 they are 1, even for NaN."""

_ARITHMETIC = (
    _row("add", "a + b", "g", "g", onnx=("Add",)),
    _row("sub", "a - b", "g", "-g", onnx=("Sub",), aten=("subtract",)),
    _row("rsub", "b - a", "-g", "g"),
    _row("mul", "a * b", "g * b", "g * a", onnx=("Mul",), aten=("multiply",)),
    _row("div", "a / b", "g / b", "-(g * a) / (b * b)", onnx=("Div",), aten=("divide", "true_divide")),
    _row("floor_divide", "floor(a / b)"),
    _row("trunc_divide", "trunc(a / b)", torch="div", options={"rounding_mode": "trunc"}),
    _row("remainder", "remainder(a, b)", onnx=("Mod",)),
    _row("fmod", "fmod(a, b)"),
    _row("square", "a * a", "g * 2 * a"),
    _row("cube", "a * a * a", "g * 3 * a * a", torch="pow", options={"exponent": 3}),
    _row("pow", "a ** b", "g * b * a ** (b - 1)", onnx=("Pow",)),
    _row("neg", "-a", "-g", onnx=("Neg",)),
    _row("abs", "abs(a)", "g * sign(a)", onnx=("Abs",)),
    _row("sign", "sign(a)", onnx=("Sign",), aten=("sgn",)),
    _row("floor", "floor(a)", onnx=("Floor",)),
    _row("ceil", "ceil(a)", onnx=("Ceil",)),
    _row("round", "round(a)", onnx=("Round",)),
    _row("trunc", "trunc(a)", aten=("fix",)),
    _row("minimum", "minimum(a, b)", torch="clamp_max", aten=("clamp_max", "fmin"), onnx=("Min",)),
    _row("maximum", "maximum(a, b)", torch="clamp_min", aten=("clamp_min", "fmax"), onnx=("Max",)),
    _row("clamp", "minimum(maximum(a, b), c)", "g * (a >= b) * (a <= c)", scalars=(-1.0, 1.0), onnx=("Clip",)),
    _row("lerp", "a + c * (b - a)", "g * (1 - c)", "g * c"),
    _row("addcmul", "a + b * c", "g", "g * c", "g * b"),
    _row("addcdiv", "a + b / c", "g", "g / c", "-(g * b) / (c * c)"),
    _row("frac", "a - trunc(a)", "g"),
    _row("deg2rad", "0.017453292519943295 * a", "g * 0.017453292519943295"),
    _row("rad2deg", "57.29577951308232 * a", "g * 57.29577951308232"),
    _row("copysign", "copysign(a, b)"),
    _row("signbit", "signbit(a)"),
    _row("heaviside", "where(a == 0, b, a > 0)"),
    _row("ldexp", "ldexp(a, b)"),
    _row("mantissa", "mantissa(a)", aten=("frexp",)),
    _row("nextafter", "nextafter(a, b)"),
    _row("gcd", "gcd(a, b)", takes=WHOLE),
    _row("lcm", "lcm(a, b)", takes=WHOLE),
    _row("left_shift", "left_shift(a, b)", torch="bitwise_left_shift",
         aten=("bitwise_left_shift", "__lshift__", "__ilshift__"), takes=WHOLE),
    _row("right_shift", "right_shift(a, b)", torch="bitwise_right_shift",
         aten=("bitwise_right_shift", "__rshift__", "__irshift__"), takes=WHOLE),
)  # fmt: skip

_SPECIAL = (
    _row("sqrt", "sqrt(a)", "g * 0.5 / y", onnx=("Sqrt",)),
    _row("rsqrt", "rsqrt(a)", "g * -0.5 * y * y * y"),
    _row("reciprocal", "1 / a", "-g * y * y", onnx=("Reciprocal",)),
    _row("exp", "exp(a)", "g * y", onnx=("Exp",)),
    _row("exp2", "exp2(a)", "g * 0.6931471805599453 * y"),
    _row("expm1", "expm1(a)", "g * (y + 1)"),
    _row("log", "log(a)", "g / a", onnx=("Log",)),
    _row("log2", "log2(a)", "g * 1.4426950408889634 / a"),
    _row("log10", "log10(a)", "g * 0.4342944819032518 / a"),
    _row("log1p", "log1p(a)", "g / (a + 1)"),
    _row("sin", "sin(a)", "g * cos(a)", onnx=("Sin",)),
    _row("cos", "cos(a)", "g * -sin(a)", onnx=("Cos",)),
    _row("tan", "tan(a)", "g * (1 + y * y)", onnx=("Tan",)),
    _row("asin", "asin(a)", onnx=("Asin",), aten=("arcsin",)),
    _row("acos", "acos(a)", onnx=("Acos",), aten=("arccos",)),
    _row("atan", "atan(a)", "g / (1 + a * a)", onnx=("Atan",), aten=("arctan",)),
    _row("atan2", "atan2(a, b)", aten=("arctan2",)),
    _row("sinh", "sinh(a)", "g * cosh(a)", onnx=("Sinh",)),
    _row("cosh", "cosh(a)", "g * sinh(a)", onnx=("Cosh",)),
    _row("tanh", "tanh(a)", "g * (1 - y * y)", onnx=("Tanh",), backward=("tanh_backward",)),
    _row("erf", "erf(a)", f"g * {_2_SQRT_PI} * exp(-a * a)", onnx=("Erf",)),
    _row("erfc", "erfc(a)", f"g * -{_2_SQRT_PI} * exp(-a * a)"),
    _row("hypot", "hypot(a, b)", "g * a / y", "g * b / y"),
    _row("logaddexp", "logaddexp(a, b)"),
    _row("xlogy", "where(a == 0, 0, a * log(b))"),
    _row("xlog1py", "where(a == 0, 0, a * log1p(b))", torch="special.xlog1py", aten=("special_xlog1py",)),
    _row("logaddexp2", "logaddexp2(a, b)"),
    _row("asinh", "asinh(a)", onnx=("Asinh",), aten=("arcsinh",)),
    _row("acosh", "acosh(a)", onnx=("Acosh",), aten=("arccosh",)),
    _row("atanh", "atanh(a)", onnx=("Atanh",), aten=("arctanh",)),
    _row("sinc", "where(a == 0, 1, sin(pi * a) / (pi * a))", aten=("special_sinc",)),
    _row("logit", "log(a / (1 - a))", "g / (a * (1 - a))", aten=("special_logit",), backward=("logit_backward",)),
    _row("entr", "where(a > 0, -a * log(a), 0)", torch="special.entr", aten=("special_entr",)),
    _row("angle", "where(a < 0, pi, 0)"),
    _row("polar", "polar(a, b)", takes={"y": "complex"}),
    _row("erfinv", "erfinv(a)", aten=("special_erfinv",)),
    _row("erfcx", "erfcx(a)", torch="special.erfcx", aten=("special_erfcx",)),
    _row("ndtri", "ndtri(a)", torch="special.ndtri", aten=("special_ndtri",)),
    _row("log_ndtr", "log_ndtr(a)", torch="special.log_ndtr", aten=("special_log_ndtr",)),
    _row("lgamma", "lgamma(a)", aten=("mvlgamma", "special_gammaln")),  # a multivariate one holds at least one
    _row("digamma", "digamma(a)", aten=("special_digamma", "special_psi")),
    _row("polygamma", "trigamma(a)", torch="Tensor.polygamma", options={"n": 1}, aten=("special_polygamma",)),
    _row("zeta", "zeta(a, b)", torch="special.zeta", aten=("special_zeta",)),
    _row("igamma", "igamma(a, b)", aten=("special_gammainc",)),
    _row("igammac", "igammac(a, b)", aten=("special_gammaincc",)),
    _row("airy_ai", "airy(a)", torch="special.airy_ai", aten=("special_airy_ai",)),
    _row("spherical_bessel_j0", "where(a == 0, 1, sin(a) / a)", torch="special.spherical_bessel_j0",
         aten=("special_spherical_bessel_j0",)),
    *(_row(name, f"{short}(a)", torch=f"special.{name}", aten=(f"special_{name}",)) for name, short in _BESSEL.items()),
    *(_row(name, f"{short}(a, b)", torch=f"special.{name}", aten=(f"special_{name}",)) for name, short in _FAMILIES),
)  # fmt: skip

_ACTIVATIONS = (
    _row("relu", "maximum(a, 0)", "where(a > 0, g, 0)", onnx=("Relu",), backward=("threshold_backward",)),
    _row("relu6", "minimum(maximum(a, 0), 6)", "g * (a > 0) * (a < 6)", torch=_F + "relu6"),
    _row("hardtanh", "minimum(maximum(a, -1), 1)", "g * (a > -1) * (a < 1)", torch=_F + "hardtanh",
         backward=("hardtanh_backward",)),
    _row("threshold", "where(a > b, a, c)", "where(a > b, g, 0)", torch=_F + "threshold", onnx=("ThresholdedRelu",),
         takes={"b": "scalar", "c": "scalar"}),
    _row("leaky_relu", "where(a > 0, a, 0.01 * a)", "g * where(a > 0, 1, 0.01)", torch=_F + "leaky_relu",
         onnx=("LeakyRelu",), backward=("leaky_relu_backward",)),
    _row("prelu", "where(a > 0, a, b * a)", "where(a > 0, g, b * g)", "where(a > 0, 0, a * g)", torch="_prelu_kernel",
         aten=("_prelu_kernel",), backward=("_prelu_kernel_backward",), onnx=("PRelu",)),
    _row("rrelu", "where(a > 0, a, b * a)", "where(a > 0, g, b * g)", torch="_prelu_kernel",
         aten=("rrelu_with_noise", "rrelu_with_noise_functional"), backward=("rrelu_with_noise_backward",)),
    _row("elu", "where(a > 0, a, expm1(a))", "g * where(a > 0, 1, exp(a))", torch=_F + "elu", onnx=("Elu",),
         backward=("elu_backward",)),
    _row("celu", "where(a > 0, a, expm1(a))", "g * where(a > 0, 1, exp(a))", torch=_F + "celu", onnx=("Celu",)),
    _row("selu", f"where(a > 0, {_SELU_SCALE} * a, {_SELU_PRODUCT} * expm1(a))",
         f"g * where(a > 0, {_SELU_SCALE}, {_SELU_PRODUCT} * exp(a))", torch=_F + "selu", onnx=("Selu",)),
    _row("sigmoid", "sigmoid(a)", "g * y * (1 - y)", onnx=("Sigmoid",), backward=("sigmoid_backward",)),
    _row("log_sigmoid", "minimum(a, 0) - log1p(exp(-abs(a)))", "g * sigmoid(-a)", torch=_F + "logsigmoid",
         aten=("log_sigmoid_forward",), backward=("log_sigmoid_backward",)),
    _row("gelu", f"0.5 * a * (1 + erf({_SQRT_HALF} * a))",
         f"g * (0.5 + 0.5 * erf({_SQRT_HALF} * a) + a * ({_DENSITY}))", torch=_F + "gelu",
         onnx=("Gelu", "com.microsoft.Gelu"), backward=("gelu_backward",)),
    _row("gelu_tanh", f"0.5 * a * (1 + {_TANH_ARGUMENT})",
         f"g * (0.5 + 0.5 * {_TANH_ARGUMENT} + 0.5 * a * (1 - {_TANH_ARGUMENT} * {_TANH_ARGUMENT})"
         f" * {_SQRT_2_PI} * (1 + 0.134145 * a * a))", torch=_F + "gelu", options={"approximate": "tanh"},
         onnx=("com.microsoft.FastGelu",)),
    _row("silu", "a * sigmoid(a)", "g * sigmoid(a) * (1 + a * (1 - sigmoid(a)))", torch=_F + "silu",
         onnx=("Swish",), backward=("silu_backward",)),
    _row("mish", "a * tanh(log1p(exp(a)))",
         "g * (tanh(log1p(exp(a))) + a * (1 - tanh(log1p(exp(a))) * tanh(log1p(exp(a)))) * sigmoid(a))",
         torch=_F + "mish", onnx=("Mish",), backward=("mish_backward",)),
    _row("softplus", "log1p(exp(a))", "g * sigmoid(a)", torch=_F + "softplus", onnx=("Softplus",),
         backward=("softplus_backward",)),
    _row("softsign", "a / (1 + abs(a))", "g / ((1 + abs(a)) * (1 + abs(a)))", torch=_F + "softsign",
         onnx=("Softsign",)),
    _row("hardswish", "a * minimum(maximum(0.16666666666666666 * a + 0.5, 0), 1)",
         "g * where(a < -3, 0, where(a > 3, 1, 0.3333333333333333 * a + 0.5))", torch=_F + "hardswish",
         onnx=("HardSwish",), backward=("hardswish_backward",)),
    _row("hardsigmoid", "minimum(maximum(0.16666666666666666 * a + 0.5, 0), 1)",
         "g * 0.16666666666666666 * (a > -3) * (a < 3)", torch=_F + "hardsigmoid", onnx=("HardSigmoid",),
         backward=("hardsigmoid_backward",)),
    _row("hardshrink", "where(abs(a) > 0.5, a, 0)", "where(abs(a) > 0.5, g, 0)", torch=_F + "hardshrink",
         onnx=("Shrink",), backward=("hardshrink_backward",)),
    _row("softshrink", "where(a > 0.5, a - 0.5, where(a < -0.5, a + 0.5, 0))", "where(abs(a) > 0.5, g, 0)",
         torch=_F + "softshrink", backward=("softshrink_backward",)),
    _row("glu", "a * sigmoid(b)", "g * sigmoid(b)", "g * a * sigmoid(b) * (1 - sigmoid(b))",
         backward=("glu_backward",)),
    _row("swiglu", "a * sigmoid(a) * b", "g * b * sigmoid(a) * (1 + a * (1 - sigmoid(a)))", "g * a * sigmoid(a)"),
)  # fmt: skip

_LOGIC = (
    _row("eq", "a == b", onnx=("Equal",)),
    _row("ne", "a != b", aten=("not_equal",)),
    _row("lt", "a < b", onnx=("Less",), aten=("less",)),
    _row("le", "a <= b", onnx=("LessOrEqual",), aten=("less_equal",)),
    _row("gt", "a > b", onnx=("Greater",), aten=("greater",)),
    _row("ge", "a >= b", onnx=("GreaterOrEqual",), aten=("greater_equal",)),
    _row("logical_and", "logical_and(a, b)", aten=("bitwise_and", "__and__"), onnx=("And", "BitwiseAnd")),
    _row("logical_or", "logical_or(a, b)", aten=("bitwise_or", "__or__"), onnx=("Or", "BitwiseOr")),
    _row("logical_xor", "logical_xor(a, b)", aten=("bitwise_xor", "__xor__"), onnx=("Xor", "BitwiseXor")),
    _row("logical_not", "logical_not(a)", aten=("bitwise_not",), onnx=("Not", "BitwiseNot")),
    _row("where", "where(a, b, c)", "", "where(a, g, 0)", "where(a, 0, g)", onnx=("Where",), takes={"a": "bool"}),
    _row("masked_fill", "where(b, c, a)", "where(b, 0, g)", takes={"b": "bool", "c": "scalar"}),
    _row("isnan", "isnan(a)", onnx=("IsNaN",)),
    _row("isinf", "isinf(a)", onnx=("IsInf",)),
    _row("isposinf", "a == inf"),
    _row("isneginf", "a == -inf"),
    _row("isfinite", "isfinite(a)"),
    _row("nan_to_num", "where(isnan(a), 0, minimum(maximum(a, -3.4e38), 3.4e38))", "where(isfinite(a), g, 0)"),
)

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
NONFINITE = ("isnan", "isinf", "isposinf", "isneginf", "isfinite")
FUNCTIONS: Mapping[str, Function] = {row.name: row for row in (*_ARITHMETIC, *_SPECIAL, *_ACTIVATIONS, *_LOGIC)}
"""All element-wise functions by name."""

LISTED = frozenset(
    (
        "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh",
        "div", "erf", "erfc", "exp", "expm1", "floor", "lerp", "log", "log10", "log1p", "log2", "maximum", "minimum",
        "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan",
        "tanh", "trunc",
    )
)  # fmt: skip
"""ATen names that exist for lists of tensors too, as `_foreach_<name>`."""


def function_of(name: str) -> Function:
    """Return the function called `name`.

    >>> function_of("silu").forward.flop_count, function_of("silu").forward.special_count
    (1, 1)
    """
    return entry_of("function", FUNCTIONS, name)
