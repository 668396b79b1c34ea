"""Traversal of a jaxpr that records each primitive as a call on tensors without memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.frontends.jax.primitives import matchers, site_of
from nearpeak.frontends.jax.view_primitives import VIEWS, parts
from nearpeak.frontends.torch.call_attribution import plain_path, shown_path
from nearpeak.frontends.torch.workload_builder import Matched, WorkloadBuilder, use

_KEYS = frozenset({
    "random_seed", "random_wrap", "random_unwrap", "random_split", "random_fold_in", "random_clone", "create_token",
    "debug_callback", "debug_print", "optimization_barrier",
})  # fmt: skip
"""Random keys of a few bytes, and primitives that only order calls: no kernels."""
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_IN_PLACE = frozenset({"dynamic_update_slice"})


class Frame:
    """Context of an equation: module path, phase, trip count of the enclosing loops, and source line."""

    def __init__(self, module: str = "", phase: str = "forward", call_count: int = 1, source: str = "") -> None:
        self.module, self.phase, self.call_count, self.source = module, phase, call_count, source

    def at(self, equation: Any) -> "Frame":
        """Return the frame of an equation: its named scopes below this one, backward if it transposes."""
        scopes = str(equation.source_info.name_stack)
        backward = self.phase == "backward" or "transpose(" in scopes
        for mark in ("transpose(", "jvp(", "vmap(", "rematted_computation", "checkpoint"):
            scopes = scopes.replace(mark, "")
        inner = ".".join(part for part in scopes.replace(")", "").split("/") if part)
        module = plain_path(f"{self.module}.{inner}".strip("."))
        source = _source(equation) or self.source  # what JAX traced once for all callers has no line of its own
        return Frame(module, "backward" if backward else "forward", self.call_count, source)

    def inside(self, name: str, times: int = 1) -> "Frame":
        """Return the frame of what an equation calls."""
        return Frame(f"{self.module}.{name}".strip("."), self.phase, self.call_count * times, self.source)


class Walk:
    """Walks jaxprs with tensors in place of values, and records what they compute."""

    def __init__(self, jax: Any) -> None:
        from jax.extend.core import Literal

        self._literal = Literal
        self._tree = jax.tree_util
        self._guesses: dict[str, int] = {}
        self.builder = WorkloadBuilder(matchers())

    def inputs(self, arguments: Any, variables: Any, *, trained: bool) -> list[Tensor]:
        """Return the arguments as tensors, named by their place; in training the first one holds the weights."""
        paths = [path for path, _ in self._tree.tree_flatten_with_path(arguments)[0]]
        tensors = []
        for path, variable in zip(paths, variables, strict=True):
            weight = trained and [getattr(key, "idx", None) for key in path[:2]] == [0, 0]
            name = self._tree.keystr(path[1:]).replace("'", "").replace("[", ".").replace("]", "").strip(".")
            tensors.append(self._new(variable.aval, "weight" if weight else "input", name))
        return tensors

    def constant(self, value: Any) -> Any:
        """Return an array that the function closes over as a tensor, one number as itself."""
        if isinstance(value, (bool, int, float, complex)):
            return value
        if value.shape == () and not _is_key(value.dtype):
            return value.item()
        return self._new(value, "weight")

    def keep(self, outputs: Sequence[Any]) -> None:
        """Mark the buffers that the function returns."""
        for tensor in outputs:
            if isinstance(tensor, Tensor) and self.builder.buffers[tensor.buffer].kind in ("activation", "constant"):
                self.builder.relabel(tensor.buffer, "output")

    def guards(self) -> list[str]:
        """Return the assumptions about data, in sentences."""
        return [f"{count} × {what}" for what, count in sorted(self._guesses.items())]

    def run(
        self,
        jaxpr: Any,
        consts: Sequence[Any],
        args: Sequence[Any],
        frame: Frame,
        into: Mapping[int, Tensor] | None = None,
    ) -> list[Any]:
        """Return the results of `jaxpr`; those at the places of `into` are written there."""
        known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
        placed = {id(jaxpr.outvars[place]): tensor for place, tensor in (into or {}).items()}
        for equation in jaxpr.eqns:
            operands = [self._value(known, variable) for variable in equation.invars]
            results = self._equation(equation, operands, frame.at(equation), placed)
            known.update(zip(equation.outvars, results, strict=True))
        return [self._value(known, variable) for variable in jaxpr.outvars]

    def _value(self, known: Mapping[Any, Any], variable: Any) -> Any:
        return self.constant(variable.val) if isinstance(variable, self._literal) else known[variable]

    def _equation(self, equation: Any, operands: list[Any], frame: Frame, placed: Mapping[int, Tensor]) -> list[Any]:
        name, params = equation.primitive.name, equation.params
        if name in ("scan", "while", "cond"):
            return {"scan": self._scan, "while": self._while, "cond": self._cond}[name](params, operands, frame)
        inner = next((params[key] for key in _INNER if key in params and name != "pallas_call"), None)
        if inner is not None:
            jaxpr, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
            below = frame.inside(str(params.get("name", "")) if name in ("jit", "pjit") else "")
            arguments = operands[len(operands) - len(jaxpr.invars) :]
            return self.run(jaxpr, [self.constant(value) for value in consts], arguments, below)
        if name != "iota" and not any(isinstance(x, Tensor) for x in operands) and not equation.outvars[0].aval.shape:
            return [operands[0]] if name == "convert_element_type" else self._free(equation)  # numbers known beforehand
        if name in _KEYS:
            return self._free(equation)
        return self._view(equation, operands) or self._call(equation, operands, frame, placed)

    def _free(self, equation: Any) -> list[Any]:
        """Return the results of a primitive that launches no kernel."""
        self.builder.skip(f"jax.{equation.primitive.name}")
        return [self._new(variable.aval, "constant") for variable in equation.outvars]

    def _view(self, equation: Any, operands: list[Any]) -> list[Any] | None:
        """Return the result of a view, none for other primitives and views that must copy."""
        name = equation.primitive.name
        if name == "split" and isinstance(operands[0], Tensor):
            self.builder.skip("jax.split")
            return list(parts(operands[0], equation.params["axis"], equation.params["sizes"]))
        if name not in VIEWS:
            return None
        x, shape = operands[0], tuple(equation.outvars[0].aval.shape)
        if not isinstance(x, Tensor):
            if not shape:
                return [x]
            x = self._new(equation.outvars[0].aval, "constant", shape=())
        view = VIEWS[name](x, equation.params, shape)
        if view is not None:
            self.builder.skip(f"jax.{name}")
        return None if view is None else [replace(view, dtype=_format(equation.outvars[0].aval.dtype))]

    def _call(self, equation: Any, operands: list[Any], frame: Frame, placed: Mapping[int, Tensor]) -> list[Any]:
        """Record one call and return its results."""
        name = equation.primitive.name
        copied = name in VIEWS  # a reshape whose elements must move
        outputs = [self._result(variable, name, operands, placed) for variable in equation.outvars]
        site = site_of("copy" if copied else name, operands, equation.params, tuple(outputs))
        matched = self.builder.match(site)
        cases = tuple((case, count * frame.call_count) for case, count in matched.cases)
        touched = matched.touched_bytes
        reads = tuple(
            use(value, touched.get(key))
            for key, item in site.args.items()
            for value in (item if isinstance(item, list) else [item])
            if isinstance(value, Tensor)
        )
        writes = tuple(use(tensor, touched.get("write")) for tensor in outputs)
        self.builder.append(
            Matched(cases=cases, touched_bytes=touched), f"jax.{name}", phase=frame.phase, reads=reads, writes=writes,
            module=frame.module, source=frame.source,
        )  # fmt: skip
        return list(outputs)

    def _result(self, variable: Any, name: str, operands: list[Any], placed: Mapping[int, Tensor]) -> Tensor:
        first = operands[0] if operands else None
        if name in _IN_PLACE and isinstance(first, Tensor) and self.builder.buffers[first.buffer].kind == "activation":
            return first
        if id(variable) in placed:
            return placed[id(variable)]
        return self._new(variable.aval, "constant" if name in ("iota", "random_bits") else "activation")

    def _scan(self, params: Any, operands: list[Any], frame: Frame) -> list[Any]:
        """Run the body once for all iterations; stacked outputs are written to their final buffer."""
        body, rounds = params["jaxpr"], params["length"]
        fixed, carried = params["num_consts"], params["num_consts"] + params["num_carry"]
        rows = [_row(x) for x in operands[carried:]]
        stacked = [
            self._new(v.aval, "activation", shape=(rounds, *v.aval.shape))
            for v in body.jaxpr.outvars[params["num_carry"] :]
        ]
        into = {params["num_carry"] + place: _row(tensor) for place, tensor in enumerate(stacked)}
        state = [
            self._settled(x, variable.aval)
            for x, variable in zip(operands[fixed:carried], body.jaxpr.invars[fixed:carried], strict=True)
        ]
        below = frame.inside("", rounds)
        results = self._closed(body, [*operands[:fixed], *state, *rows], below, into)
        return [*results[: params["num_carry"]], *stacked]

    def _settled(self, x: Any, aval: Any) -> Tensor:
        """Return the loop-carried tensor; a broadcast one is materialised, as from the second iteration on."""
        whole = isinstance(x, Tensor) and x.distinct == x.elements
        return x if whole else self._new(aval, "activation")

    def _while(self, params: Any, operands: list[Any], frame: Frame) -> list[Any]:
        self._guess("while_loop of unknown trip count: its body counts once")
        tests, fixed = params["cond_nconsts"], params["body_nconsts"]
        carried = [
            self._settled(x, variable.aval)
            for x, variable in zip(operands[tests + fixed :], params["body_jaxpr"].jaxpr.invars[fixed:], strict=True)
        ]
        self._closed(params["cond_jaxpr"], [*operands[:tests], *carried], frame)
        return self._closed(params["body_jaxpr"], [*operands[tests : tests + fixed], *carried], frame)

    def _cond(self, params: Any, operands: list[Any], frame: Frame) -> list[Any]:
        """Run the true branch, the last of two; of several the first."""
        branches = params["branches"]
        two = len(branches) == 2
        self._guess("condition on data: the true branch counts" if two else "switch on data: the first branch counts")
        chosen = branches[1 if two else 0]
        return self._closed(chosen, operands[1:], frame)

    def _closed(
        self, closed: Any, args: Sequence[Any], frame: Frame, into: Mapping[int, Tensor] | None = None
    ) -> list[Any]:
        return self.run(closed.jaxpr, [self.constant(value) for value in closed.consts], args, frame, into)

    def _guess(self, what: str) -> None:
        self._guesses[what] = self._guesses.get(what, 0) + 1

    def _new(self, aval: Any, kind: str, name: str = "", shape: tuple[int, ...] | None = None) -> Tensor:
        extents = tuple(aval.shape) if shape is None else shape
        dtype = _format(aval.dtype)
        buffer = self.builder.add_buffer(dtype_of(dtype).bytes(prod(extents)), kind, name)
        return Tensor(shape=extents, dtype=dtype, buffer=buffer)


def _row(x: Any) -> Any:
    """Return one slice of an array that a scan iterates over."""
    if not isinstance(x, Tensor):
        return x
    strides = None if x.strides is None else x.strides[1:]
    return Tensor(shape=x.shape[1:], dtype=x.dtype, strides=strides, buffer=x.buffer, offset=x.offset)


def _format(dtype: Any) -> str:
    """Return the format's name; random keys are two words of 32 bits, and unsigned integers as wide as signed ones."""
    name = str(getattr(dtype, "name", dtype))
    if _is_key(dtype):
        return "int64"
    return dtype_of({"uint16": "int16", "uint32": "int32", "uint64": "int64", "uint4": "int4"}.get(name, name)).name


def _is_key(dtype: Any) -> bool:
    return str(getattr(dtype, "name", dtype)).startswith("key<")


def _source(equation: Any) -> str:
    """Return file and line of the user's code that made an equation."""
    from jax._src.source_info_util import user_frame

    try:
        frame = user_frame(equation.source_info.traceback)
    except (AttributeError, TypeError):  # a version that keeps it elsewhere
        return ""
    return f"{shown_path(frame.file_name)}:{frame.start_line}" if frame is not None else ""
