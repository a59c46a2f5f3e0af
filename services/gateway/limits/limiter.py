"""Holds keys to their limits, together with all other gateways. A key without limits costs nothing."""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from schemas.events import Requested
from schemas.keys import KeyLimits, KeyRecord, KeyUsage
from services.bus.errors import BusError
from services.bus.keys import Keys
from services.edge.access import Access
from services.edge.errors import RefusedWithHeaders
from services.gateway.dialects import anthropic
from services.gateway.limits.account import Account
from services.gateway.limits.ended import EndedLogs
from services.gateway.limits.headers import anthropic_headers, openai_headers
from services.gateway.limits.problems import limit_reached, model_denied
from services.gateway.limits.verdict import (
    CONCURRENT,
    NS_PER_MS,
    Cost,
    Grant,
    Standing,
    Verdict,
    admit,
    new_place,
    settle,
    undo,
)
from services.streams.hub import Hub
from services.streams.tape import Tape

log = logging.getLogger(__name__)

MAX_ACCOUNTS = 1000
"""Of keys asked with lately; an idle one that is forgotten costs a look when it is used again."""
LOOK_NS = 20_000_000
"""A refusal is given on what was seen so long ago at most."""
REAP_NS = 1_000_000_000
"""How often the logs of generations that count as running are looked at, where that many are too many."""
MARGIN_MS = 10_000
"""After the deadline of a generation, until which everybody has had time to end it."""
LEAST = Cost(n_prompt=1)


class Ticket(NamedTuple):
    """A generation that was admitted to a limited key."""

    account: Account
    limits: KeyLimits
    cost: Cost
    grant: Grant


class Limiter:
    """Event-loop thread only. names: of the model. require_connection: raises BusUnavailable while
    the broker is away. now_ns: Unix nanoseconds."""

    def __init__(
        self,
        keys: Keys,
        hub: Hub,
        names: tuple[str, ...],
        require_connection: Callable[[], None],
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._keys, self._hub, self._names, self._now_ns = keys, hub, names, now_ns
        self._require_connection = require_connection
        self._ended = EndedLogs(hub.logs)
        self._accounts: dict[str, Account] = {}
        self._running: dict[str, tuple[Ticket, Tape]] = {}
        self._looked_at_ns: dict[str, int] = {}
        self._reaped_at_ns: dict[str, int] = {}
        hub.when_done(self._on_done)

    async def check(self, access: Access, dialect: str) -> None:
        """Refuse early what would be refused later, before an engine has to look at it.

        Raises RequestError: 404 for a model that is not the key's, 429; BusUnavailable.
        """
        key = access.key
        if key is None:
            return
        if not key.may_use(self._names):
            raise RefusedWithHeaders(model_denied(self._names[0]))
        if not key.limits.is_limited:
            return
        self._require_connection()
        account = self._account(key)
        if self._try(account, key.limits).refused_by:
            await self._look(key, account)
            verdict = self._try(account, key.limits)
            if verdict.refused_by == CONCURRENT and await self._reap(key, account):
                verdict = self._try(account, key.limits)
            self._tell(access, dialect, verdict.standing)
            self._obey(access, verdict, LEAST)

    async def take(
        self, access: Access, dialect: str, cost: Cost, requested: Requested
    ) -> Ticket | None:
        """Charge the key with a generation that is about to begin; None where nothing limits it.

        Raises as `check`.
        """
        key = access.key
        if key is None or not key.limits.is_limited:
            return None
        limits, account = key.limits, self._account(key)
        place = new_place(requested.generation_id)
        until_ms = requested.deadline_at_ms + MARGIN_MS

        def change(usage: KeyUsage) -> tuple[KeyUsage, Verdict]:
            return admit(usage, limits, cost, place, until_ms, self._now_ns())

        verdict = await account.apply(change)
        if verdict.refused_by == CONCURRENT and await self._reap(key, account):
            verdict = await account.apply(change)
        self._tell(access, dialect, verdict.standing)
        self._obey(access, verdict, cost)
        return Ticket(account, limits, cost, Grant(place, verdict.n_reserved))

    def hold(self, ticket: Ticket | None, tape: Tape) -> None:
        """The generation has begun: settle when it ends, whether its client is still there or not."""
        if ticket is not None and (ticket.limits.concurrent or ticket.limits.tokens_per_minute):
            tape.retain()
            self._running[tape.generation_id] = ticket, tape
            if tape.is_done:  # at once
                self._on_done(tape)

    def give_back(self, ticket: Ticket | None) -> None:
        """The generation could not begin."""
        if ticket is not None:
            self._hub.spawn(self._undo(ticket))

    def _on_done(self, tape: Tape) -> None:
        ticket, held = self._running.pop(tape.generation_id, (None, None))
        if ticket is not None and held is not None:
            n_generated = sum(tape.generation.n_tokens.values())
            self._hub.spawn(self._settle(ticket.account, ticket.limits, ticket.grant, n_generated))
            held.release()

    async def _settle(
        self, account: Account, limits: KeyLimits, grant: Grant, n_generated: int
    ) -> None:
        try:
            await account.apply(
                lambda usage: (settle(usage, limits, grant, n_generated, self._now_ns()), None)
            )
        except BusError as error:
            log.warning("action=usage_lost place=%s error=%r", grant.place, error)

    async def _undo(self, ticket: Ticket) -> None:
        account, limits, cost, grant = ticket
        try:
            await account.apply(
                lambda usage: (undo(usage, limits, grant, cost.n_prompt, self._now_ns()), None)
            )
        except BusError as error:
            log.warning("action=usage_lost place=%s error=%r", grant.place, error)

    async def _look(self, key: KeyRecord, account: Account) -> None:
        """See what others have given back; a flood of requests looks once for all of them."""
        now_ns = self._now_ns()
        if now_ns - self._looked_at_ns.get(key.id, 0) >= LOOK_NS:
            await account.look()
            self._looked_at_ns[key.id] = now_ns

    async def _reap(self, key: KeyRecord, account: Account) -> bool:
        """Take out what has ended though nobody said so, as after the death of a gateway; whether
        that is over for now. Its logs are looked at once a second at most."""
        now_ns = self._now_ns()
        if now_ns - self._reaped_at_ns.get(key.id, 0) < REAP_NS:
            return False
        self._reaped_at_ns[key.id] = now_ns
        self._let_go_broken()
        running = account.usage.running
        ours = {ticket.grant.place for ticket, _ in self._running.values()}
        since_ms = {place: use.since_ms for place, use in running.items() if place not in ours}
        try:
            found = await self._ended.among(since_ms, now_ns // NS_PER_MS)
        except BusError as error:
            log.warning("action=logs_unreadable key=%s error=%r", key.id, error)
            return False
        for each in found:
            grant = Grant(each.place, running[each.place].n_reserved)
            await self._settle(account, key.limits, grant, each.n_generated)
        return bool(found)

    def _let_go_broken(self) -> None:
        """Of what cannot be read here any more the end is not seen here either."""
        broken = [i for i, (_, tape) in self._running.items() if tape.is_broken]
        for generation_id in broken:
            self._running.pop(generation_id)[1].release()

    def _try(self, account: Account, limits: KeyLimits) -> Verdict:
        """What would be said of the least request there is, by what is known here."""
        return admit(account.usage, limits, LEAST, "", 0, self._now_ns())[1]

    def _obey(self, access: Access, verdict: Verdict, cost: Cost) -> None:
        if verdict.refused_by:
            assert access.key is not None
            problem = limit_reached(verdict, access.key.limits, cost)
            raise RefusedWithHeaders(problem, access.headers)

    def _tell(self, access: Access, dialect: str, standing: Standing) -> None:
        access.headers.update(openai_headers(standing))
        if dialect == anthropic.DIALECT:
            access.headers.update(anthropic_headers(standing, self._now_ns()))

    def _account(self, key: KeyRecord) -> Account:
        account = self._accounts.get(key.id)
        if account is None:
            if len(self._accounts) >= MAX_ACCOUNTS:
                self._forget_idle()
            account = self._accounts[key.id] = Account(self._keys, key.id)
        return account

    def _forget_idle(self) -> None:
        self._accounts = {i: each for i, each in self._accounts.items() if not each.is_idle}
        self._looked_at_ns.clear()
        self._reaped_at_ns.clear()
