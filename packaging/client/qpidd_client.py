"""The package `client_lib` under the name of its distribution: `import qpidd_client`, `from qpidd_client import aio`.

Each module is loaded once, whatever name it is imported by: otherwise `isinstance` and `except` would fail.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import client_lib
from client_lib import *  # noqa: F403

NAME = __name__


class _Alias(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(f"{NAME}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(client_lib.__name__ + spec.name.removeprefix(NAME))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias = module.__spec__
        assert alias is not None
        module.__spec__ = alias.loader_state  # the import has put the other one there


sys.meta_path.insert(0, _Alias())
sys.modules[NAME] = client_lib
