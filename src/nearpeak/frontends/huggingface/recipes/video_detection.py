"""Input recipe for detection and tracking in a video: a session with a text prompt in which one object is followed."""

from types import SimpleNamespace
from typing import Any, get_type_hints

from nearpeak.frontends.huggingface.input_request import DEFAULT_TOKENS, Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import size
from nearpeak.frontends.huggingface.recipes.video_session import FRAME_COUNT, name_memory

_OBJECT = 0


def session(ask: Ask) -> Any:
    """Return a session after its first frame, in which one object of the prompt was found: the second follows it."""
    import torch

    model = ask.model.eval()
    height, width = size(ask)
    kind = get_type_hints(type(model).forward)["inference_session"]
    made = kind(
        video=ask.floats(FRAME_COUNT, 3, height, width), video_height=height, video_width=width, dtype=model.dtype
    )
    prompt = made.add_prompt("object")
    made.prompt_input_ids[prompt] = ask.tokens(1, DEFAULT_TOKENS, value=1)
    made.prompt_attention_masks[prompt] = ask.filled(1, DEFAULT_TOKENS)
    rows, columns = model.tracker_model.prompt_encoder.image_embedding_size
    seen = ask.floats(1, rows * columns, ask.config.detector_config.vision_config.backbone_config.hidden_size)
    side = ask.config.low_res_mask_size
    with torch.no_grad():
        text = made.prompt_embeddings[prompt] = model.detector_model.get_text_features(
            input_ids=made.prompt_input_ids[prompt], attention_mask=made.prompt_attention_masks[prompt],
            return_dict=True,
        )  # fmt: skip
        features, places = model.get_vision_features_for_tracker(SimpleNamespace(last_hidden_state=seen))
        made.cache.cache_vision_features(0, {"vision_feats": features, "vision_pos_embeds": places})
        model._tracker_add_new_objects(made, 0, [_OBJECT], ask.floats(1, side, side))
    made.obj_id_to_prompt_id[_OBJECT], made.obj_id_to_score[_OBJECT] = prompt, 1.0
    made.obj_first_frame_idx[_OBJECT], made.trk_keep_alive[_OBJECT] = 0, ask.config.init_trk_keep_alive
    made.max_obj_id = _OBJECT
    name_memory(ask, made)
    ask.named += [(value, "input", f"prompt.{name}") for name, value in text.items() if torch.is_tensor(value)]
    return made


RECIPE = Recipe(gives={"inference_session": session, "frame_idx": lambda _: 1}, model_types=frozenset({"sam3_video"}))
