"""Schemas of what clients get."""

from services.gateway.openapi.terms import (
    BOOLEAN,
    INTEGER,
    INTEGERS,
    NUMBER,
    OBJECT,
    OBJECTS,
    STRING,
    STRINGS,
    Json,
    any_of,
    list_of,
    one_of,
    or_null,
    record,
    ref,
    said,
)

USAGE = record({"completion_tokens": INTEGER, "prompt_tokens": INTEGER, "total_tokens": INTEGER})
OPENAI_HEAD: dict[str, Json] = {"id": STRING, "created": INTEGER, "model": STRING, "usage": USAGE}

ANSWERS: dict[str, Json] = {
    "Error": record(
        {
            "error": record(
                {"code": any_of(INTEGER, STRING), "message": STRING, "type": STRING},
                {"param": STRING, "n_prompt_tokens": INTEGER, "n_ctx": INTEGER},
            )
        },
        {"type": one_of("error")},
        examples=[
            {
                "error": {
                    "code": 400,
                    "message": "'messages' is required",
                    "type": "invalid_request_error",
                    "param": "messages",
                }
            }
        ],
    ),
    "Event": said(
        record({}, {"id": STRING, "event": STRING, "data": STRING}),
        "One of a stream: `data` is JSON or `[DONE]`; pings are comments",
    ),
    "Health": record({"status": one_of("ok")}),
    "Models": record({"object": one_of("list"), "data": OBJECTS, "models": OBJECTS}),
    "Props": record(
        {"default_generation_settings": OBJECT, "total_slots": INTEGER, "chat_template": STRING}
    ),
    "Adapters": list_of(OBJECT),
    "Success": record({"success": BOOLEAN}, {"message": STRING}),
    "Slots": list_of(record({"id": INTEGER, "n_ctx": INTEGER, "is_processing": BOOLEAN})),
    "SlotChange": record(
        {"id_slot": INTEGER},
        {
            "filename": STRING,
            "n_saved": INTEGER,
            "n_written": INTEGER,
            "n_restored": INTEGER,
            "n_read": INTEGER,
            "n_erased": INTEGER,
            "timings": OBJECT,
        },
    ),
    "Timings": record(
        {"prompt_n": INTEGER, "prompt_ms": NUMBER, "predicted_n": INTEGER, "predicted_ms": NUMBER}
    ),
    "Completion": any_of(ref("OneCompletion"), list_of(ref("OneCompletion")), OBJECT),
    "OneCompletion": record(
        {
            "content": STRING,
            "stop": BOOLEAN,
            "stop_type": one_of("eos", "word", "limit"),
            "tokens_predicted": INTEGER,
            "tokens_evaluated": INTEGER,
            "generation_settings": OBJECT,
            "timings": ref("Timings"),
        },
        {"tokens": INTEGERS},
    ),
    "OpenAiCompletion": record(
        OPENAI_HEAD
        | {
            "object": one_of("text_completion"),
            "choices": list_of(record({"text": STRING, "index": INTEGER, "finish_reason": STRING})),
        }
    ),
    "Chat": record(
        OPENAI_HEAD
        | {
            "object": one_of("chat.completion"),
            "choices": list_of(
                record({"message": OBJECT, "index": INTEGER, "finish_reason": STRING})
            ),
        }
    ),
    "AnthropicAnswer": record(
        {
            "id": STRING,
            "type": one_of("message"),
            "role": one_of("assistant"),
            "content": OBJECTS,
            "model": STRING,
            "stop_reason": one_of("end_turn", "max_tokens", "stop_sequence", "tool_use"),
            "stop_sequence": or_null(STRING),
            "usage": record({"input_tokens": INTEGER, "output_tokens": INTEGER}),
        }
    ),
    "Response": record(
        {
            "id": STRING,
            "object": one_of("response"),
            "created_at": INTEGER,
            "status": one_of(
                "queued", "in_progress", "completed", "incomplete", "failed", "cancelled"
            ),
            "model": STRING,
            "output": OBJECTS,
            "error": or_null(OBJECT),
            "usage": or_null(record({"input_tokens": INTEGER, "output_tokens": INTEGER})),
        }
    ),
    "DeletedResponse": record({"id": STRING, "object": one_of("response"), "deleted": BOOLEAN}),
    "InputItems": record(
        {
            "object": one_of("list"),
            "data": OBJECTS,
            "first_id": or_null(STRING),
            "last_id": or_null(STRING),
            "has_more": BOOLEAN,
        }
    ),
    "InputTokens": record({"input_tokens": INTEGER}, {"object": STRING}),
    "Tokens": record({"tokens": list_of(any_of(INTEGER, ref("Piece")))}),
    "Piece": record({"id": INTEGER, "piece": any_of(STRING, INTEGERS)}),
    "Content": record({"content": STRING}),
    "Prompt": record({"prompt": STRING}),
    "Conversations": list_of(
        record(
            {
                "conversation_id": STRING,
                "is_done": BOOLEAN,
                "total_bytes": INTEGER,
                "started_at": INTEGER,
                "completed_at": INTEGER,
            }
        )
    ),
    "OpenApi": record({"openapi": STRING, "info": OBJECT, "paths": OBJECT}, {"servers": STRINGS}),
}
