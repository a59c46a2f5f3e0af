"""Flags of how slots share and keep the KV cache, as llama-server reads them."""

from pathlib import Path

import pytest

from services.cli import settings
from services.cli.errors import UsageError
from services.cli.flags import Values
from services.cli.parse import parse
from services.engine.caching import Caching


def values(*arguments: str, **environment: str) -> Values:
    return parse(["-m", "/models/a.gguf", *arguments], environment)


def caching(*arguments: str, **environment: str) -> Caching:
    return settings.engine_settings(values(*arguments, **environment)).caching


def test_defaults_are_llama_servers() -> None:
    assert caching() == Caching(is_unified=True)
    assert caching("-np", "4") == Caching()


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["-np", "2"], {}, False),
        (["-np", "2", "-kvu"], {}, True),
        (["-np", "2", "--kv-unified"], {}, True),
        (["-np", "2"], {"LLAMA_ARG_KV_UNIFIED": "on"}, True),
        (["-np", "2", "-kvu"], {"LLAMA_ARG_NO_KV_UNIFIED": "1"}, True),
        (["-np", "-1"], {}, True),
        (["--no-kv-unified"], {}, True),
    ],
)
def test_who_shares_one_cache(
    arguments: list[str],
    environment: dict[str, str],
    expected: bool,
) -> None:
    assert caching(*arguments, **environment).is_unified is expected


def test_every_flag() -> None:
    arguments = "-np 2 --kv-unified-per-slot 99 --prefill-budget 32 -sps 0.5 -cram -1 "
    arguments += "--no-cache-idle-slots -ctxcp 3 -cms 100 --swa-full --context-shift"
    assert caching(*arguments.split()) == Caching(
        max_slot_tokens=99,
        prefill_budget=32,
        similarity=0.5,
        ram_mib=-1,
        saves_idle=False,
        n_checkpoints=3,
        checkpoint_step=100,
        is_swa_full=True,
        is_shifting=True,
    )


def test_what_requests_do_not_say() -> None:
    found = settings.engine_settings(
        values("--cache-reuse", "256", "--keep", "-1", "--no-cache-prompt")
    )
    limits = found.defaults.limits
    assert (limits.n_cache_reuse, limits.n_keep, limits.cache_prompt) == (256, -1, False)


def test_the_folder_of_saved_slots(tmp_path: Path) -> None:
    given = values("--slot-save-path", str(tmp_path))
    assert settings.engine_settings(given).slot_save_path == str(tmp_path)
    assert settings.gateway_settings(given).has_slot_files
    assert not settings.gateway_settings(values()).has_slot_files
    with pytest.raises(UsageError, match="not a folder"):
        settings.engine_settings(values("--slot-save-path", str(tmp_path / "none")))
