"""What the census of public operators asks: sample inputs for each, captured, and the calls without a rule by name."""

import re
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.frontends.torch.module_capture import capture_torch

MOST_SAMPLES = 12
"""Samples tried per function and number format; where PyTorch has more, they are taken at equal distances."""

Sample = tuple[Callable[[], Any], tuple[Any, ...], Mapping[str, Any]]
"""Builder of a module or callable, its arguments and its keyword arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the captures of one operator's samples gave in one step."""

    name: str
    """Operator as its public name says, e.g. `linalg.qr`."""
    step: str
    """`forward` or `train`."""
    sample_count: int
    """Samples captured."""
    causes: tuple[str, ...] = ()
    """Calls without a rule, by ATen or ONNX name, and first lines of the errors with which captures refused."""

    @property
    def is_covered(self) -> bool:
        """Whether every sample was captured and every call of it has a rule."""
        return not self.causes


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One public function or module class with its samples."""

    name: str
    """Public name."""
    samples: Callable[[bool], Iterator[Sample]]
    """Samples; asked whether gradients follow."""
    is_differentiable: bool
    """Whether a gradient is defined."""


def answers(subject: Subject) -> Iterator[Answer]:
    """Yield what the subject's samples gave, forward and, where there is a gradient, in a training step."""
    yield _answer(subject, "forward")
    if subject.is_differentiable:
        yield _answer(subject, "train")


def torch_subjects() -> Iterator[Subject]:
    """Yield the functions and module classes for which PyTorch's own tests have sample inputs."""
    functions, modules = _databases()
    for operator in functions:
        yield Subject(
            name=".".join(part for part in (operator.name, operator.variant_test_name) if part),
            samples=_function_samples(operator),
            is_differentiable=bool(operator.supports_autograd and _formats(operator, differentiated=True)),
        )
    for module in modules:
        name = f"nn.{module.name.removeprefix('nn.')}"
        yield Subject(name=name, samples=_module_samples(module), is_differentiable=True)


def _databases() -> tuple[Sequence[Any], Sequence[Any]]:
    """Return PyTorch's own tables of samples, which ship with it for the tests of other backends."""
    # They import this package for a base class that is of no use here.
    sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

    return op_db, module_db


def _formats(operator: Any, *, differentiated: bool) -> list[Any]:
    """Return the formats to try: one of each kind that the function takes on a CPU."""
    import torch

    taken = operator.supported_backward_dtypes("cpu") if differentiated else operator.supported_dtypes("cpu")
    return [dtype for dtype in (torch.float32, torch.complex64, torch.int64, torch.bool) if dtype in taken]


def _function_samples(operator: Any) -> Callable[[bool], Iterator[Sample]]:
    def samples(differentiated: bool) -> Iterator[Sample]:
        for dtype in _formats(operator, differentiated=differentiated):
            for sample in _spread(list(operator.sample_inputs("cpu", dtype, requires_grad=differentiated))):
                yield _bound(operator.op, (sample.input, *sample.args), sample.kwargs)

    return samples


def _module_samples(module: Any) -> Callable[[bool], Iterator[Sample]]:
    import torch

    def samples(differentiated: bool) -> Iterator[Sample]:
        made = module.module_inputs_func(
            module, device="cpu", dtype=torch.float32, requires_grad=differentiated, training=differentiated
        )
        for sample in _spread(list(made)):
            built, given = sample.constructor_input, sample.forward_input

            def build(built: Any = built) -> Any:
                return module.module_cls(*built.args, **built.kwargs).to(torch.float32)

            yield build, given.args, given.kwargs

    return samples


def _spread(samples: Sequence[Any]) -> Sequence[Any]:
    """Return at most MOST_SAMPLES of `samples`, at equal distances."""
    return samples[:: max(1, -(-len(samples) // MOST_SAMPLES))]


def _bound(function: Callable[..., Any], args: Any, kwargs: Any) -> Sample:
    """Return the sample with the tensors that want a gradient as parameters of a module, the others as arguments."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, tree = tree_flatten((tuple(args), dict(kwargs)))
    wanted = [isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves]

    class Held(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            held = (leaf.detach() for leaf, want in zip(leaves, wanted, strict=True) if want)
            self.held = torch.nn.ParameterList(held)

        def forward(self, *rest: Any) -> Any:
            held, others = iter(self.held), iter(rest)
            args, kwargs = tree_unflatten([next(held if want else others) for want in wanted], tree)
            return function(*args, **kwargs)

    return Held, tuple(leaf for leaf, want in zip(leaves, wanted, strict=True) if not want), {}


def _answer(subject: Subject, step: str) -> Answer:
    import torch

    causes: set[str] = set()
    count, options = 0, CaptureOptions(step=step)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for build, args, kwargs in subject.samples(step == "train"):
            count += 1
            causes |= causes_of(partial(capture_torch, build, (args, kwargs), options, name="", optimizer="none"))
    return Answer(name=subject.name, step=step, sample_count=count, causes=tuple(sorted(causes)))


def causes_of(capture: Callable[[], Workload]) -> set[str]:
    """Return why a capture is not covered whole: calls without a rule, or the line of its refusal."""
    try:
        return {call.operator for call in capture().calls if call.case is None}
    except NearpeakError as error:
        # What launches no kernel, or has no gradient, has nothing to cover.
        nothing = isinstance(error, SpecError) or "no output has a gradient" in str(error)
        return set() if nothing else {_lasting(str(error).splitlines()[0].removeprefix(": "))}
    except Exception as error:  # a capture that fails without saying why is a miss too
        return {_lasting(f"{type(error).__name__}: {error}".splitlines()[0])}


def _lasting(cause: str) -> str:
    """Return `cause` without what differs from run to run, or says only that this file made the call.

    >>> _lasting("forward raised ValueError: <function to at 0x7fdc1> (benchmarks/_census.py:141)")
    'forward raised ValueError: <function to>'
    """
    return re.sub(r" at 0x[0-9a-f]+| \(benchmarks/_census\.py:\d+\)", "", cause)
