"""What a report advises is said in the words of the tool that wrote the trace."""

import pytest
from benchmarks._trace_files import WRITERS, planned

from nearpeak.errors import SpecError
from nearpeak.traces import read_trace
from nearpeak.traces.executed.executed_steps import executed_of


def made(folder, form):
    suffix, write = WRITERS[form]
    path = folder / f"made{suffix}"
    write(path, planned(3, 20))
    return read_trace(path)


@pytest.mark.parametrize("form", WRITERS)
def test_only_the_pytorch_profiler_is_told_to_set_its_options(form, tmp_path):
    trace = made(tmp_path, form)
    try:
        said = " ".join(executed_of(trace).missing.values())
    except SpecError as error:
        said = str(error)
    assert form == "kineto" or "record_shapes" not in said
    assert "ProfilerActivity" not in said


def test_a_file_without_device_work_says_what_to_give_instead(tmp_path):
    with pytest.raises(SpecError, match="profiler's trace"):
        executed_of(made(tmp_path, "power_log"))


def test_kernels_that_were_replayed_are_said_to_have_no_times(tmp_path):
    notes = executed_of(made(tmp_path, "ncu_csv")).notes
    assert any("replayed one by one" in note for note in notes)
