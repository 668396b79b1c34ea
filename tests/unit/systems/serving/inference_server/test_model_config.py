"""Files config.pbtxt: what decides batches is read, and everything comes back as it was."""

import dataclasses

import numpy as np
import pytest

from nearpeak.errors import SpecError
from nearpeak.systems.serving.inference_server.model_config import (
    model_config_of,
    model_config_text,
    read_model_config,
    with_batching,
)  # fmt: skip
from nearpeak.systems.serving.inference_server.text_proto import Field, Message, Word, parse_proto, proto_text

RESNET = """
# a classifier
name: "resnet50"
platform: "tensorrt_plan"
max_batch_size: 64
input [ { name: "input__0", data_type: TYPE_FP16, dims: [ 3, 224, 224 ] } ]
output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 1000 ] } ]
dynamic_batching { preferred_batch_size: [ 16, 32 ]  max_queue_delay_microseconds: 1500 preserve_ordering: true }
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]
parameters { key: "note" value { string_value: 'say "hi"\\n' } }
"""
ENSEMBLE = """
name: "pipeline" platform: "ensemble" max_batch_size: 8
ensemble_scheduling {
  step [
    { model_name: "resize" model_version: -1 input_map { key: "raw" value: "image" } output_map { key: "out" value: "small" } },
    { model_name: "net" model_version: -1 input_map { key: "in" value: "small" } output_map { key: "y" value: "label" } }
  ]
}
"""  # noqa: E501 — lines as people write them


def test_what_decides_batches_is_read(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text(RESNET)
    config = read_model_config(path)
    assert (config.name, config.most_batch_count, config.preferred_count) == ("resnet50", 64, (16, 32))
    assert (config.queue_delay_s, config.instance_count, config.device_numbers) == (1.5e-3, 2, (0, 1))


@pytest.mark.parametrize("text", [RESNET, ENSEMBLE])
def test_a_configuration_that_is_written_reads_as_before(text):
    config = model_config_of(text)
    again = model_config_of(model_config_text(config))
    assert dataclasses.replace(again, message=config.message) == config
    changed = {"dynamic_batching", "instance_group"}
    kept, before = ([field for field in read.message if field.name not in changed] for read in (again, config))
    assert kept == before


def test_other_fields_of_batching_stay_when_it_is_changed():
    text = model_config_text(with_batching(model_config_of(RESNET), instances=4, most_batch=8, queue_delay_s=0.0))
    assert "preserve_ordering: true" in text
    assert model_config_of(text).instance_count == 4
    assert model_config_of(text).preferred_count == ()


def test_the_steps_of_an_ensemble_are_read():
    steps = model_config_of(ENSEMBLE).steps
    assert [step.model for step in steps] == ["resize", "net"]
    assert steps[1].inputs == (("in", "small"),)


def random_message(draw, depth=0):
    fields = []
    for _ in range(draw.integers(0, 5)):
        kind, name = draw.integers(0, 6 if depth < 3 else 5), "abcdef"[draw.integers(0, 6)]
        value = (
            int(draw.integers(-9, 9)), float(draw.normal()), bool(draw.integers(0, 2)), Word("KIND_CPU"),
            "".join(chr(c) for c in draw.choice([9, 10, 13, 34, 39, 92, 97, 233, 8364], 5)),
        )[kind] if kind < 5 else random_message(draw, depth + 1)  # fmt: skip
        fields.append(Field(name, value))
    return Message(fields)


def test_random_messages_come_back():
    draw = np.random.default_rng(5)
    for _ in range(300):
        message = random_message(draw)
        assert parse_proto(proto_text(message), "") == message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_batch_size: 8", "states no name"),
        ('name: "a"\nmax_batch_size 8', "line 2: '8' where ':' or '{' is expected"),
        ('name: "a" input {', "where '}' is expected"),
        ('name: "a" dims: [ 1 2 ]', "where ',' or ']' is expected"),
        ('name: "a" }', "where the name of a field is expected"),
        ("name: @", "a name, a number"),
        ('name: "a" max_batch_size: "8"', "max_batch_size must be whole numbers"),
        ('name: "a" max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }', "outside 1 to max_batch_size 4"),
        ("a {" * 60, "more than 50 deep"),
        ('name: "" max_batch_size: 4', "states no name"),
        ('name: "a" instance_group { count: 1 kind: KIND_TPU }', "kind KIND_TPU of an instance group"),
        ('name: "a" instance_group { count: 1 gpus: [ -1 ] }', "numbered from 0"),
        ('name: "a" ensemble_scheduling { step { model_name: "a" } }', "names the ensemble itself"),
    ],
)
def test_a_text_that_is_no_configuration_is_refused_in_one_line(text, words):
    with pytest.raises(SpecError, match=words) as error:
        model_config_of(text)
    assert "\n" not in str(error.value)


def test_cut_and_damaged_texts_raise_nothing_else():
    draw, lines = np.random.default_rng(1), []
    for _ in range(400):
        text = list(RESNET + ENSEMBLE)
        for place in draw.integers(0, len(text), 3):
            text[place] = chr(int(draw.integers(32, 127)))
        try:
            model_config_of("".join(text[: draw.integers(1, len(text))]))
        except SpecError as error:
            lines.append(str(error))
    assert len(lines) > 200
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize(("text", "message"), [
    ('name: "net"\nmax_batch_size: 8\ndynamic_batching { preferred_batch_size: [16] }',
     "config.pbtxt: model 'net': preferred_batch_size 16 lies outside 1 to max_batch_size 8 (line 3)"),
    ('# max_batch_size\nname: "net"\nmax_batch_size: 7000000',
     "config.pbtxt: model 'net': max_batch_size is 7e+06; 0 to 1000000 is right (line 3)"),
    (f'name: "net"\nmax_batch_size: {"9" * 400}', "99999999' where a number of at most 32 characters"),
    ('name: "net"\ndynamic_batching: 5', "dynamic_batching is a value; a message in braces is right (line 2)"),
    ('name: "net"\nensemble_scheduling { }', "config.pbtxt: ensemble_scheduling has no step"),
    (f'name: "{"n" * 300}"', "is no name of one line with at most 255 characters"),
    (f'name: "net"\ninstance_group {{ gpus: [{", ".join(map(str, range(1025)))}] }}', "gpus holds 1,025 devices"),
])  # fmt: skip
def test_a_wrong_file_is_named_with_line_or_field(tmp_path, text, message):
    path = tmp_path / "config.pbtxt"
    path.write_text(text, "utf-8")
    with pytest.raises(SpecError) as error:
        read_model_config(path)
    assert message in str(error.value).replace(f"{tmp_path}/", "")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(("text", "said"), [
    ('name: "a" max_batch_size: 99999999999999999999', "max_batch_size is 1e\\+20; 0 to 1000000"),
    ('name: "a" instance_group { count: 1000000000 }', "instances is 1e\\+09; 1 to 1024"),
    ('name: "a" dynamic_batching { max_queue_delay_microseconds: 10000000000000 }', "queue delay in seconds is 1e"),
    (" " * (1 << 20) + "a", "has 1,048,577 characters"),
])  # fmt: skip
def test_what_would_fill_the_memory_is_refused(text, said):
    with pytest.raises(SpecError, match=said):
        model_config_of(text)
