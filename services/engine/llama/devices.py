# pyright: basic
"""Devices that llama.cpp can offload to, and its buffer types, by name."""

import ctypes

from services.engine.errors import ModelNotLoadable
from services.engine.llama.library import lib, quick

_count = quick("ggml_backend_dev_count", [], ctypes.c_size_t)
_get = quick("ggml_backend_dev_get", [ctypes.c_size_t], ctypes.c_void_p)
_by_name = quick("ggml_backend_dev_by_name", [ctypes.c_char_p], ctypes.c_void_p)
_name = quick("ggml_backend_dev_name", [ctypes.c_void_p], ctypes.c_char_p)
_description = quick("ggml_backend_dev_description", [ctypes.c_void_p], ctypes.c_char_p)
_type = quick("ggml_backend_dev_type", [ctypes.c_void_p], ctypes.c_int)
_memory = quick(
    "ggml_backend_dev_memory",
    [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)],
    None,
)
_buffer_type = quick("ggml_backend_dev_buffer_type", [ctypes.c_void_p], ctypes.c_void_p)
_buffer_name = quick("ggml_backend_buft_name", [ctypes.c_void_p], ctypes.c_char_p)
_CPU = 0
_MEBI = 1 << 20
NONE = "none"


def describe_devices() -> list[str]:
    """One line for each device that is no CPU."""
    lib.llama_backend_init()
    return [_line(device) for device in _devices() if _type(device) != _CPU]


def find_devices(names: tuple[str, ...]) -> list[int]:
    """Pointers, for llama.cpp's list; none of them for ("none",). Raises ModelNotLoadable."""
    return [] if names == (NONE,) else [_find(name) for name in names]


def find_buffer_type(name: str) -> int:
    """A pointer. Raises ModelNotLoadable naming those that there are."""
    types = {_buffer_name(kind).decode(): kind for kind in map(_buffer_type, _devices()) if kind}
    if name not in types:
        raise ModelNotLoadable(
            f"--override-tensor: no buffer type {name}; there are {', '.join(types)}"
        )
    return types[name]


def _devices() -> list[int]:
    return [_get(index) for index in range(_count())]


def _find(name: str) -> int:
    device = _by_name(name.encode())
    if not device:
        raise ModelNotLoadable(f"--device: there is no {name}; --list-devices shows what there is")
    return device


def _line(device: int) -> str:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _memory(device, ctypes.byref(free), ctypes.byref(total))
    sizes = f"{total.value // _MEBI} MiB, {free.value // _MEBI} MiB free"
    return f"{_name(device).decode()}: {_description(device).decode()} ({sizes})"
