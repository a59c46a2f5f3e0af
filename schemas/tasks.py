"""Tasks: pointers from the work queue to a log."""

from schemas.struct import Message


class Task(Message, frozen=True, kw_only=True):
    """Generate what the log of `generation_id` asks for.

    n_slots: slots that it takes at once. created_at_ms: Unix time. accept_s: seconds after which an engine
    that finds no `requested` closes the log with `failed`. deadline_at_ms: when the generation must
    have ended, 0 where not known; whoever sweeps the queue need not read its log before that.
    conversation: key of the conversation that is to show it (subjects.conversation_key), if any.
    """

    generation_id: str
    n_slots: int = 1
    priority: str = "interactive"
    created_at_ms: int = 0
    accept_s: int = 30
    deadline_at_ms: int = 0
    conversation: str = ""


class ConversationEntry(Message, frozen=True, kw_only=True):
    """Value of the conversations bucket: which generation a conversation shows now.

    is_done, n_bytes, completed_at_s: filled in by whoever reads its end first; n_bytes is what the
    whole rendered stream has. Times are Unix seconds, 0 while it runs.
    """

    conversation_id: str
    generation_id: str
    dialect: str
    render: int = 1
    is_done: bool = False
    n_bytes: int = 0
    started_at_s: int = 0
    completed_at_s: int = 0


class IdempotentRequest(Message, frozen=True, kw_only=True):
    """Value of the idempotency bucket: what a caller asked for under a key.

    generation_id: of the answer; its log may not be open yet. request_hash: sha256 in hex of path,
    dialect and canonical request. created_at_ms: Unix time from which the window counts.
    """

    generation_id: str
    request_hash: str
    created_at_ms: int
