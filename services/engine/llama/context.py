# pyright: basic
"""A loaded model and its llama context. One thread."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from services.engine.batches import Batch
from services.engine.context_size import slot_context
from services.engine.errors import ModelNotLoadable
from services.engine.llama.batch import LlamaBatch
from services.engine.llama.library import LOG, lib, quick
from services.engine.llama.threads import n_physical_cores
from services.engine.llama.tuning import ModelParams, init_backend, tune_context
from services.engine.protocol import DecoderConfig

GGUF_MAGIC = b"GGUF"
_FLOAT_FILE_TYPES = (0, 1, 32)  # F32, F16, BF16
_GUESSED_FILE_TYPE = 1024

_keep = quick("llama_memory_seq_rm", [ctypes.c_void_p] + [ctypes.c_int32] * 3, ctypes.c_bool)
_copy = quick("llama_memory_seq_cp", [ctypes.c_void_p] + [ctypes.c_int32] * 4, None)
_position_min = quick("llama_memory_seq_pos_min", [ctypes.c_void_p, ctypes.c_int32], ctypes.c_int32)
_is_eog = quick("llama_vocab_is_eog", [ctypes.c_void_p, ctypes.c_int32], ctypes.c_bool)


class Context:
    """Model and context as llama-server makes them: one KV cache for all slots, flash attention if it can.

    n_ctx: tokens over all slots. n_ctx_slot: most tokens of one. n_vocab: ids are below it.
    eog_ids: those that end a generation. Loading blocks;
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
        n_ctx, self.n_ctx_slot = _context_sizes(config, lib.llama_model_n_ctx_train(self.model))
        self.pointer = self._make_context(config, n_ctx)
        self._memory = lib.llama_get_memory(self.pointer)
        self.n_ctx: int = lib.llama_n_ctx(self.pointer)
        self.n_ctx_slot = min(self.n_ctx_slot, lib.llama_n_ctx_seq(self.pointer))
        self._n_swa: int = lib.llama_model_n_swa(self.model)
        self._batch = LlamaBatch(max(config.n_batch, config.n_slots))
        if config.is_warmup:
            self._warm_up()

    def decode(self, batch: Batch) -> int:
        """Run one batch: DECODED, KV_FULL (nothing happened), or another number: it failed.

        Blocks for one ubatch, the GIL released.
        """
        return lib.llama_decode(self.pointer, self._batch.fill(batch))

    def keep(self, slot: int, n_tokens: int) -> int:
        """See `Memory.keep`. A window that was dropped, or a recurrent state, cannot be cut: 0 then."""
        can_keep = n_tokens > 0 and self._has_window(slot, n_tokens)
        if can_keep and _keep(self._memory, slot, n_tokens, -1):
            return n_tokens
        _keep(self._memory, slot, -1, -1)
        return 0

    def copy(self, source: int, target: int) -> None:
        """See `Memory.copy`."""
        _copy(self._memory, source, target, -1, -1)

    @property
    def has_float_weights(self) -> bool:
        """Whether the model is not quantized: its matrices go through other kernels then."""
        file_type = lib.llama_model_ftype(self.model)
        return file_type & ~_GUESSED_FILE_TYPE in _FLOAT_FILE_TYPES

    def close(self) -> None:
        """Free everything; nothing may be called afterwards."""
        lib.llama_free(self.pointer)
        lib.llama_model_free(self.model)

    def _has_window(self, slot: int, n_tokens: int) -> bool:
        """Whether a sliding-window model still has all cells that position `n_tokens` attends to."""
        if self._n_swa == 0:
            return True
        return _position_min(self._memory, slot) <= max(0, n_tokens - self._n_swa)

    def _make_context(self, config: DecoderConfig, n_ctx: int) -> int:
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_seq_max = config.n_slots
        params.n_batch = max(config.n_batch, config.n_slots)
        params.n_ubatch = config.n_ubatch
        params.n_threads = config.n_threads if config.n_threads > 0 else n_physical_cores()
        params.n_threads_batch = max(config.n_threads_batch, 0) or params.n_threads
        params.kv_unified = True
        tune_context(params, config.context)
        pointer = lib.llama_init_from_model(self.model, params)
        if not pointer:
            lib.llama_model_free(self.model)
            reason = LOG.last_error() or "no reason given"
            raise ModelNotLoadable(
                f"no context for {config.model_path}: {reason}; a smaller -c may help"
            )
        return pointer

    def _warm_up(self) -> None:
        """One empty run, so that the first request does not pay for page faults (as llama-server)."""
        ids = [lib.llama_vocab_bos(self.vocab), lib.llama_vocab_eos(self.vocab)]
        ids = [token for token in ids if token >= 0] or [0]
        array = (ctypes.c_int32 * len(ids))(*ids)
        lib.llama_set_warmup(self.pointer, True)
        lib.llama_decode(self.pointer, lib.llama_batch_get_one(array, len(ids)))
        lib.llama_memory_clear(self._memory, True)
        lib.llama_synchronize(self.pointer)
        lib.llama_set_warmup(self.pointer, False)


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


def _context_sizes(config: DecoderConfig, n_ctx_train: int) -> tuple[int, int]:
    """Tokens over all slots and of one: what the front has reckoned with."""
    if config.n_ctx_slot:
        return config.n_ctx, min(config.n_ctx_slot, n_ctx_train)
    return slot_context(config, n_ctx_train)


def _load(path: str, model_params: ModelParams, on_progress: Callable[[float], bool]) -> int:
    params = model_params.value
    callback = lib.llama_progress_callback(lambda fraction, _: on_progress(fraction))
    params.progress_callback = callback
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise ModelNotLoadable(f"cannot load {path}: {LOG.last_error() or 'no reason given'}")
    return model
