"""How llama.cpp loads a model and makes a context: its own parameters, with its own defaults.

The same values go from the settings to the decoder; what changes the numbers that a model computes
is part of what two engines must share to take over from one another.
"""

from hashlib import sha256

from schemas.codec import encode
from schemas.struct import Message


class ModelOptions(Message, frozen=True, kw_only=True):
    """load_mode: auto, none, mmap, mlock, mmap+mlock or dio. lazy_mode: on, auto or off.

    overrides: (key, type, value) of metadata; types int, float, bool, str. devices: names, ("none",)
    for none, () for all. n_gpu_layers: −1 automatic, −2 all. tensor_split: share per device.
    buffers: (pattern of tensor names, name of a buffer type). numa: a strategy, empty for none.
    """

    load_mode: str = "auto"
    lazy_mode: str = "auto"
    is_checked: bool = False
    is_repacked: bool = True
    has_host_buffer: bool = True
    overrides: tuple[tuple[str, str, str], ...] = ()
    devices: tuple[str, ...] = ()
    n_gpu_layers: int = -1
    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    buffers: tuple[tuple[str, str], ...] = ()
    numa: str = ""


class ContextOptions(Message, frozen=True, kw_only=True):
    """flash_attn: on, off or auto. cache_type_*: a type of ggml. Zero (of yarn_* negative) values are
    the model's own. rope_scaling: none, linear or yarn, empty for the model's."""

    flash_attn: str = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    offloads_kv: bool = True
    offloads_ops: bool = True
    has_perf: bool = False
    rope_scaling: str = ""
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_orig_ctx: int = 0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = -1.0
    yarn_beta_fast: float = -1.0
    yarn_beta_slow: float = -1.0


def numbers_digest(model: ModelOptions, context: ContextOptions) -> str:
    """sha256 in hex over what decides the numbers; empty where all of it is the default.

    Where weights lie and how they are read is not part of it, except that repacked ones and other
    devices go through other kernels.
    """
    part = ModelOptions(
        overrides=model.overrides,
        devices=model.devices,
        n_gpu_layers=model.n_gpu_layers,
        is_repacked=model.is_repacked,
        buffers=model.buffers,
    )
    if part == ModelOptions() and context == ContextOptions(has_perf=context.has_perf):
        return ""
    return sha256(encode(part) + b"\0" + encode(context)).hexdigest()
