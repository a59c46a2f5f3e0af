"""llama.cpp's arithmetic of context sizes."""

import pytest

from services.engine.caching import Caching
from services.engine.config import EngineSettings
from services.engine.context_size import slot_context


@pytest.mark.parametrize(
    ("n_ctx", "n_slots", "n_ctx_train", "expected"),
    [
        (0, 1, 2048, (2048, 2048)),
        (0, 4, 8192, (8192, 2048)),
        (512, 2, 2048, (512, 256)),
        (512, 4, 2048, (1024, 256)),
        (500, 1, 2048, (512, 512)),
        (1000, 3, 2048, (1536, 512)),
        (4096, 1, 2048, (4096, 2048)),
        (0, 1, 300, (512, 300)),
        (0, 2, 0, (4096, 2048)),
        (1, 1, 0, (256, 256)),
    ],
)
def test_slot_context(
    n_ctx: int, n_slots: int, n_ctx_train: int, expected: tuple[int, int]
) -> None:
    settings = EngineSettings(
        engine="e", host="h", model_key="k", model_name="m", model_path="p", n_ctx=n_ctx, n_slots=n_slots
    )  # fmt: skip
    assert slot_context(settings, n_ctx_train) == expected


@pytest.mark.parametrize(
    ("n_ctx", "caching", "expected"),
    [
        (0, Caching(is_unified=True), (8192, 8192)),
        (10000, Caching(is_unified=True), (10240, 8192)),
        (1000, Caching(is_unified=True), (1024, 1024)),
        (1000, Caching(is_unified=True, max_slot_tokens=100), (1024, 100)),
        (0, Caching(is_unified=True, max_slot_tokens=1000), (4096, 1000)),
        (0, Caching(max_slot_tokens=1000), (4096, 1000)),
        (4096, Caching(max_slot_tokens=2000), (4096, 1024)),
    ],
)
def test_shared_and_limited_contexts(
    n_ctx: int, caching: Caching, expected: tuple[int, int]
) -> None:
    settings = EngineSettings(
        engine="e", host="h", model_key="k", model_name="m", model_path="p", n_ctx=n_ctx, caching=caching
    )  # fmt: skip
    assert slot_context(settings, 8192) == expected
