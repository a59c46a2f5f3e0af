"""Arrays of JSON schemas as GBNF."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from services.engine.grammar.errors import SchemaInvalid
from services.engine.grammar.rules import repeated
from services.engine.grammar.schema_nodes import Node
from services.engine.grammar.schema_types import count_of

if TYPE_CHECKING:
    from services.engine.grammar.json_schema import Converter

MAX_PREFIX = 1000
_NOT_EXPRESSED = ("contains", "minContains", "maxContains", "unevaluatedItems")


class Arrays:
    """Writes the bodies of array rules for a converter."""

    def __init__(self, converter: "Converter") -> None:
        self._converter = converter

    def body(self, name: str, nodes: Sequence[Node]) -> str:
        """The text of an array that all nodes allow."""
        counts = count_of(nodes, "minItems", "maxItems")
        _check(nodes, counts.n_max)
        prefix = self._prefix(name, nodes)
        if counts.n_max is not None:
            prefix = prefix[: counts.n_max]
        n_more_min = max(counts.n_min - len(prefix), 0)
        n_more_max = None if counts.n_max is None else counts.n_max - len(prefix)
        rest = self._rest(name, nodes, len(prefix))
        if rest is None:
            if n_more_min:
                raise SchemaInvalid(
                    "`minItems` asks for more items than are allowed", nodes[0].path
                )
            n_more_max = 0
        elif len(prefix) and not any("items" in _rest_keys(node) for node in nodes):
            n_more_max = n_more_min  # nobody asked for more
        self._converter.primitive("space")
        return f'"[" space {_items(prefix, rest or "", n_more_min, n_more_max)}"]"'

    def _prefix(self, name: str, nodes: Sequence[Node]) -> list[str]:
        n = max(len(_prefix_of(node)) for node in nodes)
        if n > MAX_PREFIX:
            raise SchemaInvalid(f"`prefixItems` may have at most {MAX_PREFIX} parts", nodes[0].path)
        return [
            self._converter.name(
                [part for node in nodes if (part := _item(node, i))], f"{name}-{i}"
            )
            for i in range(n)
        ]

    def _rest(self, name: str, nodes: Sequence[Node], start: int) -> str | None:
        """The rule for items from `start` on; None: there are none."""
        parts = [part for node in nodes if (part := _item(node, start))]
        if any(node.schema is False for node in parts) or self._converter.is_impossible(parts):
            return None
        return self._converter.name(parts, f"{name}-item")


def _items(prefix: list[str], rest: str, n_min: int, n_max: int | None) -> str:
    if prefix:
        first = ' "," space '.join(prefix)
        more = "" if n_max == 0 else " " + repeated(f'("," space {rest})', n_min, n_max)
        return f"{first}{more} space "
    if n_max == 0:
        return ""
    less = None if n_max is None else n_max - 1
    more = "" if less == 0 else " " + repeated(f'("," space {rest})', max(n_min - 1, 0), less)
    return f"{rest}{more} space " if n_min else f"({rest}{more} space)? "


def _check(nodes: Sequence[Node], n_max: int | None) -> None:
    for node in nodes:
        for key in _NOT_EXPRESSED:
            if node.keywords.get(key, False) is not False:
                raise SchemaInvalid(f"`{key}` cannot be expressed as a grammar", node.path)
        is_unique = node.keywords.get("uniqueItems", False) is not False
        if is_unique and (n_max is None or n_max > 1):
            raise SchemaInvalid("`uniqueItems` cannot be expressed as a grammar", node.path)


def _prefix_of(node: Node) -> list[object]:
    for key in ("prefixItems", "items"):
        if isinstance(node.keywords.get(key), list):
            return cast("list[object]", node.keywords[key])
    return []


def _rest_keys(node: Node) -> dict[str, str]:
    """Under which keyword the items after the prefix stand, as `items`."""
    keywords = node.keywords
    if isinstance(keywords.get("items"), list):
        return {"items": "additionalItems"} if "additionalItems" in keywords else {}
    return {"items": "items"} if "items" in keywords else {}


def _item(node: Node, i: int) -> Node | None:
    """What a node says of item i; None: nothing."""
    if i < len(_prefix_of(node)):
        key = "prefixItems" if isinstance(node.keywords.get("prefixItems"), list) else "items"
        return node.child(key, i)
    rest = _rest_keys(node)
    return node.child(rest["items"]) if rest else None
