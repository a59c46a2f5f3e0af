"""What /v1/models, /props and /slots show: pure functions, llama-server's keys."""

from collections.abc import Iterable

import orjson

from schemas.params import Params
from schemas.rpc import ModelDescription, SlotDescription, SlotsDescription
from services.gateway.config import GatewaySettings
from services.gateway.slot_numbers import SlotAddress, number_of
from services.streams.projections.settings_json import generation_settings

Json = dict[str, object]
MEDIA_MARKER = "<__media__>"
TASK_ID_MASK = 0x7FFFFFFF
ONLY_IN_ANSWERS = (
    "dry_sequence_breakers",
    "stop",
    "logit_bias",
    "grammar",
    "grammar_lazy",
    "grammar_triggers",
    "preserved_tokens",
)
"""Parameters that /props and /slots leave out."""
NO_MODELS: Json = {"models": [], "object": "list", "data": []}


def models_view(found: ModelDescription, settings: GatewaySettings, created_at_s: int) -> Json:
    """Ollama's list under `models`, OpenAI's under `data`; there is one model."""
    return {
        "models": [_ollama_entry(found, settings.model_name)],
        "object": "list",
        "data": [_openai_entry(found, settings, created_at_s)],
    }


def _openai_entry(found: ModelDescription, settings: GatewaySettings, created_at_s: int) -> Json:
    return {
        "id": settings.model_name,
        "aliases": sorted({settings.model_name, *settings.aliases}),
        "tags": sorted(settings.tags),
        "object": "model",
        "created": created_at_s,
        "owned_by": "llamacpp",
        "meta": {
            "vocab_type": found.vocab_type,
            "n_vocab": found.n_vocab,
            "n_ctx": found.n_ctx,
            "n_ctx_train": found.n_ctx_train,
            "n_embd": found.n_embd,
            "n_params": found.n_params,
            "size": found.n_bytes,
            "ftype": found.ftype,
        },
    }


def _ollama_entry(found: ModelDescription, name: str) -> Json:
    is_multimodal = found.has_vision or found.has_audio
    details = {
        "parent_model": "",
        "format": "gguf",
        "family": "",
        "families": [""],
        "parameter_size": "",
        "quantization_level": "",
    }
    return {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion", "multimodal"] if is_multimodal else ["completion"],
        "parameters": "",
        "details": details,
    }


def props_view(found: ModelDescription, settings: GatewaySettings, *, is_sleeping: bool) -> Json:
    """The model's properties and what this server has switched on."""
    defaults = {"params": params_view(found.params), "n_ctx": found.n_ctx}
    return {
        "default_generation_settings": defaults,
        "total_slots": found.n_slots,
        "model_alias": settings.model_name,
        "model_ftype": found.ftype,
        "model_path": settings.model_path or found.path,
        "modalities": {"vision": found.has_vision, "video": False, "audio": found.has_audio},
        "media_marker": MEDIA_MARKER,
        "endpoint_slots": settings.has_slots,
        "endpoint_props": settings.has_props_post,
        "endpoint_metrics": settings.has_metrics,
        "ui": settings.has_page,
        "ui_settings": orjson.loads(settings.ui_settings),
        "chat_template": found.chat_template,
        "chat_template_caps": found.chat_template_caps,
        "bos_token": found.bos_token,
        "eos_token": found.eos_token,
        "build_info": found.build,
        "is_sleeping": is_sleeping,
        "cors_proxy_enabled": settings.has_cors_proxy,
    }


def params_view(params: Params) -> Json:
    """The parameters that /props and /slots show."""
    shown = generation_settings(params, params.sampling.seed)
    return {name: value for name, value in shown.items() if name not in ONLY_IN_ANSWERS}


def slots_view(engines: Iterable[SlotsDescription]) -> list[Json]:
    """The slots of all engines, in the order of `engines`."""
    return [
        _slot_view(slot, number_of(SlotAddress(engine.ordinal, slot.id), len(engine.slots)))
        for engine in engines
        for slot in engine.slots
    ]


def _slot_view(slot: SlotDescription, number: int) -> Json:
    view: Json = {
        "id": number,
        "n_ctx": slot.n_ctx,
        "speculative": False,
        "is_processing": slot.is_processing,
    }
    return view if slot.params is None else view | _work_view(slot, slot.params)


def _work_view(slot: SlotDescription, params: Params) -> Json:
    """What the slot does, or did last."""
    next_token = {
        "has_next_token": slot.is_processing,
        "has_new_line": slot.has_new_line,
        "n_remain": slot.n_remain,
        "n_decoded": slot.n_decoded,
    }
    return {
        "id_task": _task_number(slot.generation_id),
        "generation_id": slot.generation_id,
        "n_prompt_tokens": slot.n_held,
        "n_prompt_tokens_processed": slot.n_processed - slot.n_cached,
        "n_prompt_tokens_cache": slot.n_cached,
        "params": params_view(params),
        "next_token": [next_token],
    }


def _task_number(generation_id: str | None) -> int:
    """A number for clients that expect one; the random tail of the id, −1 for none."""
    if generation_id is None:
        return -1
    return int(generation_id.replace("-", ""), 16) & TASK_ID_MASK
