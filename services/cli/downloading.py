"""The model from a hub or an address, before anything is started."""

import logging
import os
import sys
import time
from pathlib import Path

from services.cli.errors import StartError
from services.cli.flags import Values
from services.cli.settings import RECEIPTS_NAME, is_remote
from services.cli.values import get
from services.logs import event

log = logging.getLogger(__name__)

MEBI = 1 << 20
BAR_INTERVAL_S, LOG_INTERVAL_S = 0.2, 5.0


def with_model(values: Values, folder: Path | None) -> Values:
    """The values with the model as a file of this machine, under the name that it has elsewhere.

    Downloads what the cache lacks and blocks until it is there; nothing happens for a plain file.
    folder: where to leave the receipts for the models service, None for nowhere. Raises StartError.
    """
    if not is_remote(values):
        return values
    repo = get(values, "hf_repo", str)
    found: Values = {
        "model": str(_fetch(values, folder)),
        "alias": values["alias"] or ((repo,) if repo else ()),
    }
    return values | found | {"hf_repo": "", "hf_file": "", "hf_token": "", "model_url": ""}


def _fetch(values: Values, folder: Path | None) -> Path:
    from services.models.downloads import receipts
    from services.models.downloads.fetch import Fetch, source_of
    from services.models.errors import DownloadFailed

    source = source_of(
        os.environ,
        repo=get(values, "hf_repo", str),
        file=get(values, "hf_file", str),
        url="" if values["hf_repo"] else get(values, "model_url", str),
        path=str(values["model"] or ""),
        token=get(values, "hf_token", str),
        is_offline=get(values, "offline", bool),
    )
    progress = Progress()
    fetch = Fetch(source, progress)
    try:
        return fetch.run()
    except DownloadFailed as error:
        raise StartError(str(error)) from None
    finally:
        progress.end()
        if folder is not None:
            receipts.append(folder / RECEIPTS_NAME, fetch.receipts)


class Progress:
    """Tells how far a download is: a line that grows on a terminal, else a log line now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._last_at = 0.0
        self._is_open = False

    def __call__(self, name: str, n_bytes: int, total: int) -> None:
        now, is_done = time.monotonic(), n_bytes == total
        interval_s = BAR_INTERVAL_S if self._is_terminal else LOG_INTERVAL_S
        if now - self._last_at < interval_s and not is_done:
            return
        self._last_at = now
        share = f"{100 * n_bytes // total} %" if total else "?"
        if self._is_terminal:
            whole = f" of {total // MEBI}" if total else ""
            print(
                f"\rDownloading {name}: {n_bytes // MEBI}{whole} MiB, {share}\033[K",
                end="",
                file=sys.stderr,
                flush=True,
            )
            self._is_open = True
        else:
            event(log, "downloading", file=name, n_mib=n_bytes // MEBI, share=share)

    def end(self) -> None:
        """End the line on the terminal."""
        if self._is_open:
            print(file=sys.stderr)
