"""Flags that stand for several others: a model of a hub and the settings that fit it (llama-server's)."""

from services.cli.table.row import Values

_GPT_OSS: Values = {
    "port": 8013,
    "ubatch_size": 2048,
    "batch_size": 32768,
    "parallel": 2,
    "ctx_size": 2 * 131072,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.01,
    "jinja": True,
}

PRESETS: dict[str, Values] = {
    "gpt_oss_20b_default": _GPT_OSS
    | {"hf_repo": "ggml-org/gpt-oss-20b-GGUF", "hf_file": "gpt-oss-20b-mxfp4.gguf"},
    "gpt_oss_120b_default": _GPT_OSS | {"hf_repo": "ggml-org/gpt-oss-120b-GGUF"},
}
"""By the key of the flag."""
