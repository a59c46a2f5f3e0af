"""Whether a child process still works: decided from its reports, its CPU time and its state."""

import os
from dataclasses import dataclass
from pathlib import Path

STOPPED_S = 2.0
"""So long stopped by a signal (SIGSTOP, a debugger's slip) and it is given up."""
SILENT_S = 30.0
"""So long busy without a report and without using any CPU and it is given up."""
SILENT_BLIND_S = 600.0
"""The same where its CPU time cannot be seen: one batch of a large model may take minutes."""


MAX_GAP_S = 1.0
"""Longer gaps between two looks count as this much: then it was the looker who slept."""


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """is_stopped: by a signal. cpu_s: seconds of CPU that it has used, all its threads."""

    is_stopped: bool
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Vitals:
    """One look at a process. at_s: monotonic. n_signs: reports so far. is_busy: it has work.

    state: None where the system does not tell.
    """

    at_s: float
    n_signs: int
    is_busy: bool
    state: ProcessState | None


class Watchdog:
    """Judges looks at one process after the other. Pure."""

    def __init__(self) -> None:
        self._pid = 0
        self._last: Vitals | None = None
        self._stopped_s = 0.0
        self._silent_s = 0.0

    def judge(self, pid: int, vitals: Vitals) -> str:
        """Why the process must be killed, or an empty text. Looks at a new pid start afresh."""
        last, self._last = (self._last if pid == self._pid else None), vitals
        self._pid = pid
        passed_s = 0.0 if last is None else min(vitals.at_s - last.at_s, MAX_GAP_S)
        is_stopped = vitals.state is not None and vitals.state.is_stopped
        is_alive = last is None or _shows_life(last, vitals)
        self._stopped_s = self._stopped_s + passed_s if is_stopped else 0.0
        self._silent_s = 0.0 if is_alive else self._silent_s + passed_s
        if self._stopped_s >= STOPPED_S:
            return "stopped"
        limit_s = SILENT_BLIND_S if vitals.state is None else SILENT_S
        return "silent" if self._silent_s >= limit_s else ""


def _shows_life(before: Vitals, now: Vitals) -> bool:
    if not now.is_busy or now.n_signs != before.n_signs:
        return True
    return bool(now.state and before.state and now.state.cpu_s > before.state.cpu_s)


def process_state(pid: int) -> ProcessState | None:
    """How a process stands (Linux); None elsewhere, or when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ProcessState(is_stopped=fields[0] == "T", cpu_s=ticks / os.sysconf("SC_CLK_TCK"))
