"""All fuzzers."""

from __future__ import annotations

from typing import Final

from tests.fuzz import files, frames, journals, links, requests, urls
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target for module in (files, journals, urls, frames, requests, links) for target in module.TARGETS
}
