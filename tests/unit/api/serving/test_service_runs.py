"""Services of a question: what their engines take from settings, and what from the engine's file."""

from dataclasses import replace

import pytest

from nearpeak.api.serving.service_question import ServiceQuestion
from nearpeak.api.serving.service_runs import Service
from nearpeak.core.systems.service_settings import settings_of
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.transformer_models import shape_of
from nearpeak.systems.serving.engine_costs import engine_costs, engine_text
from nearpeak.targets import target_of


@pytest.fixture
def waiting(tmp_path):
    """Return a service of an engine whose file has prompts wait 60 steps, under settings in words."""
    file = tmp_path / "waits.toml"
    file.write_text(engine_text(replace(engine_costs("trtllm"), rank_wait_count=60)), "utf-8")

    def service(words, ranks=2):
        question = ServiceQuestion(
            engine=str(file), settings=settings_of(f"chunk=64,max_batch=4{words}"), concurrency=4, input_tokens=32,
            output_tokens=8,
        )  # fmt: skip
        layout = ServingLayout(tp=2, ep=2, attention_dp=ranks)
        return Service(shape=shape_of("mixtral-8x7b"), target=target_of("h100_sxm"), layout=layout, replica_count=1,
                       question=question)  # fmt: skip

    return service


@pytest.mark.parametrize(("words", "steps"), [("", 60), (",rank_wait=5", 5), (",rank_wait=0", 0)])
def test_settings_go_before_the_wait_of_the_engine_file_and_0_switches_it_off(waiting, words, steps):
    assert waiting(words).engine()[0].rank_wait_step_count == steps


@pytest.mark.parametrize("steps", [0, 5])
def test_a_wait_for_ranks_that_do_not_exist_is_refused(waiting, steps):
    with pytest.raises(SpecError, match="no attention data-parallel ranks"):
        waiting(f",rank_wait={steps}", ranks=1).engine()
