"""Builds the Cython core; everything else is in setup.cfg.

QPIDD_SANITIZE=address,undefined builds the core with sanitizers (see `make fuzz-sanitized`); QPIDD_OPTIMIZE=0 builds it
three times as fast, and slow to run: for tests.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
CORE = Path("qpidd_py", "core")
INCLUDED = (".pxd", ".h")
NO_COMPILER = """
qpidd-py: {missing} not found.
The data path of the broker is a C extension, so building it needs a C compiler and the header files of Python.
  Debian, Ubuntu:  apt-get install gcc python3-dev
  Fedora, RHEL:    dnf install gcc python3-devel
Or install a wheel that was built elsewhere.
"""


def compiler_flags() -> tuple[list[str], list[str]]:
    """Flags of the compiler and of the linker."""
    sanitize = os.environ.get("QPIDD_SANITIZE", "")
    if sanitize:
        flags = ["-O1", "-g", "-fno-omit-frame-pointer", f"-fsanitize={sanitize}", "-fno-sanitize-recover=undefined"]
        return flags, [f"-fsanitize={sanitize}"]
    return ["-O" + os.environ.get("QPIDD_OPTIMIZE", "3"), "-g0", "-fno-strict-aliasing"], []


def extensions() -> list[Extension]:
    compile_flags, link_flags = compiler_flags()
    sources = sorted((HERE / CORE).glob("*.pyx"))
    included = [str(CORE / name.name) for name in sorted((HERE / CORE).iterdir()) if name.suffix in INCLUDED]
    return [
        Extension(
            f"qpidd_py.core.{source.stem}",
            [str(CORE / source.name)],
            include_dirs=[str(CORE)],
            depends=included,
            extra_compile_args=compile_flags,
            extra_link_args=link_flags,
        )
        for source in sources
    ]


def missing_tool() -> str | None:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"C compiler ({compiler})"
    include = Path(sysconfig.get_path("include"))
    return None if (include / "Python.h").exists() else f"{include}/Python.h"


class BuildCore(build_ext):
    """Says clearly what is missing before the compiler says it unclearly."""

    def run(self) -> None:
        missing = missing_tool()
        if missing is not None:
            sys.exit(NO_COMPILER.format(missing=missing))
        super().run()


def cythonized() -> list[Extension]:
    """An sdist carries the generated C, so that Cython is not needed there."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        for extension in extensions_found:
            extension.sources = [str(Path(source).with_suffix(".c")) for source in extension.sources]
        return extensions_found
    built: list[Extension] = cythonize(extensions_found, compiler_directives={"language_level": "3"})
    return built


os.chdir(HERE)
extensions_found = extensions()
setup(ext_modules=cythonized(), cmdclass={"build_ext": BuildCore})
