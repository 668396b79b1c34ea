"""The server as a client of the protocol sees it: its tools, their answers, and errors that arrive as errors."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("mcp")
import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from nearpeak import __all__ as public
from nearpeak.mcp_server.stdio_service import schema_text, server_of

GEMM = "gemm m=64 n=64 k=64 dtype=fp32"
READING = ("bound", "predict", "explain", "analyze_trace", "show_targets", "show_operators")
RUNNING = ("validate", "measure", "compare")
ON_H100 = {"case": GEMM, "target": "h100_sxm"}
TRACE = {
    "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "gemm_kernel", "pid": 0, "tid": 7, "ts": 10, "dur": 5,
         "args": {"device": 0, "stream": 7, "correlation": 1}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 2,
         "args": {"correlation": 1}},
    ],
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
    "schemaVersion": 1,
}  # fmt: skip


def alone(function):
    """Run an async function in a thread of its own: other tests of the process may keep a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(anyio.run, function).result()


@pytest.fixture
def ask(tmp_path):
    """A function that calls tools of a server in this process, and returns whether each failed and what it said."""

    def calls(*questions, may_run=True):
        async def talk():
            async with Client(server_of(tmp_path, may_run=may_run)) as client:
                return [await client.call_tool(name, arguments) for name, arguments in questions]

        return [(answer.is_error, answer.content[0].text, answer.structured_content) for answer in alone(talk)]

    return calls


def test_every_tool_is_listed_with_a_schema_of_arguments_and_whether_it_runs_code(tmp_path):
    async def listed():
        async with Client(server_of(tmp_path, may_run=False)) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in alone(listed)}
    assert sorted(tools) == sorted((*READING, *RUNNING))
    assert [name for name in tools if tools[name].annotations.read_only_hint] == list(READING)
    for tool in tools.values():
        assert tool.description
        assert all("description" in about for about in tool.input_schema["properties"].values()), tool.name
        assert tool.output_schema["type"] == "object"
    assert {"bound", "predict", "explain", "validate", "measure", "compare"} <= set(public)


def test_the_printed_schema_names_every_tool_and_what_it_takes(tmp_path):
    server = server_of(tmp_path, may_run=False)
    with ThreadPoolExecutor(1) as thread:  # tests of pages leave an event loop behind in this one
        text, tools = (thread.submit(schema_text, server, json=is_json).result() for is_json in (False, True))
    tools = json.loads(tools)
    assert sorted(tool["name"] for tool in tools) == sorted((*READING, *RUNNING))
    assert all(tool["description"] and tool["schema"]["properties"] for tool in tools)
    for tool in tools:
        needed = tool["schema"].get("required", [])
        assert f"{tool['name']}: " in text
        for name in tool["schema"]["properties"]:
            assert f"  {name}{'' if name in needed else ' (optional)'}: " in text


def test_bound_and_prediction_of_a_case_come_as_data(ask):
    (failed, text, bound), (_, _, predicted) = ask(("bound", ON_H100), ("predict", ON_H100))
    assert (failed, json.loads(text)) == (False, bound)
    assert bound["limiter"] in [term["name"] for term in bound["terms"]]
    assert predicted["bound_s"] <= predicted["predicted_s"] <= predicted["high_s"]


def test_an_edit_changes_the_device_and_words_change_the_case(ask):
    twice = ON_H100 | {"edits": ['dram.bandwidth="9 TB/s"']}
    (_, _, plain), (_, _, faster), (failed, _, explained) = ask(
        ("bound", ON_H100), ("bound", twice), ("explain", ON_H100 | {"other_case": "m=65"})
    )
    dram = [{term["name"]: term["time_s"] for term in found["terms"]}["dram"] for found in (plain, faster)]
    assert dram[1] < dram[0]
    assert not failed
    assert [case["m"] for case in explained["cases"]] == [64, 65]


def test_devices_and_operators_are_found_by_a_part_of_their_name(ask):
    (_, _, all_devices), (_, _, devices), (_, _, all_operators), (_, _, softmax) = ask(
        ("show_targets", {}), ("show_targets", {"name": "h100"}),
        ("show_operators", {}), ("show_operators", {"name": "softmax"}),
    )  # fmt: skip
    assert 0 < len(devices["targets"]) < len(all_devices["targets"])
    assert {"op": "softmax", "needs": ["rows", "columns", "dtype"]} in all_operators["operators"]
    assert softmax["operators"][0]["usage"][0].startswith("nearpeak bound ")


def test_a_trace_below_the_folder_is_analysed_and_one_outside_is_refused(ask, tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(TRACE), encoding="utf-8")
    (failed, text, found), (outside, line, _), (absent, missing, _) = ask(
        ("analyze_trace", {"path": "trace.json"}),
        ("analyze_trace", {"path": "../trace.json"}),
        ("analyze_trace", {"path": "none.json"}),
    )
    assert not failed, text
    assert found["target"] == "h100_sxm"
    assert found["verdict"]
    assert (outside, absent) == (True, True)
    assert "lies outside of" in line
    assert missing.endswith("none.json: not found")


def test_errors_arrive_as_errors_in_the_one_line_of_the_command_line(ask):
    faults = [
        ("bound", {"case": "gemm m=64", "target": "h100_sxm"}, "gemm: "),
        ("bound", {"case": GEMM, "target": "h100_sxn"}, "target 'h100_sxn'"),
        ("predict", {"case": "gemn m=64", "target": "h100_sxm"}, "op 'gemn'"),
        ("explain", ON_H100, "explain: one case on one target"),
        ("bound", {"case": GEMM}, "bound: target: field required"),
        ("bound", ON_H100 | {"dtype": "fp8"}, "bound: takes no 'dtype'; it takes case, target, edits"),
        ("measure", {"case": GEMM, "budget_s": -1}, "measure: budget_s: input should be greater than 0"),
        ("measure", {"case": GEMM, "runner": "torch_gpu"}, "runner 'torch_gpu'"),
        ("show_operators", {"name": "gemn"}, "op 'gemn': no name contains it"),
        ("tune", {}, "Unknown tool: tune"),
    ]
    answers = ask(*[(name, arguments) for name, arguments, _ in faults])
    for (failed, line, _), (*_, beginning) in zip(answers, faults, strict=True):
        assert failed, line
        assert line.startswith(beginning)
        assert "\n" not in line


def test_what_runs_code_refuses_until_it_is_permitted(ask):
    pair = {"case": GEMM, "baseline": "null", "candidate": "null"}
    answers = ask(
        ("measure", {"case": GEMM}), ("validate", {"case": GEMM, "implementation": "a.py:f"}), ("compare", pair),
        may_run=False,
    )  # fmt: skip
    assert [failed for failed, *_ in answers] == [True, True, True]
    assert answers[0][1] == "measure: runs code on this machine; start the server with --allow-run"


def test_a_measurement_says_what_came_out(ask):
    ((failed, text, measured),) = ask(("measure", {"case": GEMM, "runner": "null", "budget_s": 0.01}))
    assert not failed, text
    assert measured["outcome"] == "converged"
    assert measured["low_s"] <= measured["time_s"] <= measured["high_s"]


@pytest.mark.slow
def test_a_comparison_gives_a_verdict(ask):
    ((failed, text, compared),) = ask(
        ("compare", {"case": GEMM, "baseline": "numpy", "candidate": "numpy", "budget_s": 1.0})
    )
    assert not failed, text
    assert compared["outcome"] == "compared", text
    assert compared["judgement"]["verdict"] in ("improvement", "invariant", "regression", "inconclusive")


@pytest.mark.slow
def test_a_wrong_function_is_named_by_the_check_that_it_fails(ask, tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "kernels.py"
    file.write_text("def half(tensors, **_):\n    return {'y': tensors['a'] @ tensors['b'] / 2}\n", encoding="utf-8")
    ((failed, text, found),) = ask(("validate", {"case": GEMM, "implementation": f"{file}:half"}))
    assert not failed, text
    assert found["status"] != "PASS"
    assert any(check["status"] not in ("PASS", "SKIPPED") for check in found["checks"])


@pytest.mark.slow
def test_the_command_serves_over_standard_input_and_output_and_ends_with_it(tmp_path):
    """What a measurement's process prints must not reach the protocol's stream."""

    async def talk():
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "nearpeak", "mcp", "--allow-run"], cwd=tmp_path, env=dict(os.environ)
        )
        async with Client(stdio_client(server)) as client:
            measured = await client.call_tool("measure", {"case": GEMM, "runner": "callable:loud.py:product"})
            return measured, await client.call_tool("bound", ON_H100)

    (tmp_path / "loud.py").write_text(
        "def product(tensors, **_):\n    print('loud', flush=True)\n    return {'y': tensors['a'] @ tensors['b']}\n"
    )
    measured, bound = alone(talk)
    assert (measured.is_error, bound.is_error) == (False, False)
    assert measured.structured_content["outcome"]
