"""Words for writing JSON schemas in little space."""

Json = dict[str, object]

STRING: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
INTEGER: Json = {"type": "integer"}
BOOLEAN: Json = {"type": "boolean"}
OBJECT: Json = {"type": "object"}
STRINGS: Json = {"type": "array", "items": STRING}
INTEGERS: Json = {"type": "array", "items": INTEGER}
OBJECTS: Json = {"type": "array", "items": OBJECT}
NULL: Json = {"type": "null"}


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def one_of(*values: str) -> Json:
    """One of these words."""
    return {"type": "string", "enum": list(values)}


def any_of(*schemas: Json) -> Json:
    return {"anyOf": list(schemas)}


def or_null(schema: Json) -> Json:
    return any_of(schema, NULL)


def list_of(schema: Json) -> Json:
    return {"type": "array", "items": schema}


def said(schema: Json, description: str) -> Json:
    """A schema with a word on what it means."""
    return {**schema, "description": description}


def between(low: float, high: float | None = None, schema: Json = NUMBER) -> Json:
    bounds: Json = {"minimum": low}
    return {**schema, **bounds, **({} if high is None else {"maximum": high})}


def optional(properties: dict[str, Json]) -> dict[str, Json]:
    """Properties that may be null, which counts as absent."""
    return {name: or_null(schema) for name, schema in properties.items()}


def record(
    required: dict[str, Json], others: dict[str, Json] | None = None, **extra: object
) -> Json:
    """An object. Further properties may stand in it: clients must not mind them."""
    schema: Json = {"type": "object", "properties": required | (others or {})}
    if required:
        schema["required"] = list(required)
    return schema | extra
