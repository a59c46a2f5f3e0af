"""Rules that call themselves before they consume anything, so that a matcher's stack would grow for ever."""

from services.engine.grammar.program import END, REPEAT, RULE, Program

Edge = tuple[int, bool]
"""A rule called first, and whether something is left to do after it."""


def find_left_recursion(program: Program) -> list[int] | None:
    """The rules of a cycle of such calls that grows, or None. Linear time.

    A cycle whose calls all come last does not grow: it says the same thing twice, and is harmless.
    """
    nullable = find_nullable(program)
    edges = [_first_calls(program, rule, nullable) for rule in range(len(program.alternatives))]
    for component in _components(edges):
        members = set(component)
        if any(grows and to in members for rule in component for to, grows in edges[rule]):
            return component
    return None


def _called(program: Program, position: int) -> tuple[int, int]:
    """The rule that a position calls (−1: none), and how often at least."""
    kind, value = program.kinds[position], program.values[position]
    if kind == RULE:
        return value, 1
    if kind == REPEAT:
        return program.repeats[value].rule, program.repeats[value].n_min
    return -1, 1


def find_nullable(program: Program) -> list[bool]:
    """By rule: whether it may consume nothing."""
    return _derive(program, may_consume=False)


def find_endable(program: Program) -> list[bool]:
    """By rule: whether it can ever come to its end."""
    return _derive(program, may_consume=True)


def _derive(program: Program, *, may_consume: bool) -> list[bool]:
    """By rule: whether one of its alternatives needs only rules for which the same holds, and
    characters only if it may consume."""
    holds = [False] * len(program.alternatives)
    owners: list[int] = []
    n_left: list[int] = []
    waiting: dict[int, list[int]] = {}
    found: list[int] = []
    for rule, starts in enumerate(program.alternatives):
        for start in starts:
            needs = _needs(program, start, may_consume=may_consume)
            if needs is None:
                continue
            for need in needs:
                waiting.setdefault(need, []).append(len(owners))
            owners.append(rule)
            n_left.append(len(needs))
            if not needs:
                found.append(rule)
    while found:
        rule = found.pop()
        if holds[rule]:
            continue
        holds[rule] = True
        for alternative in waiting.get(rule, ()):
            n_left[alternative] -= 1
            if n_left[alternative] == 0:
                found.append(owners[alternative])
    return holds


def _needs(program: Program, start: int, *, may_consume: bool) -> list[int] | None:
    """The rules that must hold for an alternative to hold; None: it never does."""
    needs: list[int] = []
    position = start
    while position != END:
        rule, n_min = _called(program, position)
        if rule < 0 and not may_consume:
            return None
        if rule >= 0 and n_min > 0:
            needs.append(rule)
        position = program.nexts[position]
    return needs


def _first_calls(program: Program, rule: int, nullable: list[bool]) -> list[Edge]:
    found: list[Edge] = []
    for start in program.alternatives[rule]:
        position = start
        while position != END:
            called, n_min = _called(program, position)
            if called < 0:
                break
            is_last = program.nexts[position] == END and program.kinds[position] == RULE
            found.append((called, not is_last))
            if n_min > 0 and not nullable[called]:
                break
            position = program.nexts[position]
    return found


def _components(edges: list[list[Edge]]) -> list[list[int]]:
    """Strongly connected components (Tarjan, without recursion)."""
    search = _Search(edges)
    for root in range(len(edges)):
        if search.index[root] < 0:
            search.visit(root)
    return search.components


class _Search:
    def __init__(self, edges: list[list[Edge]]) -> None:
        self._edges = edges
        self.index = [-1] * len(edges)
        self._low = [0] * len(edges)
        self._is_open = [False] * len(edges)
        self._open: list[int] = []
        self._n_seen = 0
        self.components: list[list[int]] = []

    def visit(self, root: int) -> None:
        self._enter(root)
        path = [(root, iter(self._edges[root]))]
        while path:
            node, calls = path[-1]
            for to, _ in calls:
                if self.index[to] < 0:
                    self._enter(to)
                    path.append((to, iter(self._edges[to])))
                    break
                if self._is_open[to]:
                    self._low[node] = min(self._low[node], self.index[to])
            else:
                path.pop()
                self._leave(node)
                if path:
                    parent = path[-1][0]
                    self._low[parent] = min(self._low[parent], self._low[node])

    def _enter(self, node: int) -> None:
        self.index[node] = self._low[node] = self._n_seen
        self._n_seen += 1
        self._open.append(node)
        self._is_open[node] = True

    def _leave(self, node: int) -> None:
        if self._low[node] != self.index[node]:
            return
        component: list[int] = []
        while not component or component[-1] != node:
            member = self._open.pop()
            self._is_open[member] = False
            component.append(member)
        self.components.append(component)
