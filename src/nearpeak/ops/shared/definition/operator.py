"""The Operator class: rules of work, references, framework matchers and tolerance of one operator."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.family import FAMILIES
from nearpeak.core.work.scheme import Scheme
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError, SpecError, shown
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.axis_checks import choice_of
from nearpeak.ops.shared.definition.memory_layout import memory_of
from nearpeak.ops.shared.definition.tolerance import Tolerance

Value = int | str | bool
Arrays = Mapping[str, Any]
"""Named NumPy arrays or torch tensors."""
Explicit = tuple[dict[str, Any], Mapping[str, tuple[str, Callable[[Any], Any]]]]
IGNORED = -100
"""Target of rows that do not count: the default of torch.nn.functional.cross_entropy and nll_loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtenSite:
    """One dispatched ATen call: arguments by schema name with defaults written out."""

    name: str
    """Overload, e.g. `aten.addmm.default`."""
    args: Mapping[str, Any]
    """Tensor, list of Tensor, scalar or none, by argument name."""
    outputs: tuple[Tensor, ...]
    """Tensors returned, in order; those that are none are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxSite:
    """One ONNX node with known shapes."""

    name: str
    """Operator type, e.g. `Conv`."""
    inputs: tuple[Tensor | None, ...]
    """Inputs in order; none where an optional one is left out."""
    outputs: tuple[Tensor, ...]
    """Outputs in order."""
    attributes: Mapping[str, Any]
    """Attributes as Python values."""
    constants: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    """Values of small constant inputs by position, flattened."""

    def optional(self, position: int) -> Tensor | None:
        """Return the input at `position`; none where it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def tensor(self, position: int) -> Tensor:
        """Return the input at `position`, refused where it is left out or its shape is unknown."""
        tensor = self.optional(position)
        if tensor is None:
            raise NotModelledError(f"{self.name}: input {position} is packed, or its shape is not known")
        return tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The case of an operator that a framework's call corresponds to."""

    arguments: Mapping[str, Value]
    """Axes, dtypes and attributes of the rule."""
    phase: str = "forward"
    """`forward` or `backward` of the operator."""
    touched_bytes: Mapping[str, int] = field(default_factory=dict)
    """Distinct bytes read of an input (argument name or ONNX position), or written (`write:name`), if not all."""
    call_count: int = 1
    """Number of kernels of this case that the call launches."""
    op: str = ""
    """Operator of the case; empty for the one whose file claims the call."""


Matcher = Callable[[Any], "Match | tuple[Match, ...]"]
"""Takes an AtenSite or OnnxSite; returns the case, or several when the call launches several kernels."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of the catalogue; every operator file ends with one, called OPERATOR."""

    forward: Callable[..., Work]
    """Rule of work: int parameters are axes, DType ones formats, str and bool ones attributes."""
    family: str
    """Group in reports: one of core.family.FAMILIES."""
    tolerance: Tolerance
    """Tolerance against the references."""
    inputs: Callable[..., dict[str, Tensor]]
    """Tensors that the operator reads, from the arguments of the rule."""
    reference: Callable[..., dict[str, Any]]
    """(arrays, **arguments) → outputs by name, in float64 NumPy."""
    torch_call: Callable[..., dict[str, Any]]
    """(tensors, **arguments) → outputs by name, with PyTorch."""
    valid: Callable[..., dict[str, Any]] | None = None
    """(random arrays, **arguments) → inputs that satisfy their constraints: sorted offsets, lengths that add up."""
    backward: Callable[..., Work] | None = None
    """Rule of work of the gradient; none when it has none."""
    backward_reference: Callable[..., dict[str, Any]] | None = None
    """(arrays with `grad_<output>`, **arguments) → `grad_<input>` by name, in float64 NumPy."""
    aten: Mapping[str, Matcher] = field(default_factory=dict)
    """ATen overloads that are this operator."""
    onnx: Mapping[str, Matcher] = field(default_factory=dict)
    """ONNX operator types that are this operator."""
    same: Mapping[str, str] = field(default_factory=dict)
    """Axes that default to the extent of another axis; their parameters are `int | None = None`."""
    schemes: bool = False
    """Whether `dtype` may name a scheme of quantised products (`fp8_block`, `nvfp4`, …) instead of a format."""
    data_axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Axes that count values of indices, masks or routers, each with its upper limits: axes or products of axes such as
    `h*w`. At its default such an axis is unknown, and the rule takes the least value."""
    degree_count: int = 1
    """Highest power of one extent in a count; tables use it to tell which rows could overflow 64 bits."""
    assumptions: tuple[str, ...] = ()
    """Identifiers of assumptions that the rule makes in addition to those of every bound."""
    fewest: Mapping[str, Callable[..., int]] = field(default_factory=dict)
    """By phase, (**arguments of the rule) → multiplications that any bilinear algorithm needs; 0 without an entry."""
    subtracted: Callable[..., dict[str, Any]] | None = None
    """(arrays, **arguments) → by output, in its units, the magnitude of a subtracted intermediate, such as a mean."""
    passed: Callable[..., dict[str, Any]] | None = None
    """(arrays with `grad_<output>`, **arguments) → by gradient, the magnitude of the terms that cancel in it."""
    stored: Callable[..., dict[str, Any]] | None = None
    """(arrays, store, **arguments) → the reference's outputs with intermediates in a format of their own: each passes
    through `store(array, format)`, which rounds as a correct implementation may."""
    kept: Callable[..., dict[str, Any]] | None = None
    """(arrays, keep, **arguments) → outputs; the intermediate that may have the output's format is `keep(array)`."""
    edges: Callable[..., Any] | None = None
    """(**arguments) → discontinuities of the results: `edges` draws inputs next to them, `jumps` at them."""
    ranked: Callable[..., dict[str, Any]] | None = None
    """(arrays, **arguments) → the computed values in which outputs are positions, where these are not an input."""
    at_positions: Callable[..., dict[str, Any]] | None = None
    """(tensors and positions, **arguments) → float outputs at these positions with PyTorch, for gradients of ties."""
    as_right: Callable[..., dict[str, Any]] | None = None
    """(input tensors, outputs, expected arrays, **arguments) → outputs, with correct alternatives made equal."""
    canonical: Callable[..., dict[str, Any]] | None = None
    """(outputs by name, arrays or tensors, **arguments) → a canonical form where several results are correct: signs of
    factors and order of eigenvalues chosen, columns that complete a basis replaced by the projection on their span."""
    explicit: Callable[..., Explicit | None] | None = None
    """(**arguments) → an equivalent case with a further input, such as a mask; by input, an axis and its rows."""
    draws: bool = False
    """Whether the operator draws random numbers, so that its results differ from call to call."""
    listed: Mapping[str, Mapping[str, Mapping[str, Value]]] = field(default_factory=dict)
    """All values of a choice with dozens of them, and the arguments that each needs; directed cases cover each once."""
    source: str = ""
    """Paper, standard or derivation of the rule; by default, the `Source:` paragraph of its docstring."""
    version: int = 1
    """Raised when the meaning of a case changes."""

    def __post_init__(self) -> None:
        """Refuse a family that no report knows, and read the source from the rule's docstring."""
        if self.family not in FAMILIES:
            raise SpecError(f"{self.name}: family={self.family!r} is not one of {', '.join(FAMILIES)}")
        stated = self.description.partition("Source: ")[2].partition("\n\n")[0]
        object.__setattr__(self, "source", self.source or " ".join(stated.split()).removesuffix("."))

    @property
    def name(self) -> str:
        """Name of the operator: that of its rule."""
        return self.forward.__name__

    @property
    def summary(self) -> str:
        """First line of the rule's docstring."""
        return (inspect.getdoc(self.forward) or "").splitlines()[0]

    @property
    def description(self) -> str:
        """The rule's docstring up to its example: shapes, what is counted, axes, sources."""
        return (inspect.getdoc(self.forward) or "").split(">>>")[0].strip()

    def expected(self, arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
        """Return the reference's outputs in their canonical form, in which results are compared."""
        outputs = self.reference(arrays, **arguments)
        return outputs if self.canonical is None else self.canonical(outputs, **arguments)

    @cached_property
    def signatures(self) -> Mapping[str, "Signature"]:
        """Signature of each phase."""
        rules = {"forward": self.forward, "backward": self.backward}
        return {
            phase: Signature.of(self.name, rule, self.same, self.schemes)
            for phase, rule in rules.items()
            if rule is not None
        }

    def rule(self, phase: str) -> Callable[..., Work]:
        """Return the rule of work of `phase`, refused when there is none."""
        if phase not in ("forward", "backward"):
            raise SpecError(f"{self.name}: phase {phase!r} is not forward or backward")
        rule = {"forward": self.forward, "backward": self.backward}.get(phase)
        if rule is None:
            raise NotModelledError(f"{self.name}: no rule for phase {phase!r}; it has {', '.join(self.signatures)}")
        return rule

    def work(self, phase: str, algorithm: str, arguments: Mapping[str, Any]) -> Work:
        """Return the least work by `classical` algorithms, or by `any` bilinear one: Winograd, Strassen, FFT.

        A multiplication takes the place of one multiply-add; the additions of such an algorithm are not counted.
        """
        work = self.rule(phase)(**arguments)
        if algorithm == "classical":
            return work
        fewest = self.fewest[phase](**arguments) if phase in self.fewest else 0
        flop = {
            kind: minimum(flop, 2 * fewest) if kind.startswith("matrix.") else flop for kind, flop in work.flop.items()
        }
        return replace(work, flop=flop, recompute_flop={})

    def case(self, phase: str = "forward", **arguments: Value) -> Case:
        """Return the case with defaults written out; wrong names and values are refused by name.

        Arguments with a dot, `NAME.layout` and `NAME.offset`, say how inputs lie in memory.
        """
        self.rule(phase)
        layouts = {name: value for name, value in arguments.items() if "." in name}
        if not layouts:
            return self.signatures[phase].case(phase, arguments)
        plain = {name: value for name, value in arguments.items() if name not in layouts}
        dense = self.signatures[phase].case(phase, plain)
        return replace(dense, memory=memory_of(self.name, self.inputs(**self.forward_arguments(dense)), layouts))

    def forward_case(self, case: Case) -> Case:
        """Return the forward pass that `case` is, or whose gradient it is; inputs lie in memory as they do there.

        Arguments that the gradient's case does not state have their defaults; what has a gradient is present.
        """
        if case.phase == "forward":
            return case
        signature = self.signatures["forward"]
        arguments: dict[str, Any] = {**dict(case.axes), **dict(case.dtypes), **dict(case.attributes)}
        present = {name: arguments[f"grad_{name}"] for name in signature.attributes if f"grad_{name}" in arguments}
        known = {name: value for name, value in (present | arguments).items() if name in signature.names()}
        return replace(signature.case("forward", known), memory=case.memory)

    def forward_arguments(self, case: Case) -> dict[str, Any]:
        """Return the arguments of rule, reference and call of the forward pass that `case` belongs to."""
        whole = self.forward_case(case)
        return {**dict(whole.axes), **dict(whole.dtypes), **dict(whole.attributes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters of a rule, by role."""

    op: str
    """Operator name."""
    axes: tuple[str, ...]
    """Int parameters."""
    dtypes: tuple[str, ...]
    """DType parameters; those after the first default to the first unless the rule says otherwise."""
    attributes: Mapping[str, type]
    """Str and bool parameters with their type."""
    defaults: Mapping[str, Value | None]
    """Defaults, formats by name; a parameter without one is required."""
    same: Mapping[str, str]
    """Axes that default to the extent of another axis."""
    schemes: bool = False
    """Whether the first format may be a scheme."""

    @staticmethod
    def of(op: str, rule: Callable[..., Work], same: Mapping[str, str], schemes: bool = False) -> "Signature":
        """Return the signature of `rule`."""
        parameters = inspect.signature(rule, eval_str=True).parameters.values()
        return Signature(
            op=op,
            axes=tuple(p.name for p in parameters if p.annotation in (int, int | None)),
            dtypes=tuple(p.name for p in parameters if p.annotation in (DType, DType | None)),
            attributes={p.name: p.annotation for p in parameters if p.annotation in (str, bool)},
            defaults={
                p.name: p.default.name if isinstance(p.default, DType) else p.default
                for p in parameters
                if p.default is not inspect.Parameter.empty
            },
            same=same,
            schemes=schemes,
        )

    def names(self) -> tuple[str, ...]:
        """Return all parameter names."""
        return (*self.axes, *self.dtypes, *self.attributes)

    def case(self, phase: str, arguments: Mapping[str, Value]) -> Case:
        """Return the case that `arguments` state."""
        for name in arguments:
            if name not in self.names():
                raise unknown_axis(self.op, name, self.names())
        axes = tuple((name, self._extent(name, arguments)) for name in self.axes)
        dtypes = tuple((name, self._format(name, arguments)) for name in self.dtypes)
        attributes = tuple((name, self._attribute(name, arguments)) for name in self.attributes)
        return Case(op=self.op, phase=phase, axes=axes, dtypes=dtypes, attributes=attributes)

    def _extent(self, name: str, arguments: Mapping[str, Value]) -> int:
        value = arguments.get(name, self.defaults.get(name))
        if value is None and name in self.same:
            return self._extent(self.same[name], arguments)
        if value is None:
            raise SpecError(f"{self.op}: axis {name!r} is missing; give {name}=EXTENT")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SpecError(f"{self.op}: {name}={shown(value)} is not a whole number of at least 0")
        if value >= 2**63:  # tables of cases hold no more
            raise SpecError(f"{self.op}: {name}={shown(value)} is beyond 2^63 - 1, the most that an axis may be")
        return value

    def _format(self, name: str, arguments: Mapping[str, Value]) -> str:
        value = arguments.get(name, self.defaults.get(name)) or arguments.get(self.dtypes[0])
        if value is None:
            raise SpecError(f"{self.op}: {name!r} is missing; give {name}=bf16, fp32, …")
        dtype = dtype_of(value if isinstance(value, str) else str(value))
        if dtype.scheme is None:
            return dtype.name
        return self._of_scheme(name, dtype, dtype.scheme, is_stated=name in arguments)

    def _of_scheme(self, name: str, dtype: DType, scheme: Scheme, *, is_stated: bool) -> str:
        """Return the format called `name` where the first one is a scheme, which says what the others are."""
        if not self.schemes:
            raise SpecError(f"{self.op}: {name}={dtype.name} is a scheme of quantised products; give a number format")
        if name == self.dtypes[0]:
            return dtype.name
        if is_stated:
            raise SpecError(f"{self.op}: {name}={dtype.name} is a scheme; only {self.dtypes[0]} may be one")
        return scheme.b.dtype if name == "b_dtype" else scheme.out

    def _attribute(self, name: str, arguments: Mapping[str, Value]) -> str | bool:
        return choice_of(self.op, name, arguments.get(name, self.defaults.get(name)), self.attributes[name])


def unknown_axis(op: str, name: str, known: tuple[str, ...]) -> SpecError:
    """Return the error for a parameter that the operator does not have."""
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.4)
    near = f"did you mean {', '.join(close)}?" if close else ""
    return SpecError(f"{op}: no axis {name!r}; {near + ' ' if near else ''}it has {', '.join(known)}")
