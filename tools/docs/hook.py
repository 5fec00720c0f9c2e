"""The hook of `mkdocs build`: fills in text generated from the code, and adds pages from outside docs/.

Pages from elsewhere in the tree stay where they are, since developers read them next to the code.
"""

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from tools.docs.generated import GENERATED

ROOT: Final = Path(__file__).resolve().parents[2]
MARK: Final = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)
ELSEWHERE_LOADED: Final = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)[^>]*>"
)
ELSEWHERE: Final = {
    "inside/changelog.md": "CHANGELOG.md",
    "inside/contributing.md": "CONTRIBUTING.md",
    "inside/ha.md": "ha/README.md",
    "inside/core.md": "qpidd_py/core/README.md",
    "inside/acceptance.md": "tests/acceptance/README.md",
    "inside/benchmarks.md": "benchmarks/README.md",
    "inside/packaging.md": "packaging/README.md",
    "inside/containers.md": "packaging/docker/README.md",
    "inside/cluster-files.md": "config/README.md",
    "inside/vagrant.md": "vagrant/README.md",
    "reference/failover-report.md": "spark_jobs/README.md",
}
"""Page of the site, and the file that it is made from."""
BEHIND: Final = {
    "reference/failover-report.md": "\n## 7. All options\n\n<!-- generated: options of failover-report -->\n"
}
"""What the site has behind such a page."""


def on_files(files: Files, config: Any) -> Files:
    for name, source in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text + BEHIND.get(name, "")))
    return files


def on_post_build(config: Any) -> None:
    """A page that loads anything from a network is an error."""
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        if loaded := loads(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.name} loads {', '.join(loaded)}; the site has to work without a network")


def loads(html: str) -> list[str]:
    """What a browser would fetch from another host for this page; links that a reader follows are not meant."""
    return [found[1] for found in ELSEWHERE_LOADED.finditer(html) if 'rel="canonical"' not in found[0]]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return MARK.sub(lambda found: _generated(found[1], str(page.file.src_uri)), markdown)


def _generated(name: str, page: str) -> str:
    if name not in GENERATED:
        raise PluginError(f"{page}: nothing is generated under the name {name!r}; known are {', '.join(GENERATED)}")
    return GENERATED[name]()
