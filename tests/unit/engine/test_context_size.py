"""llama.cpp's arithmetic of context sizes."""

import pytest

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
