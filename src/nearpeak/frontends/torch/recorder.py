"""Recorder of operators that PyTorch dispatches below autograd, as calls of a workload."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.process_group import group_of_text
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Call, CallLayout
from nearpeak.frontends.known_values.known_tensors import Values
from nearpeak.frontends.known_values.live_masks import LiveMasks
from nearpeak.frontends.known_values.program_facts import Facts
from nearpeak.frontends.known_values.tensor_origins import Origins
from nearpeak.frontends.quantisation.packed_layers import PackedLayers
from nearpeak.frontends.quantisation.quantised_tensors import OF_CODES, QUANTISED, built
from nearpeak.frontends.torch.call_attribution import STAND_IN_LOSS, Attribution, Place
from nearpeak.frontends.torch.device_moves import on_cpu
from nearpeak.frontends.torch.operator_schema import CALL, FREE, METADATA, Plan, plan_of
from nearpeak.frontends.torch.process_groups import GROUP_ARGUMENTS
from nearpeak.frontends.torch.storages import Storages, described
from nearpeak.frontends.torch.workload_builder import UNCOVERED, Matched, WorkloadBuilder
from nearpeak.ops import AtenSite
from nearpeak.ops.attention.varlen_attention import LENGTHS
from nearpeak.ops.shared.attention_calls import KNOWN_MASK, WHOLE
from nearpeak.ops.shared.live_pairs import Live


class _Operand(NamedTuple):
    """A tensor argument of a call."""

    name: str
    """Argument name; elements of a list are numbered, `tensors[1]`."""
    layout: Layout
    """The tensor without its storage."""
    number: int
    """Its storage."""


class Recorder:
    """Handles each dispatched call once, and writes it into the builder while `recording` is set."""

    def __init__(
        self, builder: WorkloadBuilder, values: Values, attribution: Attribution, composites: Mapping[str, Any]
    ) -> None:
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        self._device_query, self._fake = torch.ops.prim.device.default, FakeTensor
        self.builder, self.values, self.attribution = builder, values, attribution
        self._composites = composites
        self.storages = Storages(builder)
        self.origins = Origins()
        self.masks = LiveMasks(self.origins)
        self.facts = Facts(self.origins)
        self._packed = PackedLayers()
        self._has_codes = False
        values.of_data = self.origins.of_data
        self.phase = "forward"
        self.recording = False
        self._unsized: set[int] = set()
        self._matched: dict[Hashable, tuple[Matched, CallLayout]] = {}
        self._tensor, self._autograd, self._c = torch.Tensor, torch.autograd, torch._C

    @contextmanager
    def detached(self, phase: str) -> Iterator[list[Call]]:
        """Record the calls of the block without gradients; the list receives them instead of the builder."""
        import torch

        first, calls = len(self.builder.calls), list[Call]()
        self.phase, self.recording = phase, True
        try:
            with torch.no_grad():
                yield calls
        finally:
            self.recording = False
            calls += self.builder.calls[first:]
            del self.builder.calls[first:]
            self.builder.guessed = [at for at in self.builder.guessed if at < first]

    def handle(self, mode: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run `func` and record it; values that fake tensors lack are answered here."""
        if func is self._device_query and type(args[0]) is self._fake:
            return args[0].fake_device  # by far the most frequent call
        plan = plan_of(func)
        if plan.kind is METADATA:
            return func(*args, **kwargs)
        if self._c.is_inference_mode_enabled():  # composites arrive whole there
            with mode:
                out = self._composites.get(plan.packet, func.decompose)(*args, **kwargs)
            if out is not NotImplemented:
                return out
        is_packed = plan.name.startswith("quantized.")
        substitute = self._packed.substitute(plan.name, args, kwargs) if is_packed else None
        if substitute is not None:
            path = self.attribution.here().module
            for part, tensor in zip(("weight", "bias"), substitute.arguments[1:3], strict=True):
                if tensor is not None:
                    self.storages.label(tensor, "weight", f"{path}.{part}")
            with mode:
                return substitute.function(*substitute.arguments)
        if "device" in kwargs:
            kwargs = kwargs | {"device": on_cpu(kwargs["device"])}
        guess_count = self.values.size_guess_count
        out = self._run(func, plan, args, kwargs)
        self.origins.note(func, plan, args, kwargs, out)
        if self.recording:
            self._record(plan, args, kwargs, out, guessed=self.values.size_guess_count > guess_count)
        return out

    def _run(self, func: Any, plan: Plan, args: Any, kwargs: dict[str, Any]) -> Any:
        if plan.packet == "_local_scalar_dense":
            return self.values.scalar(args[0])
        if plan.packet in ("equal", "allclose"):
            return self.values.guess(plan.packet, True)
        packed = built(plan.name, func, args, kwargs) if self.values.building else NotImplemented
        if packed is not NotImplemented:
            return packed
        made = _SETTLED.get(plan.packet) or QUANTISED.get(plan.name)
        self._has_codes |= plan.packet.startswith("quantize_per")
        if self._has_codes and plan.name in OF_CODES and not args[0].is_floating_point():
            made = OF_CODES[plan.name]
        if made is not None:
            return made(*args, **kwargs)
        out = self.values.run(func, args, kwargs)
        if isinstance(out, self._tensor):
            self.values.note(plan.packet, out, args)
            return self.values.constant(func, plan.packet, out, args, kwargs)
        return out

    def _record(self, plan: Plan, args: Any, kwargs: dict[str, Any], out: Any, *, guessed: bool) -> None:
        if self.phase == "forward":
            self.attribution.remember(self._autograd._get_sequence_nr())
        if plan.kind is not CALL:
            self.builder.skip(plan.name)
            if plan.kind is FREE:
                self._number_free(plan, out)
            return
        self._call(plan, args, kwargs, self._flat(out), guessed=guessed)

    def _number_free(self, plan: Plan, out: Any) -> None:
        kind = "constant" if plan.packet.startswith("lift") else "activation"
        for tensor in self._flat(out):
            number = self.storages.number(tensor, kind)
            if kind == "constant":
                self.storages.note_value(tensor, number)

    def _call(self, plan: Plan, args: Any, kwargs: dict[str, Any], outs: list[Any], *, guessed: bool) -> None:
        operands: list[_Operand] = []
        local: dict[int, int] = {}
        values = {}
        for index, (name, default) in enumerate(plan.arguments):
            value = args[index] if index < len(args) else kwargs.get(name, default)
            values[name] = self._value(name, value, operands, local)
        if plan.name in WHOLE and values["mask"] is not None:
            values[KNOWN_MASK] = self._live(plan, args)
        if "cu_seq_q" in values:
            values[LENGTHS] = self._offsets(plan, args, kwargs)
        results = [self._operand("", t, "constant" if plan.generates else "activation", local) for t in outs]
        key = (plan.name, tuple(values.values()), tuple(r.layout for r in results))
        matched = self._matched.get(key)
        if matched is None:
            form = CallLayout(arguments=tuple(values.items()), results=key[2])
            opaque = any(dtype_of(operand.layout.dtype).kind == "opaque" for operand in (*operands, *results))
            match = UNCOVERED if opaque else self.builder.match(_site(plan, values, operands, results))
            matched = self._matched[key] = (match, form)
        at = len(self.builder.calls)
        self._append(plan, matched, values, operands, results)
        if guessed or not self._unsized.isdisjoint([operand.number for operand in operands]):
            self._note_guess(plan, at, operands, results)
        if self.builder.calls[at].form is None:
            for tensor in outs:
                self.origins.forget(tensor)  # results of the stand-in loss and of the optimizer
        elif self.facts.asks(plan.packet):
            arguments = {name: value for (name, _), value in zip(plan.arguments, args, strict=False)} | kwargs
            lists = {name: value for name, value in arguments.items() if isinstance(value, (list, tuple))}
            arguments |= {f"{name}[{place}]": item for name, items in lists.items() for place, item in enumerate(items)}
            tensors = [(o.name, None if o.name in plan.mutated else arguments.get(o.name)) for o in operands]
            self.facts.note(plan.packet, at, tensors)

    def _note_guess(self, plan: Plan, at: int, operands: list[_Operand], results: list[_Operand]) -> None:
        """Note the calls from `at` on as handling a guessed number of elements, and their results as being so many."""
        self.builder.guessed += range(at, len(self.builder.calls))
        inputs = {operand.number for operand in operands}
        if plan.packet.rstrip("_").startswith(_SHAPED_BY_SELF) and operands[0].number not in self._unsized:
            return
        self._unsized.update(r.number for r in results if r.layout.shape and r.number not in inputs)

    def _live(self, plan: Plan, args: Any) -> Live | None:
        """Return what the mask of an attention leaves alive, none when its values are data."""
        arguments = dict(zip((name for name, _ in plan.arguments), args, strict=True))
        return self.masks.live(arguments["query"], arguments["key"], arguments["mask"], arguments["is_causal"])

    def _offsets(self, plan: Plan, args: Any, kwargs: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the start offsets of packed sequences, and those of their keys or their lengths; none if unknown."""
        arguments = {**dict(zip((name for name, _ in plan.arguments), args, strict=False)), **kwargs}
        used = arguments["cu_seq_k"] if arguments.get("seqused_k") is None else arguments["seqused_k"]
        queries, keys = (self.values.whole_numbers(tensor) for tensor in (arguments["cu_seq_q"], used))
        return None if queries is None or keys is None else (queries, keys)

    def _append(
        self, plan: Plan, known: tuple[Matched, CallLayout], values: Mapping[str, Any],
        operands: list[_Operand], results: list[_Operand],
    ) -> None:  # fmt: skip
        matched, form = known
        written = self._written(plan, values, operands, results)
        use, touched = self.storages.use, matched.touched_bytes
        reads = tuple(
            use(o.layout, o.number, touched.get(o.name))
            for o in operands
            if o.name.split("[")[0] not in plan.unread and 0 not in o.layout.shape
        )
        writes = tuple(
            use(o.layout, o.number, touched.get(f"write:{o.name}")) for o in written if 0 not in o.layout.shape
        )
        place = self._place()
        stated = place.module not in (STAND_IN_LOSS, "optimizer")  # the user did not write that loss
        self.builder.append(
            matched, plan.name, phase=self.phase, reads=reads, writes=writes, module=place.module, source=place.source,
            form=form if stated else None, storages=tuple(o.number for o in (*operands, *results)) if stated else (),
            group=next((group_of_text(values[name]) for name in GROUP_ARGUMENTS if name in values), None),
        )  # fmt: skip

    def _written(
        self, plan: Plan, values: Mapping[str, Any], operands: list[_Operand], results: list[_Operand]
    ) -> list[_Operand]:
        """Return the mutated arguments, and the results with storages of their own."""
        mutated = plan.mutated
        if plan.hidden and values.get("training"):
            mutated = mutated.union(plan.hidden)
        changed = [o for o in operands if o.name.split("[")[0] in mutated]
        kind = "constant" if plan.generates else "activation"
        for operand in changed:
            if self.storages.kind(operand.number) in ("constant", "activation") and operand.layout.alias >= 0:
                self.builder.relabel(operand.number, kind)
        numbers = {o.number for o in operands}
        return changed + [r for r in results if r.number not in numbers]

    def _place(self) -> Place:
        if self.phase == "forward":
            return self.attribution.here()
        if self.phase == "backward":
            return self.attribution.of_node(self._c._current_autograd_node())
        return Place("optimizer", self.attribution.here().source)

    def _value(self, name: str, value: Any, operands: list[_Operand], local: dict[int, int]) -> Any:
        """Return `value` as a hashable description, and note the tensors in it."""
        if isinstance(value, self._tensor):
            generated = not self.storages.known(value) and self.origins.is_pattern(value)
            operand = self._operand(name, value, "constant" if generated else "weight", local)
            operands.append(operand)
            return operand.layout
        if isinstance(value, (list, tuple)):
            return tuple(self._value(f"{name}[{i}]", item, operands, local) for i, item in enumerate(value))
        if name == "group_name" and isinstance(value, str):
            return self.storages.groups.of_name(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return self.storages.plain(value)

    def _operand(self, name: str, tensor: Any, kind: str, local: dict[int, int]) -> _Operand:
        number = self.storages.number(tensor, kind)
        alias = local.setdefault(number, len(local))
        return _Operand(name, self.storages.layout(tensor, alias), number)

    def _flat(self, out: Any) -> list[Any]:
        if isinstance(out, self._tensor):
            return [out]
        if isinstance(out, (list, tuple)):
            return [tensor for item in out for tensor in self._flat(item)]
        return []


_SHAPED_BY_SELF = ("index_put", "masked_scatter", "scatter", "index_add", "index_copy", "index_fill", "index_reduce",
                   "slice_scatter", "select_scatter", "copy")  # fmt: skip
"""Operators whose result has the shape of their first argument, however many elements are written into it."""


def _site(plan: Plan, values: Mapping[str, Any], operands: list[_Operand], results: list[_Operand]) -> AtenSite:
    """Return the call as matchers see it."""
    numbers = iter([operand.number for operand in operands])

    def restored(value: Any) -> Any:
        if isinstance(value, Layout):
            return described(value, next(numbers))
        return [restored(item) for item in value] if isinstance(value, tuple) else value

    return AtenSite(
        name=plan.name,
        args={name: restored(value) for name, value in values.items()},
        outputs=tuple(described(result.layout, result.number) for result in results),
    )


def _ctc_loss(log_probs: Any, targets: Any, _inputs: Any, lengths: Any, *_: Any) -> tuple[Any, Any]:
    """Return the losses and alphas; lengths in a tensor are taken to be the longest that its shape allows."""
    lead = log_probs.shape[1:-1]
    known = lengths if isinstance(lengths, (list, tuple)) else ()
    longest = max(known, default=targets.shape[-1] if targets.dim() > 1 or not lead else targets.shape[0] // lead[0])
    return log_probs.new_empty(lead), log_probs.new_empty((*lead, log_probs.shape[0], 2 * longest + 1))


def _least_squares(a: Any, b: Any, *_: Any, **_options: Any) -> tuple[Any, ...]:
    """Return solution and rank; whether there are residuals depends on the rank, and they are left out."""
    import torch

    batch, columns = a.shape[:-2], a.shape[-1]
    right = () if b.dim() == a.dim() - 1 else (b.shape[-1],)
    empty = a.new_empty((0,))
    return a.new_empty((*batch, columns, *right)), empty, a.new_empty(batch, dtype=torch.int64), empty


_SETTLED: Mapping[str, Callable[..., Any]] = {"_ctc_loss": _ctc_loss, "linalg_lstsq": _least_squares}
"""Results of operators without fake-tensor shapes: their arguments, such as lists of lengths, determine them."""
