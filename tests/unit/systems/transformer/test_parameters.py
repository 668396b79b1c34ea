"""Parameters of transformers against published counts."""

import pytest

from nearpeak.frontends.huggingface.transformer_models import published_parameters, shape_names, shape_of
from nearpeak.systems.transformer.parameters import parameter_count, parameter_counts

DECODERS = [name for name in shape_names() if published_parameters(name) and shape_of(name).is_causal]


@pytest.mark.parametrize("name", DECODERS)
def test_parameters_agree_with_the_published_count(name):
    assert parameter_count(shape_of(name)) == pytest.approx(published_parameters(name), rel=1e-4)


def test_parts_add_up_and_experts_are_counted_apart():
    counts = parameter_counts(shape_of("deepseek-v3"))
    assert counts.expert == 3 * 7168 * 2048
    assert counts.experts == 58 * 256 * counts.expert
    assert counts.total == 671_026_404_352


@pytest.mark.parametrize(("name", "active"), [("deepseek-v3", 37.5e9), ("mixtral-8x7b", 12.9e9), ("dbrx", 36.5e9)])
def test_a_token_meets_the_published_share_of_experts(name, active):
    # DeepSeek-AI 2024, arXiv:2412.19437 (37 B); Jiang et al. 2024, arXiv:2401.04088 (13 B); DBRX model card (36 B).
    shape = shape_of(name)
    counts = parameter_counts(shape)
    unused = counts.expert_layer_count * (counts.expert_count - shape.experts.per_token)
    assert counts.total - unused * counts.expert == pytest.approx(active, rel=5e-3)
