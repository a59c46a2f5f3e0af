"""Problems that the gateway itself reports; they travel as `schemas.errors.RequestError`.

RequestError
├── loading()              the model is not there yet
├── load_failed()          it will not come
├── store_full()           there is no room for more logs
├── queue_full()           too many tasks of the model wait already
├── key_used_otherwise()   an idempotency key stands for another request
└── too_large_to_keep()    the request fits into no entry of the log
"""

from schemas.errors import BODY_TOO_LARGE, IDEMPOTENCY, UNAVAILABLE, Problem

RETRY_AFTER_S = 1
STORE_RETRY_AFTER_S = 10
QUEUE_RETRY_AFTER_S = 2


def loading() -> Problem:
    """llama-server's words; its clients look for them."""
    return Problem(code=UNAVAILABLE, message="Loading model", retry_after_s=RETRY_AFTER_S)


def load_failed(reason: str) -> Problem:
    return Problem(code=UNAVAILABLE, message=f"The model could not be loaded: {reason}")


def store_full() -> Problem:
    return Problem(
        code=UNAVAILABLE,
        message="The store of generations is nearly full; only what runs already may end",
        retry_after_s=STORE_RETRY_AFTER_S,
    )


def queue_full() -> Problem:
    return Problem(
        code=UNAVAILABLE,
        message="Too many requests are waiting for this model already; try again in a while",
        retry_after_s=QUEUE_RETRY_AFTER_S,
    )


def key_used_otherwise(key: str) -> Problem:
    return Problem(
        code=IDEMPOTENCY,
        message=(
            "Keys for idempotent requests can only be used with the same request that they were "
            f"first used with; use another one than '{key}' if you meant to ask something else"
        ),
        param="Idempotency-Key",
    )


def too_large_to_keep() -> Problem:
    return Problem(
        code=BODY_TOO_LARGE,
        message="The request and its prompt are larger than the log keeps; send less at once",
    )
