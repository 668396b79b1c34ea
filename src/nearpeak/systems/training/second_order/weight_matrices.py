"""Weight matrices of a transformer on one rank, to which second-order methods are applied."""

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import NotModelledError
from nearpeak.systems.training.second_order.matrix_methods import MatrixLayer


def weight_matrices(shape: TransformerShape, plan: TrainingPlan) -> tuple[MatrixLayer, ...]:
    """Return the matrices of the layers of the fullest stage as one rank holds them, with the tokens of its step.

    Tensor parallelism splits outputs or inputs; each part is treated as a matrix of its own, as block-diagonal
    preconditioners do. Embedding and output head are left to a first-order optimizer, as is usual.

    Raises:
        NotModelledError: attention with a latent cache, whose factors no published method treats.

    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> plan = TrainingPlan(tp=2, dp=4, micro_batch=1, global_batch=8, sequence=4096)
    >>> [(layer.name, layer.rows, layer.columns) for layer in weight_matrices(shape_of("llama-3-8b"), plan)]
    [('qkv', 3072, 4096), ('attention output', 4096, 2048), ('gate and up', 14336, 4096), ('down', 4096, 7168)]
    """
    if shape.latent is not None:
        raise NotModelledError(f"{shape.name}: second-order factors of latent attention have no model; use adamw")
    tokens = plan.micro_batch_count * plan.micro_batch * plan.sequence // plan.cp
    layer_count = -(-shape.layer_count // plan.pp)
    query, key = shape.head_count * shape.head_width, shape.kv_head_count * shape.head_width
    inputs = 2 if shape.is_gated else 1

    def matrix(name: str, rows: int, columns: int, count: int, token_count: int = tokens) -> MatrixLayer:
        return MatrixLayer(name=name, rows=rows, columns=columns, token_count=token_count, layer_count=count)

    matrices = [
        matrix("qkv", (query + 2 * key) // plan.tp, shape.hidden, layer_count),
        matrix("attention output", shape.hidden, query // plan.tp, layer_count),
    ]
    expert_layers = -(-shape.expert_layer_count // plan.pp)
    dense_layers = layer_count - expert_layers
    if dense_layers:
        matrices += [
            matrix(
                "gate and up" if shape.is_gated else "up", inputs * shape.ffn // plan.tp, shape.hidden, dense_layers
            ),
            matrix("down", shape.hidden, shape.ffn // plan.tp, dense_layers),
        ]
    if shape.experts and expert_layers:
        width, held = shape.experts.width // plan.etp, expert_layers * (shape.experts.count // plan.ep)
        rows = max(tokens * plan.ep * shape.experts.per_token // shape.experts.count, 1)
        matrices += [
            matrix("experts, first product", inputs * width, shape.hidden, held, rows),
            matrix("experts, second product", shape.hidden, width, held, rows),
        ]
    return tuple(matrices)
