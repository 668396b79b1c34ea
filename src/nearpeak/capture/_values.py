"""Known values on fake tensors: small factories computed for real, and an oracle that is counted when it guesses."""

from typing import Any

CONSTANT_ELEMENTS = 65536
"""Fake tensors up to this size carry their values when these are known without any input."""

_VALUE_FREE = frozenset({
    "arange", "zeros", "ones", "full", "eye", "scalar_tensor", "tril_indices", "triu_indices", "linspace",
})  # fmt: skip
_TRUE = frozenset({
    "all", "logical_not", "equal",
})  # fmt: skip
_GUESSES: dict[str, object] = {"bool": False, "int": 1, "float": 0.5, "complex": 0.5}


class Values:
    """Answers questions about values; guesses are counted by the operator that produced the value."""

    def __init__(self, fake_mode: Any) -> None:
        self._fake_mode = fake_mode
        self._producers: dict[int, tuple[str, Any]] = {}
        self.building = False
        self.guesses: dict[str, int] = {}

    def constant(self, func: Any, packet: str, out: Any, args: Any, kwargs: Any) -> Any:
        """Return `out` with its values when `func` is a factory that needs no input; else `out` itself."""
        if packet not in _VALUE_FREE or out.numel() > CONSTANT_ELEMENTS or out.constant is not None:
            return out
        # Fractions are needed by constructors (drop-path rates) and nowhere in the steps themselves.
        if not self.building and (out.is_floating_point() or out.is_complex()):
            return out
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():
            real = func(*args, **kwargs)
        return known(self._fake_mode, real)

    def note(self, packet: str, out: Any) -> None:
        """Remember who produced a truth value."""
        if packet in _TRUE:
            storage = out.untyped_storage()
            self._producers[storage._cdata] = (packet, storage)

    def scalar(self, tensor: Any) -> Any:
        """Return the value of a one-element tensor: the known one, or a guess."""
        constant = getattr(tensor, "constant", tensor)
        if constant is not None:
            from torch._subclasses.fake_tensor import unset_fake_temporarily

            with unset_fake_temporarily():
                return constant.item()
        packet, _ = self._producers.get(tensor.untyped_storage()._cdata, ("", None))
        kind = "bool" if str(tensor.dtype) == "torch.bool" else "float" if tensor.is_floating_point() else "int"
        answer = True if packet in _TRUE else _GUESSES["complex" if tensor.is_complex() else kind]
        return self.guess(packet or kind, answer)

    def guess(self, what: str, answer: object) -> object:
        """Count a guess and return it; constructors may ask whatever they like."""
        if not self.building:
            self.guesses[f"{what} = {answer}"] = self.guesses.get(f"{what} = {answer}", 0) + 1
        return answer

    def assumptions(self) -> tuple[str, ...]:
        """Return what was guessed, in sentences."""
        return tuple(
            f"{count} data-dependent value{'s' if count > 1 else ''} assumed: {what}"
            for what, count in sorted(self.guesses.items())
        )


def known(fake_mode: Any, real: Any) -> Any:
    """Return the fake tensor that carries the values of the small tensor `real`."""
    return fake_mode.fake_tensor_converter.from_real_tensor(fake_mode, real, make_constant=True)
