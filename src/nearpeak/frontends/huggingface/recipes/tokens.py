"""Input recipe for text tokens, with placeholder tokens for the embeddings of images, video and audio."""

from collections.abc import Iterator
from typing import Any

from nearpeak.frontends.huggingface.config_parts import parts
from nearpeak.frontends.huggingface.input_request import DEFAULT_TOKENS, Ask, Recipe

MEDIA = ("image", "video", "audio")
"""Kinds of input that may take the place of text tokens, in the order of a prompt."""
_MEDIA_TOKENS = {
    "image": ("image_token_id", "image_token_index", "image_patch_id", "media_placeholder_token_id"),
    "video": ("video_token_id", "video_token_index"),
    "audio": ("audio_token_id", "audio_token_index", "audio_placeholder_token_id"),
}  # fmt: skip
_KEEP_FREE = 4  # positions that some models start counting after


def input_ids(ask: Ask) -> Any:
    """Return (batch, tokens): media first, then text; the values are known, as models look for their placeholders."""
    if ask.hints.get("embedded"):
        return None
    row: list[int] = []
    for kind in MEDIA:
        token, count = media_token(ask, kind), media_count(ask, kind)
        if token is not None and count:
            row += [*_mark(ask, kind, "start", "bos"), *([token] * count), *_mark(ask, kind, "end", "eos")]
    if not row and not ask.values_known:
        return ask.tokens(ask.batch, text_count(ask), value=plain_token(ask))
    row += [plain_token(ask)] * text_count(ask, len(row))
    return ask.whole([row] * ask.batch)


def text_count(ask: Ask, taken: int = 0) -> int:
    """Return how many text tokens a prompt has beside `taken` others: as asked, within the positions there are."""
    if "text_tokens" in ask.hints:  # checked against the positions already
        return int(ask.hints["text_tokens"])
    wanted = ask.sequence or ask.hints.get("sequence") or DEFAULT_TOKENS
    limit = ask.setting("max_position_embeddings", "n_positions", "max_seq_len", kind="text")
    room = limit - _KEEP_FREE - taken if isinstance(limit, int) and limit > _KEEP_FREE else wanted
    return max(1, min(wanted, room))


def media_token(ask: Ask, kind: str) -> int | None:
    """Return the token that stands for one embedding of `kind`; none where the model has none."""
    token = ask.setting(*_MEDIA_TOKENS[kind], kind="text")
    return token if isinstance(token, int) else None


def media_count(ask: Ask, kind: str) -> int:
    """Return how many embeddings the model makes of the input of `kind` in one sequence."""
    if media_token(ask, kind) is None or f"{kind}_tokens" in ask.hints:
        return int(ask.hints.get(f"{kind}_tokens", 0))
    return sum(rows(tensor) for tensor in embeddings(ask.features(kind))) // ask.batch


def embeddings(output: Any) -> Iterator[Any]:
    """Yield the tensors of embeddings in what a `get_…_features` method returned."""
    for name in ("pooler_output", "last_hidden_state"):
        value = getattr(output, name, None)
        if value is not None:
            output = value
            break
    if hasattr(output, "shape"):
        yield output
    elif isinstance(output, (tuple, list)):
        for part in output:
            yield from embeddings(part)


def rows(tensor: Any) -> int:
    """Return the number of embeddings in a tensor whose last extent is their width."""
    return int(tensor.numel() // tensor.shape[-1]) if tensor.numel() else 0


def plain_token(ask: Ask) -> int:
    """Return a token that means nothing to the model: no setting names it."""
    special = {
        value for _, part in parts(ask.config) for name, value in vars(part).items()
        if isinstance(value, int) and ("token" in name or name.endswith("_id"))
    }  # fmt: skip
    limit = ask.setting("vocab_size", kind="text", default=2)
    return next((value for value in range(5, int(limit)) if value not in special), 1)


def mm_token_type_ids(ask: Ask) -> Any:
    """Return (batch, tokens): 0 for text, 1 for images, 2 for videos, 3 for sound."""
    row = ask.given("input_ids")[0].tolist()
    kinds = {media_token(ask, kind): index for index, kind in enumerate(MEDIA, start=1)}
    return ask.whole([[kinds.get(token, 0) for token in row]] * ask.batch)


def _mark(ask: Ask, kind: str, *endings: str) -> list[int]:
    names = [
        f"{word}_{end}_token_id" for end in endings for word in (kind, "vision") if (word, kind) != ("vision", "audio")
    ]
    token = ask.setting(*names, kind="text")
    return [token] if isinstance(token, int) else []


RECIPE = Recipe(gives={"input_ids": input_ids, "mm_token_type_ids": mm_token_type_ids})
