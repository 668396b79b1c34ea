"""Configuration of a served model: batching, instances and ensemble steps of a file config.pbtxt."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from nearpeak.base.input_files import border, text_of_file
from nearpeak.errors import SpecError, shown
from nearpeak.systems.serving.inference_server.text_proto import Field, Message, Word, line_of, parse_proto, proto_text

_EMPTY = Message()
MOST_BATCH, MOST_INSTANCES, MOST_DELAY_S = 1_000_000, 1_024, 3_600.0
"""Items of a batch, instances of a device and queue delay beyond which a configuration is taken for damaged; batches of
131,072 items are served (recommenders of NVIDIA/DeepLearningExamples)."""
MOST_NAME = 255
"""Characters of a model's name, which is that of a folder."""
_BATCHING = ("preferred_batch_size", "max_queue_delay_microseconds")
KINDS = ("KIND_GPU", "KIND_CPU", "KIND_AUTO", "KIND_MODEL")
"""Kinds of instance groups. Source: triton-inference-server/common, protobuf/model_config.proto."""


class FieldError(SpecError):
    """A value of a configuration that no server takes, with the name of its field."""

    def __init__(self, message: str, field_name: str) -> None:
        """Keep the field beside the message."""
        super().__init__(message)
        self.field_name = field_name


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleStep:
    """One model of an ensemble."""

    model: str
    """Name of the model."""
    inputs: tuple[tuple[str, str], ...]
    """Its inputs, and the tensors of the ensemble that they take."""
    outputs: tuple[tuple[str, str], ...]
    """Its outputs, and the tensors of the ensemble that they give."""


EMPTY_STEP = EnsembleStep(model="", inputs=(), outputs=())
"""Step of an ensemble that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What of a configuration decides throughput and latency; everything else is kept as it was.

    Source: triton-inference-server/server, docs/user_guide/model_configuration.md.
    """

    name: str
    """Name of the model."""
    most_batch_count: int
    """Most items of a batch (`max_batch_size`); 0 where the model takes no batches."""
    has_dynamic_batching: bool = False
    """Whether requests that wait are put together."""
    preferred_count: tuple[int, ...] = ()
    """Batch sizes that are formed as soon as they can be."""
    queue_delay_s: float = 0.0
    """Time that a request may wait for others although an instance is free."""
    instance_count: int = 1
    """Instances of the model on each of its devices."""
    instance_kind: str = "KIND_GPU"
    """Where they run."""
    device_numbers: tuple[int, ...] = ()
    """Devices that have instances; none for every device."""
    steps: tuple[EnsembleStep, ...] = ()
    """Steps of an ensemble; none for a model of its own."""
    message: Message = _EMPTY
    """The whole configuration as it was read."""
    file: str = field(default="", compare=False)
    """File that states it; empty for one that was made."""

    def __post_init__(self) -> None:
        """Refuse batches that cannot be formed."""
        for what, name, value, least, most in (
            ("max_batch_size", "max_batch_size", self.most_batch_count, 0, MOST_BATCH),
            ("instances", "count", self.instance_count, 1, MOST_INSTANCES),
            ("queue delay in seconds", _BATCHING[1], self.queue_delay_s, 0, MOST_DELAY_S),
        ):
            if not least <= value <= most:
                raise FieldError(f"{self.words}: {what} is {value:g}; {least} to {most:.10g} is right", name)
        wrong = [size for size in self.preferred_count if not 1 <= size <= self.most_batch_count]
        if wrong:
            raise FieldError(
                f"{self.words}: preferred_batch_size {wrong[0]} lies outside 1 to max_batch_size "
                f"{self.most_batch_count}",
                _BATCHING[0],
            )

    @property
    def words(self) -> str:
        """The model, with its file where it has one, for messages."""
        return f"{self.file}: model {self.name!r}" if self.file else f"model {self.name!r}"


@border("config")
def read_model_config(path: Path) -> ModelConfig:
    """Return the configuration of a file config.pbtxt.

    Raises:
        SpecError: the file is none, or states batches that cannot be formed.
    """
    text = text_of_file(path, f"config {path}")
    try:
        return model_config_of(text, str(path))
    except FieldError as error:
        line = line_of(text, error.field_name)
        raise SpecError(f"{error}" + (f" (line {line})" if line else "")) from None


def model_config_of(text: str, name: str = "config.pbtxt") -> ModelConfig:
    """Return the configuration of a text.

    >>> config = model_config_of('name: "net" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100 }')
    >>> config.most_batch_count, config.queue_delay_s, config.has_dynamic_batching
    (8, 0.0001, True)
    """
    message = parse_proto(text, name)
    for part in ("dynamic_batching", "instance_group", "ensemble_scheduling"):
        if len(message.messages(part)) < len(message.all(part)):
            raise FieldError(f"{name}: {part} is a value; a message in braces is right", part)
    batching, groups = message.messages("dynamic_batching"), message.messages("instance_group")
    names = message.all("name")
    if not names or not isinstance(names[0], str) or not names[0].strip():
        raise SpecError(f"{name}: states no name of the model")
    if len(names[0]) > MOST_NAME or "\n" in names[0]:
        raise SpecError(f"{name}: name {names[0][:40]!r}: is no name of one line with at most {MOST_NAME} characters")
    counts = [_whole(group, "count", name, 1) for group in groups]
    kinds = {str(value) for group in groups for value in group.all("kind")}
    if len(kinds) > 1:
        raise FieldError(f"{name}: instance groups of several kinds ({', '.join(sorted(kinds))[:80]}); split the model",
                         "kind")  # fmt: skip
    if unknown := sorted(kinds - set(KINDS)):
        raise FieldError(
            f"{name}: kind {unknown[0][:40]} of an instance group is not one of {', '.join(KINDS)}", "kind"
        )
    devices = _numbers(groups, "gpus", name)
    if len(devices) > MOST_INSTANCES:
        raise FieldError(f"{name}: gpus holds {len(devices):,} devices; at most {MOST_INSTANCES:,} are right", "gpus")
    if min(devices, default=0) < 0:
        raise FieldError(f"{name}: gpus holds {min(devices)}; devices are numbered from 0", "gpus")
    steps = tuple(_step(step) for part in message.messages("ensemble_scheduling") for step in part.messages("step"))
    if message.messages("ensemble_scheduling") and not all(step.model for step in steps or [EMPTY_STEP]):
        raise FieldError(f"{name}: ensemble_scheduling has no step, or one without model_name, a text",
                         "ensemble_scheduling")  # fmt: skip
    if any(step.model == str(names[0]) for step in steps):
        raise SpecError(f"{name}: a step of the ensemble names the ensemble itself; name another model")
    return ModelConfig(
        name=str(names[0]), most_batch_count=_whole(message, "max_batch_size", name, 0),
        has_dynamic_batching=bool(batching),
        preferred_count=tuple(_numbers(batching, "preferred_batch_size", name)),
        queue_delay_s=sum(_numbers(batching, "max_queue_delay_microseconds", name)) / 1e6,
        instance_count=sum(counts) or 1, instance_kind=next(iter(kinds), "KIND_GPU"),
        device_numbers=tuple(sorted(set(devices))), steps=steps, message=message, file=name,
    )  # fmt: skip


def _numbers(messages: Sequence[Message], field: str, name: str) -> list[int]:
    values = [value for message in messages for value in message.all(field)]
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        raise FieldError(f"{name}: {field} must be whole numbers", field)
    return numbers


def _whole(message: Message, field: str, name: str, default: int) -> int:
    return (_numbers((message,), field, name) or [default])[-1]


def _step(message: Message) -> EnsembleStep:
    def pairs(field: str) -> tuple[tuple[str, str], ...]:
        maps = message.messages(field)
        return tuple((str((pair.all("key") or [""])[0]), str((pair.all("value") or [""])[0])) for pair in maps)

    named = (message.all("model_name") or [""])[0]
    model = named if isinstance(named, str) else ""
    return EnsembleStep(model=model, inputs=pairs("input_map"), outputs=pairs("output_map"))


def step_waits(config: ModelConfig) -> tuple[tuple[int, ...], ...]:
    """Return the places of the steps that each step of an ensemble waits for: those that give its inputs.

    A step that names no input waits for the one before it.

    Raises:
        SpecError: steps wait for each other, or for themselves.

    >>> first, second = (EnsembleStep(model=name, inputs=(("in", name),), outputs=(("out", "b"),)) for name in "ab")
    >>> step_waits(ModelConfig(name="both", most_batch_count=1, steps=(first, replace(second, outputs=()))))
    ((), (0,))
    """
    steps, waits = config.steps, list[tuple[int, ...]]()
    for place, step in enumerate(steps):
        wanted = {tensor for _, tensor in step.inputs}
        before = [other for other, giver in enumerate(steps) if wanted & {tensor for _, tensor in giver.outputs}]
        waits.append(tuple(before) if wanted or not place else (place - 1,))
    left = set(range(len(steps)))
    while able := {place for place in left if not left.intersection(waits[place])}:
        left -= able
    if not left:
        return tuple(waits)
    ring = [min(left)]
    while len(set(ring)) == len(ring):
        ring.append(next(other for other in waits[ring[-1]] if other in left))
    links = []
    for place, other in pairwise(ring[ring.index(ring[-1]) :]):
        gives = {tensor for _, tensor in steps[other].outputs}
        tensors = [tensor for _, tensor in steps[place].inputs if tensor in gives]
        links.append(f"{shown(steps[place].model)} for {f'{shown(tensors[0])} of' if tensors else 'the step before,'} "
                     f"{shown(steps[other].model)}")  # fmt: skip
    raise SpecError(f"{config.words}: its steps wait in a circle, so that no request can begin: {', '.join(links)}")


def model_config_text(config: ModelConfig) -> str:
    """Return the text of a configuration: what it was read from, with batches and instances as they are now.

    >>> config = model_config_of('name: "net" platform: "onnxruntime_onnx" max_batch_size: 8')
    >>> print(model_config_text(replace(config, most_batch_count=16, instance_count=2)))
    name: "net"
    platform: "onnxruntime_onnx"
    max_batch_size: 16
    instance_group {
      count: 2
      kind: KIND_GPU
    }
    """
    fields = [field for field in config.message if field.name not in ("dynamic_batching", "instance_group")]
    fields = [
        Field(name, config.most_batch_count if name == "max_batch_size" else config.name if name == "name" else value)
        for name, value in fields
    ]
    stated = {field.name for field in fields}
    if "name" not in stated:
        fields.insert(0, Field("name", config.name))
    if "max_batch_size" not in stated:
        fields.insert(1, Field("max_batch_size", config.most_batch_count))
    if config.has_dynamic_batching:
        batching = [Field("preferred_batch_size", size) for size in config.preferred_count]
        delay_us = round(config.queue_delay_s * 1e6)
        batching += [Field("max_queue_delay_microseconds", delay_us)] if delay_us else []
        others = [field for part in config.message.messages("dynamic_batching") for field in part]
        batching += [field for field in others if field.name not in _BATCHING]
        fields.append(Field("dynamic_batching", Message(batching)))
    if not config.steps:
        group = [Field("count", config.instance_count), Field("kind", Word(config.instance_kind))]
        group += [Field("gpus", device) for device in config.device_numbers]
        fields.append(Field("instance_group", Message(group)))
    return proto_text(fields)


def with_batching(
    config: ModelConfig, *, instances: int, most_batch: int, queue_delay_s: float, device_count: int = 0
) -> ModelConfig:
    """Return a configuration with other instances, batches and delay, and without preferred sizes.

    Args:
        device_count: devices in place of those that the configuration names, where it names some; 0 for the same. Named
            ones come first, then the lowest others.
    """
    numbers = config.device_numbers
    if device_count and numbers:
        others = (number for number in range(device_count + len(numbers)) if number not in numbers)
        numbers = tuple(sorted([*numbers, *others][:device_count]))
    return replace(
        config, instance_count=instances, most_batch_count=most_batch, queue_delay_s=queue_delay_s, preferred_count=(),
        has_dynamic_batching=True, device_numbers=numbers,
    )  # fmt: skip
