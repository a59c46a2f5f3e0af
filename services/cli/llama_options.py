"""Values of the flags to what llama.cpp is told. Pure; raises UsageError."""

from itertools import chain

from services.cli.errors import UsageError
from services.cli.flags import Values
from services.cli.values import get, number, texts
from services.engine.options import ContextOptions, ModelOptions

GPU_WORDS = {"auto": -1, "all": -2}
OVERRIDE_TYPES = ("int", "float", "bool", "str")
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE = r"\.ffn_(up|down|gate)\."
"""Patterns of tensor names: the feed-forward weights of experts, and of dense models."""
CPU = "CPU"
MAX_CPUS = 4096


def model_options(values: Values) -> ModelOptions:
    return ModelOptions(
        load_mode=_load_mode(values),
        lazy_mode=get(values, "lazy_mode", str),
        is_checked=get(values, "check_tensors", bool),
        is_repacked=get(values, "repack", bool),
        has_host_buffer=not get(values, "no_host", bool),
        overrides=tuple(_override(item) for item in texts(values, "override_kv")),
        devices=texts(values, "device"),
        n_gpu_layers=_gpu_layers(get(values, "n_gpu_layers", str)),
        split_mode=get(values, "split_mode", str),
        main_gpu=get(values, "main_gpu", int),
        tensor_split=_shares(texts(values, "tensor_split")),
        buffers=_buffers(values),
        numa=get(values, "numa", str),
    )


def context_options(values: Values) -> ContextOptions:
    return ContextOptions(
        flash_attn=get(values, "flash_attn", str),
        cache_type_k=get(values, "cache_type_k", str),
        cache_type_v=get(values, "cache_type_v", str),
        offloads_kv=get(values, "kv_offload", bool),
        offloads_ops=get(values, "op_offload", bool),
        has_perf=get(values, "perf", bool),
        rope_scaling=get(values, "rope_scaling", str),
        rope_freq_base=get(values, "rope_freq_base", float),
        rope_freq_scale=_rope_scale(values),
        yarn_orig_ctx=get(values, "yarn_orig_ctx", int),
        yarn_ext_factor=get(values, "yarn_ext_factor", float),
        yarn_attn_factor=get(values, "yarn_attn_factor", float),
        yarn_beta_fast=get(values, "yarn_beta_fast", float),
        yarn_beta_slow=get(values, "yarn_beta_slow", float),
    )


def cpus(values: Values) -> tuple[int, ...]:
    """Cores to decode on, from the mask and the range; () for all."""
    mask, span = get(values, "cpu_mask", str), get(values, "cpu_range", str)
    return tuple(sorted({*_masked(mask), *_ranged(span)}))


def _load_mode(values: Values) -> str:
    """What --load-mode says; where it says nothing, what its older names say."""
    mode = get(values, "load_mode", str)
    if mode != "auto":
        return mode
    if get(values, "direct_io", bool):
        return "dio"
    is_mapped = get(values, "mmap", bool)
    if get(values, "mlock", bool):
        return "mmap+mlock" if is_mapped else "mlock"
    return mode if is_mapped else "none"


def _masked(mask: str) -> tuple[int, ...]:
    try:
        bits = int(mask or "0", 16)
    except ValueError:
        raise UsageError(f"--cpu-mask: {mask!r} is not a hexadecimal number") from None
    if not 0 <= bits < 1 << MAX_CPUS:
        raise UsageError(f"--cpu-mask: {mask!r} is out of range")
    return tuple(number for number in range(bits.bit_length()) if bits >> number & 1)


def _ranged(span: str) -> range:
    low, dash, high = span.partition("-")
    if not span:
        return range(0)
    is_good = dash and all(not part or (part.isascii() and part.isdigit()) for part in (low, high))
    if not is_good or span == "-" or int(high or 0) >= MAX_CPUS or int(low or 0) >= MAX_CPUS:
        raise UsageError(f"--cpu-range: {span!r} is no range, as 0-3")
    return range(int(low or 0), int(high) + 1 if high else MAX_CPUS)


def _override(item: str) -> tuple[str, str, str]:
    key, _, rest = item.partition("=")
    kind, colon, text = rest.partition(":")
    if not key or not colon or kind not in OVERRIDE_TYPES:
        types = ", ".join(OVERRIDE_TYPES)
        raise UsageError(f"--override-kv: {item!r} is not KEY=TYPE:VALUE with a type of {types}")
    if kind == "bool" and text not in ("true", "false"):
        raise UsageError(f"--override-kv: {text!r} is neither true nor false")
    if kind == "int" and not text.removeprefix("-").isdecimal():
        raise UsageError(f"--override-kv: {text!r} is not a whole number")
    if kind == "float":
        number("--override-kv", text)
    return key, kind, text


def _gpu_layers(text: str) -> int:
    if text in GPU_WORDS:
        return GPU_WORDS[text]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 6):
        raise UsageError(f"--n-gpu-layers: {text!r} is no number, nor auto or all")
    return int(text)


def _shares(items: tuple[str, ...]) -> tuple[float, ...]:
    parts = chain.from_iterable(item.split("/") for item in items)
    return tuple(number("--tensor-split", part) for part in parts)


def _rope_scale(values: Values) -> float:
    """The frequency factor; a context factor is its inverse, and wins."""
    scale = get(values, "rope_scale", float)
    return 1.0 / scale if scale > 0 else get(values, "rope_freq_scale", float)


def _buffers(values: Values) -> tuple[tuple[str, str], ...]:
    found = [_buffer(item) for item in texts(values, "override_tensor")]
    if get(values, "cpu_moe", bool):
        found.append((EXPERTS, CPU))
    found += [(rf"blk\.{n}{EXPERTS}", CPU) for n in range(get(values, "n_cpu_moe", int))]
    found += [(rf"blk\.{n}{DENSE}", CPU) for n in range(get(values, "n_cpu_ffn", int))]
    return tuple(found)


def _buffer(item: str) -> tuple[str, str]:
    pattern, equals, name = item.partition("=")
    if not pattern or not equals or not name:
        raise UsageError(f"--override-tensor: {item!r} is not PATTERN=TYPE")
    return pattern, name
