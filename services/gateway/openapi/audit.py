"""The audit's paths and schemas. All of them want a key with the scope `admin`."""

from services.gateway.openapi.paths import GENERATION, answer, in_path, operation, query
from services.gateway.openapi.terms import (
    BOOLEAN,
    INTEGER,
    OBJECTS,
    STRING,
    STRINGS,
    Json,
    between,
    list_of,
    one_of,
    optional,
    or_null,
    record,
    ref,
    said,
)

FILTERS = (
    query("caller", STRING, "Key id of who asked"),
    query("model", STRING, "Name of the model"),
    query("outcome", one_of("finished", "failed", "cancelled"), "How it ended"),
    query("dialect", STRING, "As `openai.chat`"),
    query("id", STRING, "How the generation id begins"),
    query("from", STRING, "ISO 8601 or Unix milliseconds: created then or later"),
    query("to", STRING, "Created before; a day alone is meant as a whole"),
    query("limit", between(1, 1000, INTEGER), "Generations on a page, 50 by default"),
    query("after", STRING, "`next` of the page before"),
)


def _lines(name: str, what: str) -> Json:
    """JSON objects, one a line."""
    return {"description": what, "content": {"application/x-ndjson": {"schema": ref(name)}}}


AUDIT_PATHS: dict[str, Json] = {
    "/v1/audit/generations": {
        "get": operation(
            "Archived generations, newest first", answer(ref("AuditPage")), parameters=FILTERS
        )
    },
    "/v1/audit/generations/{generation_id}": {
        "get": operation(
            "All facts of an archived generation",
            answer(ref("AuditGeneration")),
            parameters=(GENERATION,),
            can_miss=True,
        ),
        "delete": operation(
            "Erase what it said, here and on the broker; a tombstone stays",
            answer(ref("AuditGeneration")),
            parameters=(GENERATION,),
            can_miss=True,
        ),
    },
    "/v1/audit/generations/{generation_id}/events": {
        "get": operation(
            "Its log, an entry a line",
            _lines("AuditEntry", "Entries"),
            parameters=(GENERATION,),
            can_miss=True,
        )
    },
    "/v1/audit/callers/{key_id}": {
        "delete": operation(
            "Erase what all archived generations of a caller said",
            answer(ref("AuditErasure")),
            parameters=(in_path("key_id", "Key id of who asked", "k-none"),),
        )
    },
    "/v1/audit/verify": {
        "post": operation(
            "Compute digests and chain anew; what is wrong, and a verdict, a line each",
            _lines("AuditStep", "Findings, progress, and last the verdict"),
            body="AuditExtent",
        )
    },
}
AUDIT_REQUESTS: dict[str, Json] = {
    "AuditExtent": record(
        {},
        optional(
            {
                "id": said(STRING, "One generation only"),
                "from": said(STRING, "First day, as 2026-01-31; all without one"),
                "to": said(STRING, "Last day"),
                "expect_head": said(STRING, "A head that an earlier verdict said"),
            }
        ),
    )
}
AUDIT_ANSWERS: dict[str, Json] = {
    "AuditPage": record(
        {
            "object": one_of("list"),
            "data": OBJECTS,
            "has_more": BOOLEAN,
            "next": or_null(STRING),
        }
    ),
    "AuditGeneration": record(
        {
            "object": one_of("audit.generation"),
            "generation_id": STRING,
            "caller": said(STRING, "Key id"),
            "model": STRING,
            "model_digest": said(STRING, "sha256 of the model's file, where it was known"),
            "adapter_digests": STRINGS,
            "outcome": one_of("finished", "failed", "cancelled"),
            "attempts": OBJECTS,
            "created_at_ms": INTEGER,
            "ended_at_ms": INTEGER,
            "erased_at_ms": or_null(INTEGER),
            "n_prompt": INTEGER,
            "n_predicted": INTEGER,
            "digest": STRING,
        }
    ),
    "AuditEntry": record({"seq": INTEGER, "events": list_of(record({"type": STRING}))}),
    "AuditErasure": record(
        {"object": one_of("audit.erasure"), "caller": STRING, "n_erased": INTEGER}
    ),
    "AuditStep": record(
        {"object": one_of("audit.finding", "audit.progress", "audit.verdict")},
        {
            "kind": STRING,
            "generation_id": STRING,
            "day": STRING,
            "position": INTEGER,
            "detail": STRING,
            "is_intact": BOOLEAN,
            "n_links": INTEGER,
            "n_findings": INTEGER,
            "head": or_null(STRING),
        },
    ),
}
