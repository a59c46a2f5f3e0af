# pyright: basic
"""Options into llama.cpp's structures. What a structure points to must outlive the call that takes it."""

import ctypes
from typing import Any

from services.engine.errors import ModelNotLoadable
from services.engine.llama.devices import find_buffer_type, find_devices
from services.engine.llama.library import lib
from services.engine.options import ContextOptions, ModelOptions

_LOAD_MODES = {
    "auto": lib.LLAMA_LOAD_MODE_AUTO,
    "none": lib.LLAMA_LOAD_MODE_NONE,
    "mmap": lib.LLAMA_LOAD_MODE_MMAP,
    "mlock": lib.LLAMA_LOAD_MODE_MLOCK,
    "mmap+mlock": lib.LLAMA_LOAD_MODE_MMAP_MLOCK,
    "dio": lib.LLAMA_LOAD_MODE_DIRECT_IO,
}
_LAZY_MODES = {
    "on": lib.LLAMA_LAZY_MODE_ON,
    "auto": lib.LLAMA_LAZY_MODE_AUTO,
    "off": lib.LLAMA_LAZY_MODE_OFF,
}
_SPLIT_MODES = {
    "none": lib.LLAMA_SPLIT_MODE_NONE,
    "layer": lib.LLAMA_SPLIT_MODE_LAYER,
    "row": lib.LLAMA_SPLIT_MODE_ROW,
    "tensor": lib.LLAMA_SPLIT_MODE_TENSOR,
}
_FLASH_ATTN = {
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
}
_ROPE = {
    "": lib.LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED,
    "none": lib.LLAMA_ROPE_SCALING_TYPE_NONE,
    "linear": lib.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    "yarn": lib.LLAMA_ROPE_SCALING_TYPE_YARN,
}
_CACHE_TYPES = {
    "f32": lib.GGML_TYPE_F32,
    "f16": lib.GGML_TYPE_F16,
    "bf16": 30,  # the bindings lack its name
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q4_0": lib.GGML_TYPE_Q4_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "iq4_nl": lib.GGML_TYPE_IQ4_NL,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
}
_NUMA = {
    "distribute": lib.GGML_NUMA_STRATEGY_DISTRIBUTE,
    "isolate": lib.GGML_NUMA_STRATEGY_ISOLATE,
    "numactl": lib.GGML_NUMA_STRATEGY_NUMACTL,
}
_TAGS = {
    "int": lib.LLAMA_KV_OVERRIDE_TYPE_INT,
    "float": lib.LLAMA_KV_OVERRIDE_TYPE_FLOAT,
    "bool": lib.LLAMA_KV_OVERRIDE_TYPE_BOOL,
    "str": lib.LLAMA_KV_OVERRIDE_TYPE_STR,
}
KEY_BYTES = 128


class _BufferOverride(ctypes.Structure):
    _fields_ = [("pattern", ctypes.c_char_p), ("kind", ctypes.c_void_p)]


class ModelParams:
    """`llama_model_params` of options, and what it points to. Raises ModelNotLoadable."""

    def __init__(self, options: ModelOptions, *, is_vocab_only: bool = False) -> None:
        self.value = lib.llama_model_default_params()
        self._kept: list[Any] = []
        if options.overrides:
            self.value.kv_overrides = self._keep(_overrides(options.overrides))
        self.value.vocab_only = is_vocab_only
        if not is_vocab_only:
            self._place(options)

    def _place(self, options: ModelOptions) -> None:
        """How the weights are read and where they go."""
        params = self.value
        params.load_mode = _LOAD_MODES[options.load_mode]
        params.lazy_mode = _LAZY_MODES[options.lazy_mode]
        params.check_tensors = options.is_checked
        params.use_extra_bufts = options.is_repacked
        params.no_host = not options.has_host_buffer
        params.n_gpu_layers = options.n_gpu_layers
        params.split_mode = _SPLIT_MODES[options.split_mode]
        params.main_gpu = options.main_gpu
        if options.devices:
            params.devices = self._address(_pointers(find_devices(options.devices)))
        if options.tensor_split:
            params.tensor_split = self._keep(_shares(options.tensor_split))
        if options.buffers:
            params.tensor_buft_overrides = self._address(_buffers(options.buffers))

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def _address(self, value: Any) -> int:
        return ctypes.addressof(self._keep(value))


def init_backend(options: ModelOptions) -> None:
    """Once per process, before a model is loaded."""
    lib.llama_backend_init()
    if options.numa:
        lib.llama_numa_init(_NUMA[options.numa])


def tune_context(params: Any, options: ContextOptions) -> None:
    """Set what `options` says in a `llama_context_params`."""
    params.flash_attn_type = _FLASH_ATTN[options.flash_attn]
    params.type_k = _CACHE_TYPES[options.cache_type_k]
    params.type_v = _CACHE_TYPES[options.cache_type_v]
    params.offload_kqv = options.offloads_kv
    params.op_offload = options.offloads_ops
    params.no_perf = not options.has_perf
    params.rope_scaling_type = _ROPE[options.rope_scaling]
    for name in (
        "rope_freq_base",
        "rope_freq_scale",
        "yarn_orig_ctx",
        "yarn_ext_factor",
        "yarn_attn_factor",
        "yarn_beta_fast",
        "yarn_beta_slow",
    ):
        setattr(params, name, getattr(options, name))


def _overrides(overrides: tuple[tuple[str, str, str], ...]) -> Any:
    array = (lib.llama_model_kv_override * (len(overrides) + 1))()  # the last key is empty
    for entry, (key, kind, text) in zip(array, overrides, strict=False):
        if not 0 < len(key.encode()) < KEY_BYTES or len(text.encode()) >= KEY_BYTES:
            raise ModelNotLoadable(f"--override-kv: {key} and its value must be shorter")
        entry.tag, entry.key = _TAGS[kind], key.encode()
        _set_value(entry.value, kind, text)
    return array


def _set_value(value: Any, kind: str, text: str) -> None:
    if kind == "int":
        value.val_i64 = int(text)
    elif kind == "float":
        value.val_f64 = float(text)
    elif kind == "bool":
        value.val_bool = text == "true"
    else:
        value.val_str = text.encode()


def _pointers(devices: list[int]) -> Any:
    return (ctypes.c_void_p * (len(devices) + 1))(*devices, None)


def _shares(shares: tuple[float, ...]) -> Any:
    n_devices = max(int(lib.llama_max_devices()), 1)
    if len(shares) > n_devices:
        raise ModelNotLoadable(f"--tensor-split: {len(shares)} shares for {n_devices} devices")
    return (ctypes.c_float * n_devices)(*shares)


def _buffers(buffers: tuple[tuple[str, str], ...]) -> Any:
    array = (_BufferOverride * (len(buffers) + 1))()  # the last pattern is NULL
    for entry, (pattern, name) in zip(array, buffers, strict=False):
        entry.pattern, entry.kind = pattern.encode(), find_buffer_type(name)
    return array
