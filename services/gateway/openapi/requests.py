"""Schemas of what clients send."""

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
    between,
    list_of,
    one_of,
    optional,
    or_null,
    record,
    ref,
    said,
)

TOKENS = between(-1, schema=INTEGER)
SAMPLING: dict[str, Json] = {
    "seed": said(INTEGER, "−1 for a random one"),
    "temperature": between(0),
    "top_k": said(INTEGER, "0 disables"),
    "top_p": between(0, 1),
    "min_p": between(0, 1),
    "typical_p": NUMBER,
    "top_n_sigma": NUMBER,
    "xtc_probability": between(0, 1),
    "xtc_threshold": between(0, 1),
    "dynatemp_range": NUMBER,
    "dynatemp_exponent": NUMBER,
    "repeat_last_n": INTEGER,
    "repeat_penalty": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "dry_multiplier": NUMBER,
    "dry_base": NUMBER,
    "dry_allowed_length": INTEGER,
    "dry_penalty_last_n": INTEGER,
    "dry_sequence_breakers": STRINGS,
    "mirostat": said(between(0, 2, INTEGER), "0 disables"),
    "mirostat_tau": NUMBER,
    "mirostat_eta": NUMBER,
    "samplers": any_of(STRINGS, STRING),
    "logit_bias": said(
        any_of(OBJECT, list_of({})), "pairs of token and bias, or an object of them"
    ),
    "grammar": said(STRING, "GBNF"),
    "json_schema": OBJECT,
    "ignore_eos": BOOLEAN,
    "n_probs": between(0, schema=INTEGER),
    "min_keep": between(0, schema=INTEGER),
    "post_sampling_probs": BOOLEAN,
}
COMMON: dict[str, Json] = {
    "model": said(STRING, "Not looked at: there is one model"),
    "stream": BOOLEAN,
    "stop": any_of(STRING, STRINGS),
    "cache_prompt": BOOLEAN,
    "id_slot": TOKENS,
    "n_keep": TOKENS,
    "return_progress": BOOLEAN,
    "priority": said(
        any_of(one_of("interactive", "batch"), INTEGER),
        "Batch waits until nothing interactive does; of numbers, those above 0 are batch",
    ),
    "timings_per_token": BOOLEAN,
    "sse_ping_interval": said(TOKENS, "Seconds of silence before a ping, −1 for none"),
}
CHAT_TEMPLATE: dict[str, Json] = {
    "tools": list_of(ref("Tool")),
    "tool_choice": any_of(one_of("auto", "none", "required"), OBJECT),
    "parallel_tool_calls": BOOLEAN,
    "add_generation_prompt": BOOLEAN,
    "chat_template_kwargs": OBJECT,
    "reasoning_effort": STRING,
    "response_format": OBJECT,
}
PROMPT = said(
    any_of(STRING, INTEGERS, list_of(any_of(STRING, INTEGER, INTEGERS))),
    "Text, token ids, or a list of prompts",
)
MIXED = any_of(STRING, list_of(any_of(STRING, INTEGER)))
NATIVE: dict[str, Json] = {
    "n_predict": said(TOKENS, "−1 for no limit"),
    "n_cmpl": between(1, schema=INTEGER),
    "return_tokens": BOOLEAN,
    "response_fields": STRINGS,
}
ROLE: Json = {**STRING, "minLength": 1, "maxLength": 64}
HELLO: Json = {"role": "user", "content": "Write one sentence about a fox."}

REQUESTS: dict[str, Json] = {
    "SlotFile": record({}, {"filename": said(STRING, "A plain name, no folders")}),
    "Tool": record({"type": one_of("function"), "function": ref("Function")}),
    "Function": record({"name": STRING}, optional({"description": STRING, "parameters": OBJECT})),
    "Message": record(
        {
            "role": said(
                ROLE, "system, user, assistant, tool, or another one that the template knows"
            )
        },
        {
            "content": or_null(any_of(STRING, list_of(ref("TextPart")))),
            "reasoning_content": or_null(STRING),
            "tool_calls": or_null(list_of(ref("ToolCall"))),
            "tool_call_id": or_null(STRING),
            "name": or_null(STRING),
        },
    ),
    "TextPart": record({"type": one_of("text"), "text": STRING}),
    "ToolCall": record(
        {
            "type": one_of("function"),
            "function": record({"name": STRING, "arguments": any_of(STRING, OBJECT)}),
        },
        {"id": or_null(STRING)},
    ),
    "CompletionRequest": record(
        {"prompt": PROMPT},
        optional(COMMON | SAMPLING | NATIVE),
        examples=[{"prompt": "Once upon a time", "n_predict": 16}],
    ),
    "InfillRequest": record(
        {"input_prefix": MIXED, "input_suffix": MIXED},
        optional(
            COMMON
            | SAMPLING
            | NATIVE
            | {
                "prompt": said(STRING, "What the gap begins with"),
                "input_extra": list_of(record({"text": STRING}, {"filename": STRING})),
            }
        ),
    ),
    "OpenAiCompletionRequest": record(
        {"prompt": PROMPT},
        optional(
            COMMON
            | SAMPLING
            | {
                "max_tokens": TOKENS,
                "n": between(1, schema=INTEGER),
                "logprobs": between(0, schema=INTEGER),
                "stream_options": OBJECT,
            }
        ),
        examples=[{"prompt": "One, two, three,", "max_tokens": 16}],
    ),
    "ChatRequest": record(
        {"messages": list_of(ref("Message"))},
        optional(
            COMMON
            | SAMPLING
            | CHAT_TEMPLATE
            | {
                "max_tokens": TOKENS,
                "max_completion_tokens": TOKENS,
                "n": between(1, schema=INTEGER),
                "logprobs": BOOLEAN,
                "top_logprobs": between(0, schema=INTEGER),
                "stream_options": OBJECT,
                "reasoning_format": one_of("none", "auto", "deepseek", "deepseek-legacy"),
            }
        ),
        examples=[{"messages": [HELLO], "max_tokens": 16}],
    ),
    "TemplateRequest": record(
        {"messages": list_of(ref("Message"))},
        optional(CHAT_TEMPLATE),
        examples=[{"messages": [HELLO]}],
    ),
    "ControlRequest": record(
        {"action": one_of("reasoning_end")},
        {"id": said(STRING, "Of the answer that is being generated")},
        examples=[{"id": "chatcmpl-01936b5e4c007abc8def0123456789ab", "action": "reasoning_end"}],
    ),
    "MessagesRequest": record(
        {"messages": list_of(ref("AnthropicMessage"))},
        optional(
            {
                "model": STRING,
                "max_tokens": TOKENS,
                "system": any_of(STRING, OBJECTS),
                "stream": BOOLEAN,
                "stop_sequences": STRINGS,
                "temperature": between(0),
                "top_k": INTEGER,
                "top_p": between(0, 1),
                "tools": list_of(record({"name": STRING}, {"input_schema": OBJECT})),
                "tool_choice": OBJECT,
                "thinking": OBJECT,
                "metadata": OBJECT,
            }
        ),
        examples=[{"messages": [HELLO], "max_tokens": 16}],
    ),
    "AnthropicMessage": record(
        {"role": one_of("user", "assistant", "system"), "content": any_of(STRING, OBJECTS)}
    ),
    "ResponsesRequest": record(
        {"input": any_of(STRING, list_of(ref("Item")))},
        optional(
            {
                "model": STRING,
                "instructions": STRING,
                "previous_response_id": STRING,
                "stream": BOOLEAN,
                "background": BOOLEAN,
                "store": BOOLEAN,
                "max_output_tokens": TOKENS,
                "temperature": between(0),
                "top_p": between(0, 1),
                "tools": OBJECTS,
                "tool_choice": any_of(one_of("auto", "none", "required"), OBJECT),
                "text": OBJECT,
                "reasoning": OBJECT,
                "metadata": OBJECT,
                "include": STRINGS,
            }
        ),
        examples=[{"input": "Write one sentence about a fox.", "max_output_tokens": 16}],
    ),
    "Item": any_of(
        record(
            {"role": one_of("user", "assistant", "system", "developer")}
            | {"content": any_of(STRING, OBJECTS)},
        ),
        record({"type": one_of("message", "function_call", "function_call_output", "reasoning")}),
    ),
    "TokenizeRequest": record(
        {"content": any_of(STRING, list_of(any_of(STRING, INTEGER)))},
        optional({"add_special": BOOLEAN, "parse_special": BOOLEAN, "with_pieces": BOOLEAN}),
        examples=[{"content": "Hello world", "with_pieces": True}],
    ),
    "DetokenizeRequest": record(
        {"tokens": list_of(between(0, schema=INTEGER))}, examples=[{"tokens": [1, 2, 3]}]
    ),
    "LookupRequest": record(
        {"conversation_ids": STRINGS}, examples=[{"conversation_ids": ["my-chat"]}]
    ),
}
