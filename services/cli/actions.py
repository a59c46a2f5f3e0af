"""What flags of `ACTIONS` print before the process ends. Each imports only what it needs."""

import os
import sys

from services.cli.flags import ACTIONS, FLAGS


def print_version() -> int:
    from importlib import metadata

    print(f"llamatape {metadata.version('llamatape')}")
    return 0


def print_help() -> int:
    from services.cli import help as help_text

    print(help_text.text())
    return 0


def print_cached_models() -> int:
    """Models of the cache that -hf finds without downloading."""
    from services.models.downloads.cache import cache_dirs, cached_models

    found = list(cached_models(cache_dirs(os.environ).hub))
    print(f"number of models in cache: {len(found)}")
    for number, model in enumerate(found, 1):
        print(f"{number:4}. {model.name}")
    return 0


def print_devices() -> int:
    from services.engine.llama.devices import describe_devices

    print("Available devices:")
    for line in describe_devices():
        print(f"  {line}")
    return 0


def print_completion() -> int:
    """A script for bash: `source <(llamatape --completion-bash)`."""
    names = [name for flag in FLAGS for name in flag.names + flag.negatives]
    words = " ".join(sorted([*names, *(name for group in ACTIONS.values() for name in group)]))
    print(f"complete -o default -W '{words}' llamatape llamatape-server")
    return 0


def run(name: str) -> int:
    """Carry out one of ACTIONS; its exit code. That the reader had enough (`| head`) is no failure."""
    try:
        code = _RUN[name]()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush
        return 0
    return code


_RUN = {
    "help": print_help,
    "version": print_version,
    "cache-list": print_cached_models,
    "list-devices": print_devices,
    "completion-bash": print_completion,
}
