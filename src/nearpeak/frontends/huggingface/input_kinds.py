"""Kinds of input (text, image, audio, …) by parameter name of a model's forward pass."""

from collections.abc import Iterable

_KINDS = {
    "input_ids": "text", "pixel_values": "image", "image": "image",
    "flattened_patches": "image", "image_pixel_values": "image", "pixel_values_videos": "video",
    "input_features": "audio", "input_values": "audio", "audio_mel": "audio", "audio_input_features": "audio",
    "audio_input_ids": "audio", "latents": "latents", "audio_latents": "latents", "hidden_states": "embeddings",
    "query_embeds": "embeddings", "noise_embeds": "embeddings", "action_embeds": "actions", "states": "states",
    "past_values": "time series", "bbox": "boxes", "input_points": "points", "visual_feats": "regions",
    "visual_embeds": "regions", "entity_ids": "entities", "xpath_tags_seq": "markup", "protein_input_ids": "protein",
    "input_shape_ids": "glyphs", "input_pronunciation_ids": "pronunciation", "prompt_pixel_values": "prompt image",
    "high_res_pixel_values": "fine image", "task_inputs": "task", "classes_input_ids": "classes",
    "qformer_input_ids": "instruction", "inputs": "array",
}  # fmt: skip


def kinds_of(parameters: Iterable[str]) -> frozenset[str]:
    """Return the kinds of input that parameters of a forward pass bring; `part:parameter` names one of a part's.

    >>> sorted(kinds_of(["input_ids", "attention_mask", "pixel_values"]))
    ['image', 'text']
    """
    names = (name.rpartition(":")[2] for name in parameters)
    return frozenset(_KINDS[name] for name in names if name in _KINDS)
