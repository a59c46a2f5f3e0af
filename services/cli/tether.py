"""Run a program that dies with its parent: `python tether.py <parent pid> <program> [argument …]`.

Started by path, so it imports nothing of ours. On Linux the kernel sends SIGTERM to the program when
the parent's thread that started it ends (prctl(2), PR_SET_PDEATHSIG); elsewhere it just runs it.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def _tie_to(parent_pid: int) -> None:
    """Ask for the signal; leave if the parent was gone before that."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:
        raise SystemExit(0)


if __name__ == "__main__":
    if sys.platform == "linux":
        _tie_to(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
