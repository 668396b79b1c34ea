"""The first lines of a report on a step: answer per item, gap, remedy, within 25 lines of 80 columns."""

import dataclasses
import re

import pytest
from markupsafe import escape
from tests.unit.prediction.test_execution_modes import chain

import nearpeak
from nearpeak.cli.shared.time_limit_option import exit_code, time_limit
from nearpeak.core.answers.analysis import Opportunity
from nearpeak.core.answers.items import Items, items_of, kv_of, sequence_of
from nearpeak.core.answers.time_limit import LimitVerdict
from nearpeak.errors import SpecError
from nearpeak.judgement.step_answer import (
    every_proposal,
    fastest_first,
    keeps_limit,
    larger_batch,
    limit_verdict,
    proposals_of,
    remedy_of,
)
from nearpeak.reports import render
from nearpeak.reports.analysis_document import document_of
from nearpeak.reports.document.html import to_html
from nearpeak.reports.document.markdown import to_markdown
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.step_headline import batch_sentence, headline, verdict_sentence, winner

LONG = ["norm", "gemm", "attention", "relu", "gemm", "relu"] * 20


def with_inputs(workload, inputs, step="forward"):
    return dataclasses.replace(workload, origin={**workload.origin, "inputs": inputs}, step=step)


@pytest.mark.parametrize(
    ("inputs", "step", "items"),
    [
        ("input_ids 4×1, 512 cached positions", "decode", Items(noun="token", count=4, is_one_each=True)),
        ("input_ids 4×128", "forward", Items(noun="token", count=512)),
        ("pixel_values 4×3×224×224", "train", Items(noun="image", count=4)),
        ("x 4×3×640×640 fp32", "forward", Items(noun="image", count=4)),
        ("input_ids 4×128, attention_mask 4×1×128×128", "forward", Items(noun="token", count=512)),
        ("input_features 4×80×3000, decoder_input_ids 4×128", "forward", Items(noun="sample", count=4)),
    ],
)
def test_items_follow_from_step_batch_and_inputs(inputs, step, items):
    assert items_of(with_inputs(chain(["relu"], batch=4), inputs, step)) == items


def test_a_source_without_a_batch_counts_steps():
    assert items_of(dataclasses.replace(chain(["relu"]), origin={})) == Items(noun="step", count=1)


def test_the_title_repeats_the_question():
    workload = with_inputs(chain(["gemm"], batch=4), "input_ids 4×1, 2048 cached positions", "decode")
    assert kv_of(workload) == 2048
    assert sequence_of(with_inputs(workload, "input_ids 4×128")) == 128
    first = to_terminal(document_of(nearpeak.analyze(workload, "h200_sxm"))).splitlines()[0]
    assert first == "chain  decode step, batch 4, kv 2,048, bf16 on H200 SXM 141 GB"


def test_the_headline_has_time_interval_rate_limit_cause_and_remedy():
    analysis = nearpeak.analyze(with_inputs(chain(LONG), "input_ids 1×1, 512 cached positions", "decode"), "h200_sxm")
    sentence = headline(analysis, analysis.targets[0])
    assert re.match(r"[\d.]+ ms a token \([\d.]+ to [\d.]+, eager\), [\d,]+ tokens/s; limit [\d.]+ [mµ]s\. ", sentence)
    assert re.search(
        r"\d+ % of the gap: the host, which submits 120 kernels one by one\. .*: about [\d.]+ [mµ]s\.$", sentence
    )


def test_the_page_says_the_headline_of_each_target_and_never_a_gain_above_all_there_is():
    analysis = nearpeak.analyze(chain(["relu"] * 100, batch=8), ["h100_sxm", "l4"])
    page = render(analysis, "html")
    for target in analysis.targets:
        assert escape(headline(analysis, target)) in page
    gains = [float(gain) for gain in re.findall(r"<span>([\d.]+) % less</span>", page)]
    assert gains
    assert max(gains) <= 100


@pytest.mark.parametrize("count", [1, 2, 5, 12])
@pytest.mark.parametrize("mode", ["eager", "graph", "compiled"])
def test_the_answer_fits_into_25_lines_of_80_columns_and_comes_first(count, mode):
    names = ["h100_sxm", "h200_sxm", "a100_sxm_80gb", "l4", "mi300x"]
    names = [*names, "b200_sxm", "l40s", "t4", "v100_sxm", "jetson_orin_nano", "gb200", "rtx_pro_6000"][:count]
    workload = with_inputs(chain(LONG, batch=64), "input_ids 64×1, 512 cached positions", "decode")
    text = to_terminal(document_of(nearpeak.analyze(workload, names, execution=mode)))
    lines = text.splitlines()
    assert len(lines) <= 25, text
    assert max(map(len, lines)) <= 80
    assert "a token" in " ".join(lines[1:3])
    assert lines[-1].endswith("(--why)")
    assert sum(any(line.startswith(f"{name} ") for line in lines[4:]) for name in names) == min(count, 5)


def test_names_of_targets_are_neither_broken_nor_cut_and_many_targets_share_a_verdict():
    names = ["jetson_orin_nano:15W", 'h100_sxm+power.limit="400 W"', "h100_sxm"]
    targets = [
        nearpeak.target("jetson_orin_nano:15W"),
        nearpeak.target("h100_sxm", ['power.limit="400 W"']),
        "h100_sxm",
    ]
    analysis = nearpeak.analyze(chain(LONG, batch=8), targets)
    for width in (80, 100, 120):
        text = to_terminal(document_of(analysis, time_limit("30fps")), width=width)
        assert max(map(len, text.splitlines())) <= width
        assert all(f"\n{name} " in text for name in names)
        assert len(text.splitlines()) <= 25
        assert ("energy" in text) == (width >= 100)
    assert text.count("Within 30fps") == 1


def test_the_same_answer_stands_in_text_page_and_markdown():
    document = document_of(nearpeak.analyze(chain(LONG, batch=8), "h100_sxm"))
    whole = to_terminal(document, is_unfolded=True)
    for text in (whole, to_markdown(document), to_html(document)):
        assert "an image" in text
        assert "torch.compile" in text
        assert "dense peaks" in text  # an assumption, folded in a terminal without --why
    assert "dense peaks" not in to_terminal(document)


@pytest.mark.parametrize(
    ("text", "noun", "value_s"),
    [
        ("20ms/token", "token", 0.02), ("30fps", "frame", 1 / 30), ("500images/s", "image", 0.002),
        ("500 images/s", "image", 0.002), ("5 ms", "step", 0.005), ("5us", "step", 5e-6),
        ("1e3 items/sec", "item", 1e-3),
    ],
)  # fmt: skip
def test_limits_are_read_with_and_without_blanks(text, noun, value_s):
    limit = time_limit(text)
    assert (limit.noun, limit.value_s) == (noun, pytest.approx(value_s))


@pytest.mark.parametrize("text", ["", "fast", "20", "0ms", "0fps", "-3 ms", "20 km", "1.2.3 ms", "20ms/", "nan ms"])
def test_what_is_no_limit_is_refused_in_one_line(text):
    with pytest.raises(SpecError, match=r"^--within .*: is no positive time or rate; e\.g\.") as caught:
        time_limit(text)
    assert "\n" not in str(caught.value)


def test_a_limit_on_other_items_is_refused_and_frames_are_images():
    analysis = nearpeak.analyze(chain(["gemm"], batch=8), "h100_sxm")
    assert limit_verdict(analysis, analysis.targets[0], time_limit("30fps")).allowed_s == pytest.approx(8 / 30)
    with pytest.raises(SpecError, match="this step works on images, not on tokens"):
        limit_verdict(analysis, analysis.targets[0], time_limit("20ms/token"))


def test_a_token_of_each_sequence_may_take_the_whole_step_but_a_rate_is_of_all():
    workload = with_inputs(chain(["gemm"], batch=4), "input_ids 4×1, 512 cached positions", "decode")
    analysis = nearpeak.analyze(workload, "h100_sxm")
    answer = analysis.targets[0]
    assert limit_verdict(analysis, answer, time_limit("20ms/token")).allowed_s == pytest.approx(0.02)
    assert limit_verdict(analysis, answer, time_limit("100tokens/s")).allowed_s == pytest.approx(0.04)


def test_the_remedy_is_of_the_cause_unless_another_gains_much_more():
    def one(kind, gain_s):
        return Opportunity(
            kind=kind, title=kind, where="", gain_s=gain_s, evidence="", before_s=1.0, after_s=1.0 - gain_s, action="x"
        )

    assert remedy_of((), "host") is None
    assert remedy_of((one("batch", 0.9),), "host") is None
    assert remedy_of((one("weights", 0.3), one("fusion", 0.2)), "launch").kind == "fusion"
    assert remedy_of((one("weights", 0.5), one("fusion", 0.2)), "launch").kind == "weights"
    assert remedy_of((one("weights", 0.1), one("kv_cache", 0.2)), "bandwidth").kind == "kv_cache"


def test_a_mode_that_keeps_what_the_headline_does_not_is_named():
    analysis = nearpeak.analyze(chain(["relu"] * 100, batch=8), "h100_sxm")
    eager, graph, _ = analysis.targets[0].executions
    between = time_limit(f"{1e6 * (eager.time_s + graph.time_s) / 2:.3f} us")
    text = to_terminal(document_of(analysis, between))
    assert "no, expected" in text
    assert "Expected to be met with --execution graph." in " ".join(text.split())


def verdict(**times):
    given = {"expected_s": 1.0, "low_s": 0.8, "high_s": 1.2, "bound_s": 0.5, "allowed_s": 1.0} | times
    return LimitVerdict(limit=time_limit("1 s"), **given)


@pytest.mark.parametrize(
    ("times", "code", "part"),
    [
        ({"allowed_s": 2.0}, 0, "yes, 2× as fast as needed."),
        ({"allowed_s": 1.1}, 0, "the 90 % interval ends at 1.09× the time allowed"),
        ({"allowed_s": 0.9}, 10, "the 90 % interval begins at 0.889× the time allowed"),
        ({"allowed_s": 0.6}, 10, "no, expected 1.67× the time allowed, the device's limit is 0.833× the time allowed."),
        ({"allowed_s": 0.4}, 10, "no, whatever the software"),
        ({"expected_s": None, "low_s": None, "high_s": None}, 11, "not known: nothing is predicted"),
    ],
)
def test_verdicts_say_by_how_much_and_give_an_exit_code(times, code, part):
    answer = verdict(**times)
    assert exit_code([answer]) == code
    assert part in verdict_sentence(answer, "h100_sxm")


def llama(**options):
    return nearpeak.capture("llama-3-8b", **options)


def test_a_larger_batch_states_what_each_user_waits_and_the_throughput_each_in_its_unit():
    analysis = nearpeak.analyze(llama(step="decode", kv=4096), "h200_sxm", execution="graph")
    answer = analysis.targets[0]
    change = larger_batch(answer)
    now = next(execution.time_s for execution in answer.executions if execution.mode == "graph")
    assert change.item_ratio == 8
    assert change.step_s == pytest.approx(8 * change.after_s)
    assert change.before_s == pytest.approx(now)
    assert change.step_s > now
    assert re.fullmatch(
        r"For throughput: batch 8, [\d,]+ → [\d,]+ tokens/s; a token of each sequence takes [\d.]+ ms → [\d.]+ ms\.",
        batch_sentence(analysis, change),
    )
    text = to_terminal(document_of(analysis))
    table = text.partition("what to try")[2].partition("For throughput")[0]
    assert "Run 8" not in table
    assert "--batch" not in table


@pytest.mark.parametrize(("limit", "kept"), [("20ms/token", True), ("10ms/token", False), ("200tokens/s", True)])
def test_a_larger_batch_that_breaks_a_limit_says_so(limit, kept):
    analysis = nearpeak.analyze(llama(step="decode", kv=4096), "h200_sxm", execution="graph")
    change = larger_batch(analysis.targets[0])
    assert keeps_limit(analysis, change, time_limit(limit)) == kept
    text = " ".join(to_terminal(document_of(analysis, time_limit(limit))).split())
    assert (f"Not within {limit}: batch 8" in text) != kept
    assert ("For throughput: batch 8" in text) == kept


@pytest.mark.parametrize(
    ("options", "target"),
    [({"step": "train"}, "h100_sxm"), ({}, "h100_sxm"), ({"step": "decode"}, "l4"), ({"step": "decode"}, "h200_sxm")],
)
def test_the_proposal_of_the_headline_is_the_first_row(options, target):
    analysis = nearpeak.analyze(llama(**options), target)
    answer = analysis.targets[0]
    first = proposals_of(analysis, answer)[0]
    assert f"{first.title}: about" in headline(analysis, answer)
    text = to_terminal(document_of(analysis), width=160)
    row = text.partition("what to try (gains overlap)")[2].splitlines()[2]
    assert first.title in row
    assert sorted(every_proposal(analysis, answer), key=str) == sorted(answer.opportunities, key=str)


def test_of_several_targets_the_fastest_is_named_with_its_lead_and_rows_are_sorted():
    workload = llama(step="decode", kv=4096)
    analysis = nearpeak.analyze(workload, ["l4", "h100_sxm", "h200_sxm"], execution="graph")
    assert [answer.target for answer in fastest_first(analysis).targets] == ["h200_sxm", "h100_sxm", "l4"]
    text = to_terminal(document_of(analysis), width=160)
    assert re.match(r"h200_sxm is the fastest, 1\.\d+× as fast as h100_sxm: [\d.]+ ms a token", text.splitlines()[1])
    assert text.index("\nh200_sxm ") < text.index("\nh100_sxm ") < text.index("\nl4 ")
    host_bound = fastest_first(nearpeak.analyze(workload, ["h100_sxm", "h200_sxm"]))
    assert winner(host_bound) == "h200_sxm, as fast as h100_sxm: "
    assert winner(nearpeak.analyze(workload, "l4")) == ""


def test_a_time_that_leaves_calls_out_is_no_winner():
    analysis = nearpeak.analyze(chain(LONG, batch=64), ["l4", "h100_sxm"], execution="graph")
    l4, h100 = analysis.targets

    def without(target, **unpredicted):
        named = {f"{target.target}: {name}": count for name, count in unpredicted.items()}
        return dataclasses.replace(target, prediction=dataclasses.replace(target.prediction, unpredicted=named))

    def found(*targets):
        ranked = fastest_first(dataclasses.replace(analysis, targets=targets))
        return ranked.targets[0].target, winner(ranked)

    assert found(l4, without(h100, sort=1)) == ("l4", "l4: ")
    assert found(without(l4, sort=1), h100)[1] == "h100_sxm: "
    assert found(without(l4, sort=1), without(h100, sort=1))[1].startswith("h100_sxm is the fastest, ")
    a10 = dataclasses.replace(l4, target="a10")
    assert found(l4, a10)[1] == "l4, as fast as a10: "
    assert found(l4, a10, without(h100, sort=1))[1] == "l4: ", "the H100 may be faster"


def test_targets_that_are_as_fast_are_all_named_or_counted_and_doubled_ones_once():
    analysis = nearpeak.analyze(chain(["relu"]), "l4")

    def found(*names):
        targets = [dataclasses.replace(analysis.targets[0], target=name) for name in names]
        return winner(dataclasses.replace(analysis, targets=tuple(targets)))

    assert found("l4", "l4") == "l4: "
    assert found("l4", "l4", "a10", "l40s") == "l4, as fast as a10 and l40s: "
    assert found("l4", "a10", "l40s", "t4") == "l4, as fast as 3 others: "


def test_where_no_target_holds_the_step_none_is_the_fastest():
    analysis = nearpeak.analyze(llama(step="decode", batch=512, kv=8192), ["l4", "a10"])
    assert winner(fastest_first(analysis)) == "No target's memory holds it; a10, if it did: "


@pytest.mark.parametrize(("limit", "kept"), [("2ms/image", True), ("2 ms", False), ("500images/s", True)])
def test_a_time_per_image_may_be_taken_by_each_image_of_a_larger_batch(limit, kept):
    analysis = nearpeak.analyze(chain(["gemm"], batch=2), "h100_sxm")
    change = Opportunity(kind="batch", title="", where="", gain_s=0.0, evidence="", before_s=2e-3, after_s=0.9e-3,
                         item_ratio=4)  # fmt: skip
    assert keeps_limit(analysis, change, time_limit(limit)) == kept


def test_six_targets_a_limit_and_a_batch_that_breaks_it_fit_into_25_lines():
    names = ["l4", "a10", "l40s", "h100_sxm", "mi300x", "h200_sxm"]
    analysis = nearpeak.analyze(llama(step="decode", batch=16, kv=4096), names)
    lines = to_terminal(document_of(analysis, time_limit("30ms/token"))).splitlines()
    assert any("Not within 30ms/token: batch 128" in line for line in lines)
    assert len(lines) <= 25


def test_a_target_that_cannot_hold_the_step_does_not_win():
    analysis = nearpeak.analyze(llama(step="decode", batch=64, kv=8192), ["l4", "h100_sxm", "mi300x"])
    fits = [answer.fit.fits for answer in fastest_first(analysis).targets]
    assert fits == sorted(fits, reverse=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "ms a prompt to its first token"), ({"batch": 4}, "ms for 4 prompts to their first tokens"),
        ({"step": "train"}, "ms a step"),
    ],
)  # fmt: skip
def test_a_step_of_many_tokens_says_its_own_time_too(options, words):
    analysis = nearpeak.analyze(llama(sequence=512, **options), "h100_sxm")
    assert re.search(rf"[µm]s a token \(.*\), [\d.]+ {words}, [\d,]+ tokens/s", headline(analysis, analysis.targets[0]))
    images = nearpeak.analyze(chain(["relu"], batch=8), "h100_sxm")
    assert "s a batch of 8, " in headline(images, images.targets[0])


def test_what_the_answer_rests_on_labels_the_graph_and_says_nothing_twice():
    text = to_terminal(document_of(nearpeak.analyze(llama(step="decode", kv=4096), "h100_sxm")), is_unfolded=True)
    lines = text.splitlines()
    assert len(lines) <= 120
    assert "expected, kernel after kernel, graph: about" in text
    assert "energy per step, graph: about" in text
    assert sum("bound covers" in line for line in lines) == 1
    assert not any(line.startswith("by phase") for line in lines)
