"""The lifeline: a pipe whose write end only the launcher holds. At its end of file children leave.

However the launcher dies, the kernel closes its end. A child then sends itself SIGTERM, its own
orderly exit, and is gone by force if that takes too long.
"""

import os
import signal
import threading
import time

VARIABLE = "LLAMATAPE_LIFELINE_FD"
GRACE_S = 1.5
EXIT_CODE = 70


class Lifeline:
    """The launcher's end. `fd` goes to children (`pass_fds`, and its number in VARIABLE)."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()

    def close(self) -> None:
        """Lets go: every child that still runs leaves by itself."""
        os.close(self._write_fd)
        os.close(self.fd)


def hold() -> None:
    """In a child, early in its main: watch the lifeline that the parent passed, if it did.

    The variable is removed, since the number means nothing to a grandchild.
    """
    number = os.environ.pop(VARIABLE, "")
    if number.isdigit():
        os.set_inheritable(int(number), False)
        threading.Thread(target=_watch, args=(int(number),), name="lifeline", daemon=True).start()


def _watch(fd: int) -> None:
    while os.read(fd, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(EXIT_CODE)
