"""One module of the tree is imported with a mistake in it; the file stays as it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from tests.mutants.operators import Mutant, mutated

ROOT = Path(__file__).resolve().parents[2]


class _Loader(SourceFileLoader):
    def __init__(self, name: str, mutant: Mutant) -> None:
        super().__init__(name, str(ROOT / mutant.path))
        self._number = mutant.number

    def get_code(self, fullname: str) -> CodeType:
        """Never from a cached file."""
        code: CodeType = compile(mutated(Path(self.path).read_text(), self._number), self.path, "exec")
        return code


class Finder:
    """Of `sys.meta_path`."""

    def __init__(self, mutant: Mutant) -> None:
        self.module = mutant.path.removesuffix(".py").replace("/", ".")
        self._mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.module:
            return None
        return spec_from_file_location(name, self._mutant.path, loader=_Loader(name, self._mutant))


def install(mutant: Mutant) -> None:
    """Before its module is imported for the first time in this process."""
    finder = Finder(mutant)
    if finder.module in sys.modules:
        raise RuntimeError(f"{finder.module} is imported already")
    sys.meta_path.insert(0, finder)
