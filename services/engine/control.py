"""Orders to a running generation. Pure."""

from schemas.rpc import ControlTaken
from services.engine.run import Run

UNKNOWN = ControlTaken(is_known=False, message="no active completion for this id")
NOT_ARMED = ControlTaken(is_known=True, message="reasoning control not enabled for this completion")
TAKEN = ControlTaken(is_known=True)
INTERRUPTED = ControlTaken(
    is_known=True, message="the completion ended or was interrupted before the order took effect"
)


def judge(run: Run | None, caller: str) -> ControlTaken:
    """What is said to an order; only what is TAKEN goes to the decoder. llama-server's words.

    A generation that does not think right now takes the order, and nothing happens.
    """
    if run is None or not run.is_started or run.requested.caller != caller:
        return UNKNOWN
    return TAKEN if run.requested.params.sampling.reasoning_control else NOT_ARMED
