# pyright: basic
"""A loaded model and its llama context. One thread, but for `open_side`."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.engine.batches import Batch
from services.engine.context_size import PADDING, slot_context
from services.engine.errors import ModelNotLoadable
from services.engine.llama.batch import LlamaBatch
from services.engine.llama.library import LOG, lib, quick
from services.engine.llama.memory import SlotMemory
from services.engine.llama.side_context import SideContext
from services.engine.llama.threads import n_physical_cores, n_side_threads
from services.engine.llama.tuning import ModelParams, init_backend, tune_context
from services.engine.options import ModelOptions
from services.engine.protocol import DecoderConfig
from services.engine.side_prompts import N_TAIL, PIECE

GGUF_MAGIC = b"GGUF"
MAX_WINDOWED_LAYERS = 8
"""Up to so many layers all may have a sliding window; llama.cpp aborts when it moves cells of none."""
_FLOAT_FILE_TYPES = (0, 1, 32)  # F32, F16, BF16
_GUESSED_FILE_TYPE = 1024

_is_eog = quick("llama_vocab_is_eog", [ctypes.c_void_p, ctypes.c_int32], ctypes.c_bool)


class Context:
    """Model and context as llama-server makes them.

    n_ctx: tokens over all slots. n_ctx_slot: most tokens of one. n_vocab: ids are below it.
    eog_ids: those that end a generation. memory: the KV cache. n_threads, n_threads_batch: it decodes
    tokens and prompts with so many, n_side_threads: of which SideContexts get so many. Loading blocks;
    `on_progress(fraction)` is called meanwhile and may return False to give up.
    Raises ModelNotLoadable, its message one line.
    """

    def __init__(self, config: DecoderConfig, on_progress: Callable[[float], bool]) -> None:
        LOG.is_verbose = config.is_verbose
        _check_file(config.model_path)
        init_backend(config.model)
        self.model = _load(config.model_path, ModelParams(config.model), on_progress)
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.n_vocab: int = lib.llama_vocab_n_tokens(self.vocab)
        self.eog_ids = frozenset(i for i in range(self.n_vocab) if _is_eog(self.vocab, i))
        self._config = config
        self.n_threads = config.n_threads if config.n_threads > 0 else n_physical_cores()
        self.n_threads_batch = max(config.n_threads_batch, 0) or self.n_threads
        self.n_side_threads = n_side_threads(
            config.caching, self.n_threads, has_gpu=_has_gpu(config.model)
        )
        n_ctx, self.n_ctx_slot = slot_context(config, lib.llama_model_n_ctx_train(self.model))
        self.pointer = self._make_context(n_ctx)
        self.n_ctx: int = lib.llama_n_ctx(self.pointer)
        self.n_ctx_slot = min(self.n_ctx_slot, lib.llama_n_ctx_seq(self.pointer))
        self.memory = self._make_memory(self.pointer)
        self._batch = LlamaBatch(max(config.n_batch, config.n_slots))
        if config.is_warmup:
            self._warm_up()

    def decode(self, batch: Batch) -> int:
        """Run one batch: DECODED, KV_FULL (nothing happened), or another number: it failed.

        Blocks for one ubatch, the GIL released.
        """
        result = lib.llama_decode(self.pointer, self._batch.fill(batch))
        self.memory.on_decoded()
        return result

    def divide_threads(self, is_shared: bool) -> None:
        """Leave some of the threads to SideContexts from the next batch on, or take them all."""
        n_left = self.n_side_threads if is_shared else 0
        n_most = max(self.n_threads, self.n_threads_batch)
        n_batch = min(self.n_threads_batch, n_most - n_left)
        lib.llama_set_n_threads(self.pointer, self.n_threads - n_left, n_batch)

    def open_side(self, n_tokens: int) -> SideContext | None:
        """A context for one prompt of so many tokens; None where there is none to be had. Any thread."""
        n_streams = 1 if self._config.caching.is_unified else self._config.n_slots
        params = self._context_params(max(self._n_side_least, n_tokens + N_TAIL))
        params.n_seq_max, params.kv_unified = 1, True
        # No larger than the slots' own: a sliding window keeps that many more cells.
        piece = max(1, min(PIECE, self._config.n_ubatch, self._config.n_batch))
        params.n_batch = params.n_ubatch = piece
        pointer = lib.llama_init_from_model(self.model, params)
        if not pointer:
            return None
        side = SideContext(
            pointer, self._make_memory(pointer), n_streams=n_streams, max_piece=piece
        )
        if not side.is_usable:
            side.close()
            return None
        return side

    @property
    def has_bos(self) -> bool:
        """Whether prompts begin with a token of the model's own."""
        return lib.llama_vocab_get_add_bos(self.vocab)

    @property
    def has_float_weights(self) -> bool:
        """Whether the model is not quantized: its matrices go through other kernels then."""
        file_type = lib.llama_model_ftype(self.model)
        return file_type & ~_GUESSED_FILE_TYPE in _FLOAT_FILE_TYPES

    def close(self) -> None:
        """Free everything; nothing may be called afterwards."""
        lib.llama_free(self.pointer)
        lib.llama_model_free(self.model)

    def _context_params(self, n_ctx: int) -> Any:
        config = self._config
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_threads = self.n_threads
        params.n_threads_batch = self.n_threads_batch
        params.swa_full = config.caching.is_swa_full
        tune_context(params, config.context)
        return params

    @property
    def _n_side_least(self) -> int:
        """Some models turn positions by other factors in contexts longer than their first training's."""
        n_first = self._meta_int("rope.scaling.original_context_length")
        return n_first + PADDING if 0 < n_first < lib.llama_n_ctx_seq(self.pointer) else 0

    def _meta_int(self, key: str) -> int:
        """A number of the model's metadata under its architecture's name; 0 where there is none."""
        text = ctypes.create_string_buffer(64)
        get = lib.llama_model_meta_val_str
        if get(self.model, b"general.architecture", text, len(text)) < 0:
            return 0
        n = get(self.model, text.value + b"." + key.encode(), text, len(text))
        return int(text.value) if n >= 0 and text.value.isdigit() else 0

    def _make_context(self, n_ctx: int) -> int:
        config, params = self._config, self._context_params(n_ctx)
        params.n_seq_max = config.n_slots
        params.n_batch = max(config.n_batch, config.n_slots)
        params.n_ubatch = config.n_ubatch
        params.kv_unified = config.caching.is_unified
        pointer = lib.llama_init_from_model(self.model, params)
        if not pointer:
            lib.llama_model_free(self.model)
            reason = LOG.last_error() or "no reason given"
            raise ModelNotLoadable(
                f"no context for {config.model_path}: {reason}; a smaller -c may help"
            )
        return pointer

    def _make_memory(self, context: int) -> SlotMemory:
        config = self._config
        is_rigid = lib.llama_model_is_recurrent(self.model) or lib.llama_model_is_hybrid(self.model)
        n_swa = lib.llama_model_n_swa(self.model)
        n_window = 0 if config.caching.is_swa_full else n_swa
        can_move = n_swa == 0 or lib.llama_model_n_layer(self.model) > MAX_WINDOWED_LAYERS
        return SlotMemory(context, n_window=n_window, is_rigid=is_rigid, can_move=can_move)

    def _warm_up(self) -> None:
        """One empty run, so that the first request does not pay for page faults (as llama-server)."""
        ids = [lib.llama_vocab_bos(self.vocab), lib.llama_vocab_eos(self.vocab)]
        ids = [token for token in ids if token >= 0] or [0]
        array = (ctypes.c_int32 * len(ids))(*ids)
        lib.llama_set_warmup(self.pointer, True)
        lib.llama_decode(self.pointer, lib.llama_batch_get_one(array, len(ids)))
        lib.llama_memory_clear(lib.llama_get_memory(self.pointer), True)
        lib.llama_synchronize(self.pointer)
        lib.llama_set_warmup(self.pointer, False)


def _has_gpu(options: ModelOptions) -> bool:
    """Whether a GPU computes some of it, as far as can be known before."""
    is_none = options.n_gpu_layers == 0 or options.devices == ("none",)
    return bool(lib.llama_supports_gpu_offload()) and not is_none


def _check_file(path: str) -> None:
    if not Path(path).is_file():
        raise ModelNotLoadable(f"the model file {path} does not exist")
    try:
        with open(path, "rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise ModelNotLoadable(f"cannot read {path}: {error.strerror}") from error
    if magic != GGUF_MAGIC:
        raise ModelNotLoadable(f"{path} is not a GGUF file")


def _load(path: str, model_params: ModelParams, on_progress: Callable[[float], bool]) -> int:
    params = model_params.value
    callback = lib.llama_progress_callback(lambda fraction, _: on_progress(fraction))
    params.progress_callback = callback
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise ModelNotLoadable(f"cannot load {path}: {LOG.last_error() or 'no reason given'}")
    return model
