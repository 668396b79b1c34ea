"""Known values of fake tensors: small factories computed for real, and counted guesses for unknown scalars."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nearpeak.frontends.known_values.data_dependent_sizes import (
    CHOICES,
    CONSTANT_ELEMENTS,
    SIZED_BY_DISTINCT,
    SIZED_BY_VALUES,
    picked,
    routed,
    sized,
)

_SURELY_SMALL_ELEMENTS = 64
"""Inputs with so few elements are computed without checking the size of the result first."""

_VALUE_FREE = frozenset({
    "arange", "zeros", "ones", "full", "eye", "scalar_tensor", "tril_indices", "triu_indices", "linspace", "empty",
})  # fmt: skip
_UNWRITTEN = frozenset({"new_empty", "empty_like", "new_empty_strided"})
"""Uninitialised results; fake tensors would carry whatever the memory held before."""
_TRUE = frozenset({
    "all", "_is_all_true", "logical_not", "equal",
})  # fmt: skip
COMPLEMENTS = "joined with its negation along"
_GUESSES: dict[str, object] = {"bool": False, "int": 1, "float": 0.5, "complex": 0.5}
_GUESSED = "data-dependent value assumed", "data-dependent values assumed"
_READ = "value of the inputs decided what runs", "values of the inputs decided what runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessPolicy:
    """What stands for values that a capture does not know."""

    sizes: bool = False
    """Guess extents that data decide; else they are an error."""
    expert_counts: frozenset[int] = frozenset()
    """Numbers of experts, over which routers choose in turn."""
    selected_count: int | None = None
    """Elements that a condition selects; all if none."""


NO_GUESSES = GuessPolicy()
"""Extents that data decide are an error."""


class Values:
    """Answers queries for values; guesses are counted by the operator that produced the value."""

    def __init__(self, fake_mode: Any, policy: GuessPolicy = NO_GUESSES) -> None:
        """Set the fake mode, and what unknown values are guessed to be."""
        self._fake_mode, self.guess_sizes = fake_mode, policy.sizes
        self.expert_counts, self.selected_count = policy.expert_counts, policy.selected_count
        self._producers: dict[int, tuple[str, Any]] = {}
        self.building = False
        self.guesses: dict[str, int] = {}
        self.size_guess_count = 0
        """Guesses of how many elements a result has, constructors included."""
        self._read: dict[str, int] = {}
        self.of_data: Callable[[Any], bool] = lambda _tensor: False
        """Returns whether inputs determine the known values of a tensor; set by the recorder."""

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of `func`, with values if all inputs are known and the result is small.

        Fake tensors with values compute for real before they look at the size of the result.
        """
        if func._opname in SIZED_BY_VALUES or func._opname in SIZED_BY_DISTINCT:
            args = sized(self, func._opname, args)
        count = picked(*args) if func._opname == "masked_select" else None
        if count is not None:
            return args[0].new_empty(count)
        whole = func._opname == "masked_scatter" and not (args[0].is_floating_point() or args[0].is_complex())
        if whole and self.guess_sizes and getattr(args[0], "constant", None) is not None:
            return self._placeholders_kept(args[0])
        if self.expert_counts and func._opname in CHOICES:
            return routed(self, func._opname, args, func(*args, **kwargs))
        return self._computed(func, args, kwargs)

    def _computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of `func`: computed for real if small, known if it repeats one value."""
        inputs = _all_known((*args, *kwargs.values()))
        at_once = func._schema.is_mutable or func.is_view or func._opname in (*SIZED_BY_VALUES, *SIZED_BY_DISTINCT)
        if func._opname in _UNWRITTEN or (func._opname == "index" and not inputs):
            out = func(*args, **kwargs)
            out.constant = None  # picking by unknown positions starts from memory of known values
            return out
        if at_once or sum(tensor.numel() for tensor in inputs) <= _SURELY_SMALL_ELEMENTS:
            return func(*args, **kwargs)
        values = [(tensor, tensor.constant) for tensor in inputs]
        for tensor in inputs:
            tensor.constant = None
        try:
            out = func(*args, **kwargs)
        finally:
            for tensor, value in values:
                tensor.constant = value
        if func._opname == "_to_copy" and out.numel() > CONSTANT_ELEMENTS:
            real = getattr(args[0], "constant", None)
            if real is not None and not any(real.stride()):  # one element, seen many times
                return self._repeated(func, out, real, kwargs)
        results = out if isinstance(out, (list, tuple)) else (out,)
        small = all(t.numel() <= CONSTANT_ELEMENTS for t in results if hasattr(t, "numel"))
        return func(*args, **kwargs) if small else out

    def _repeated(self, func: Any, out: Any, real: Any, kwargs: Any) -> Any:
        """Return `out`, which holds one known value everywhere, with its values but not their memory."""
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():
            element = func(real[(slice(0, 1),) * real.dim()], **kwargs)
            out.constant = element.expand(real.shape)
        return out

    def _placeholders_kept(self, tensor: Any) -> Any:
        """Return known integers unchanged where data-dependent tokens replace placeholders among them."""
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        self.guess("masked_scatter", "placeholders kept")
        with unset_fake_temporarily():
            real = tensor.constant.clone()
        return self.known(real)

    def constant(self, func: Any, packet: str, out: Any, args: Any, kwargs: Any) -> Any:
        """Return `out` with its values when `func` is a factory that needs no input; else `out` itself."""
        if packet not in _VALUE_FREE or out.numel() > CONSTANT_ELEMENTS or getattr(out, "constant", out) is not None:
            return out
        # Fractions are needed by constructors (drop-path rates), and in the steps themselves where routers count.
        fraction = out.is_floating_point() or out.is_complex()
        if fraction and not (self.building or self.expert_counts):
            return out
        if packet == "empty" and (fraction or not self.guess_sizes):
            return out  # inputs are often made like this
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():
            real = func(*args, **kwargs)
            if packet == "empty":
                real.zero_()  # as good as any other value, and the same in every run
        return self.known(real)

    def known(self, real: Any) -> Any:
        """Return the fake tensor that carries the values of the small tensor `real`."""
        return known(self._fake_mode, real)

    def note(self, packet: str, out: Any, args: Any) -> None:
        """Note the producer of a truth value; a count of all elements, or of no NaN, is an `all`."""
        if packet in _TRUE:
            self._produced(packet, out)
        elif packet == "isnan":
            self._produced("isnan", out)
        elif packet == "bitwise_not" and str(out.dtype) == "torch.bool":
            self._produced(f"not of {args[0].untyped_storage()._cdata}", out)
        elif packet == "cat" and len(args[0]) == 2:
            first, second = args[0]
            if self._producer(second) == f"not of {first.untyped_storage()._cdata}":
                self._produced(f"{COMPLEMENTS} {args[1] if len(args) > 1 else 0}", out)
        elif packet == "sum" and str(args[0].dtype) == "torch.bool":
            self._produced(f"count of {0 if self._producer(args[0]) == 'isnan' else args[0].numel()}", out)
        elif packet == "sum" and not (out.is_floating_point() or out.is_complex()):
            self._produced(f"sum of {args[0].numel() // max(1, out.numel())}", out)
        elif packet in ("max", "amax") and self._producer(args[0]).startswith("sum of"):
            self._produced(self._producer(args[0]), out)
        elif packet == "eq" and self._producer(args[0]) == f"count of {args[1]}":
            self._produced("all", out)

    def _produced(self, what: str, out: Any) -> None:
        storage = out.untyped_storage()
        self._producers[storage._cdata] = (what, storage)

    def complements(self, tensor: Any) -> int | None:
        """Return the dimension along which a truth value stands beside its negation; none for other tensors."""
        what = self._producer(tensor)
        return int(what.split()[-1]) if what.startswith(COMPLEMENTS) else None

    def _producer(self, tensor: Any) -> str:
        producer: str = self._producers.get(tensor.untyped_storage()._cdata, ("", None))[0]
        return producer

    def scalar(self, tensor: Any) -> Any:
        """Return the value of a one-element tensor: the known one, or a guess."""
        constant = getattr(tensor, "constant", tensor)
        if constant is not None:
            from torch._subclasses.fake_tensor import unset_fake_temporarily

            with unset_fake_temporarily():
                answer = constant.item()
            self.read(self._producer(tensor) or "value", answer, tensor)
            return answer
        packet = self._producer(tensor)
        kind = "bool" if str(tensor.dtype) == "torch.bool" else "float" if tensor.is_floating_point() else "int"
        if packet.startswith("sum of"):  # whole numbers that repeat rows are guessed to be one each
            return self.guess("sum", int(packet.split()[-1]))
        answer = True if packet in _TRUE else _GUESSES["complex" if tensor.is_complex() else kind]
        return self.guess(packet or kind, answer)

    def whole_numbers(self, tensor: Any) -> tuple[int, ...] | None:
        """Return the values of a short integer vector, none if they are not known."""
        constant = getattr(tensor, "constant", tensor)
        if constant is None:
            return None
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        self.read("lengths", "as given", tensor)
        with unset_fake_temporarily():
            return tuple(constant.tolist())

    def read(self, what: str, answer: object, tensor: Any) -> None:
        """Count a known value that determines calls, if inputs determine it."""
        if not self.building and self.of_data(tensor):
            self._read[f"{what} = {answer}"] = self._read.get(f"{what} = {answer}", 0) + 1

    def guess_size(self, what: str, answer: object) -> None:
        """Count a guess that decides how many elements a result has."""
        self.size_guess_count += 1
        self.guess(what, answer)

    def guess(self, what: str, answer: object) -> object:
        """Count a guess and return it; guesses in constructors are not counted."""
        if not self.building:
            self.guesses[f"{what} = {answer}"] = self.guesses.get(f"{what} = {answer}", 0) + 1
        return answer

    def guards(self) -> tuple[str, ...]:
        """Return notes on guessed values, and on input values that determined calls."""
        return tuple(
            f"{count} {kind}: {what}"
            for kinds, counts in ((_GUESSED, self.guesses), (_READ, self._read))
            for what, count in sorted(counts.items())
            for kind in (kinds[count > 1],)
        )


def _all_known(arguments: Any) -> list[Any]:
    """Return the tensors among `arguments` if the values of all of them are known, else none."""
    tensors: list[Any] = []
    for argument in arguments:
        for item in argument if isinstance(argument, (list, tuple)) else (argument,):
            if hasattr(item, "untyped_storage"):
                if getattr(item, "constant", None) is None:
                    return []
                tensors.append(item)
    return tensors


def known(fake_mode: Any, real: Any) -> Any:
    """Return the fake tensor that carries the values of the small tensor `real`."""
    return fake_mode.fake_tensor_converter.from_real_tensor(fake_mode, real, make_constant=True)
