"""A contract type for import-linter: who alone may import something (its own types cannot name modules by pattern)."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyImporters(Contract):
    """Nobody but `importers` (shell patterns, submodules included) imports `modules` or what lies below them."""

    type_name = "only_importers"

    modules = fields.SetField(subfield=fields.StringField())
    importers = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Name every forbidden importer with its lines."""
        found = sorted(set(self._offences(graph)))
        return ContractCheck(kept=not found, metadata={"offences": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line per offence."""
        for importer, imported, lines in check.metadata["offences"]:
            output.print_error(f"{importer} imports {imported} (line {lines})")

    def _offences(self, graph: ImportGraph) -> Iterator[tuple[str, str, str]]:
        guarded: set[str] = set(self.modules)  # type: ignore[arg-type]
        allowed: set[str] = guarded | set(self.importers)  # type: ignore[arg-type]
        for imported in (name for name in graph.modules if _is_within(name, guarded)):
            for importer in graph.find_modules_that_directly_import(imported):
                if not _is_within(importer, allowed):
                    yield importer, imported, _lines(graph, importer, imported)


def _is_within(name: str, patterns: set[str]) -> bool:
    return any(fnmatchcase(name, p) or fnmatchcase(name, f"{p}.*") for p in patterns)


def _lines(graph: ImportGraph, importer: str, imported: str) -> str:
    details = graph.get_import_details(importer=importer, imported=imported)
    return ", ".join(str(detail["line_number"]) for detail in details) or "?"
