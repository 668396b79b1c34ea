"""Provenance of tensor contents that do not depend on inputs, so that pieces can be recomputed on demand."""

from collections.abc import Iterator
from typing import Any

from nearpeak.frontends.known_values.constant_patterns import is_pattern
from nearpeak.frontends.known_values.tensor_pieces import MOST_MIXED, Data, Filled, Given, Origin, Part, Patched, Result
from nearpeak.frontends.known_values.value_spans import rule_of
from nearpeak.frontends.torch.operator_schema import CALL, GENERATORS, Plan

_FILLED: dict[str, Any] = {"zeros": 0, "new_zeros": 0, "zeros_like": 0, "ones": 1, "new_ones": 1, "ones_like": 1}
_FILL_POSITION = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0}
_COUNTED = frozenset({"arange", "eye", "linspace", "logspace", "tril_indices", "triu_indices"})
_OVERWRITERS = frozenset({"fill_", "zero_", "copy_"})


class Origins:
    """Origins of the storages whose content the program alone determines; no values are held."""

    def __init__(self) -> None:
        import torch

        self._strided = torch.strided
        self._tensor, self._seeded = torch.Tensor, torch.Tag.nondeterministic_seeded
        # The storage is kept alive with its origin, since freed identities are reused.
        self._found: dict[int, tuple[Any, Origin]] = {}

    def note(self, func: Any, plan: Plan, args: Any, kwargs: Any, out: Any) -> None:
        """Note the result of `func` on known tensors, or on partly known ones where some elements may stay known."""
        if plan.mutated:
            if plan.kind == CALL:
                self._change(func, plan, args, kwargs)
        elif plan.packet in GENERATORS:
            self._generate(func, plan.packet, args, kwargs, out)
        elif plan.packet.startswith("lift"):
            self.give(out, args[0] if type(args[0]) is self._tensor else getattr(out, "constant", None))
        elif plan.kind == CALL and self._seeded not in func.tags:
            self._compute(func, plan.packet, args, kwargs, out)

    def give(self, tensor: Any, real: Any) -> None:
        """Set the values of `tensor`; none if they are not known."""
        if real is not None and isinstance(tensor, self._tensor) and not real.requires_grad:
            self._keep(tensor, Given(real))

    def forget(self, tensor: Any) -> None:
        """Mark the values of `tensor` as data."""
        if tensor.layout is self._strided:
            self._found.pop(tensor.untyped_storage()._cdata, None)

    def of(self, tensor: Any) -> Part | None:
        """Return the origin of the values of `tensor`, none if they are data."""
        origin = self._origin(tensor)
        if origin is None:
            return None
        return Part(origin, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())

    def of_data(self, tensor: Any) -> bool:
        """Return whether inputs or weights determine values of `tensor`."""
        origin = self._origin(tensor)
        return origin is None or origin.mixed > 0

    def is_pattern(self, tensor: Any) -> bool:
        """Return whether the program fills `tensor` with a regular pattern."""
        part = self.of(tensor)
        return part is not None and not part.origin.mixed and is_pattern(part)

    def _keep(self, tensor: Any, origin: Origin) -> None:
        if tensor.layout is self._strided and tensor.storage_offset() == 0:
            storage = tensor.untyped_storage()
            self._found[storage._cdata] = (storage, origin)

    def _generate(self, func: Any, packet: str, args: Any, kwargs: Any, out: Any) -> None:
        value = _FILLED.get(packet)
        if packet in _FILL_POSITION:
            position = _FILL_POSITION[packet]
            value = args[position] if len(args) > position else kwargs.get("fill_value")
        if isinstance(value, (bool, int, float)):
            self._keep(out, Filled(tuple(out.shape), out.stride(), value, out.dtype))
        elif packet in _COUNTED:
            self._keep(out, Result.of(out, func, args, kwargs))

    def _compute(self, func: Any, packet: str, args: Any, kwargs: Any, out: Any) -> None:
        tensors = list(self._tensors((*args, *kwargs.values())))
        if not self._settled(packet, tensors):
            return
        args, kwargs = self._parts(args), {name: self._parts(value) for name, value in kwargs.items()}
        input_storages = {tensor.untyped_storage()._cdata for tensor in tensors}
        for index, item in enumerate(out if isinstance(out, (list, tuple)) else [out]):
            strided = isinstance(item, self._tensor) and item.layout is self._strided
            if strided and item.untyped_storage()._cdata not in input_storages:
                self._keep(item, Result.of(item, func, args, kwargs, index if item is not out else None))

    def _settled(self, packet: str, tensors: list[Any]) -> bool:
        """Return whether the program determines the result, fully or in part."""
        origins = [self._origin(tensor) for tensor in tensors]
        if None not in origins and not any(origin.mixed for origin in origins if origin):
            return True
        # A one-element tensor carries no information on which pair is masked out.
        telling = any(o is not None and o.mixed < MOST_MIXED and t.numel() > 1
                      for t, o in zip(tensors, origins, strict=True))  # fmt: skip
        ordered = not any(tensor.is_complex() for tensor in tensors)  # complex numbers lie between no two ends
        return telling and ordered and bool(rule_of(packet))

    def _change(self, func: Any, plan: Plan, args: Any, kwargs: Any) -> None:
        """Update the origin of a tensor changed in place by known values; drop it otherwise."""
        target = args[0] if args else None
        if isinstance(target, self._tensor) and plan.mutated == {plan.arguments[0][0]}:
            before = None if plan.packet in _OVERWRITERS else self._parts(target)
            others = self._tensors((*args[1:], *kwargs.values()))
            known = target.layout is self._strided and self._seeded not in func.tags
            if known and self._settled(plan.packet, [*([target] if before else []), *others]):
                self._rewrite(func, target, before, args, kwargs)
                return
        named = zip((name for name, _ in plan.arguments), args, strict=False)
        for tensor in self._tensors(value for name, value in (*named, *kwargs.items()) if name in plan.mutated):
            self.forget(tensor)

    def _rewrite(self, func: Any, target: Any, before: Part | None, args: Any, kwargs: Any) -> None:
        blank = Part(Filled((), (), 0, target.dtype), tuple(target.shape), (0,) * target.dim(), 0)
        rest = tuple(self._parts(value) for value in args[1:])
        named = {name: self._parts(value) for name, value in kwargs.items()}
        changed = Result.of(target, func, (before or blank, *rest), named)
        storage, whole = target.untyped_storage(), self.of(target)
        if target.numel() * target.element_size() == storage.nbytes():
            self._found[storage._cdata] = (storage, changed)
        elif whole is not None:
            self._found[storage._cdata] = (storage, Patched.of(whole, changed))

    def _origin(self, tensor: Any) -> Origin | None:
        if tensor.layout is not self._strided:
            return None
        known = self._found.get(tensor.untyped_storage()._cdata)
        if known is not None:
            return known[1]
        # A real tensor that meets fake ones is a constant of the program, unless it wants a gradient.
        real = type(tensor) is self._tensor and not tensor.requires_grad and tensor.storage_offset() == 0
        return Given(tensor) if real else None

    def _parts(self, value: Any) -> Any:
        if isinstance(value, self._tensor):
            return self.of(value) or Part(Data(value.dtype), tuple(value.shape), (0,) * value.dim(), 0)
        return [self._parts(item) for item in value] if isinstance(value, (list, tuple)) else value

    def _tensors(self, values: Any) -> Iterator[Any]:
        for value in values:
            if isinstance(value, self._tensor):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from self._tensors(value)
