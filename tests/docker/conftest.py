"""An engine and the image of this tree; without an engine or a base image the tests are skipped, by name."""

import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from tests.docker.containers import engine_or_reason

ROOT = Path(__file__).resolve().parents[2]
BASE = os.environ.get("QPIDD_DOCKER_BASE", "python:3.11-slim-bookworm")
HELP = "QPIDD_DOCKER_BASE names another one, see packaging/docker/README.md"
TAG = "qpidd-py:test"


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    found, reason = engine_or_reason()
    if found is None:
        pytest.skip(reason)
    yield found
    found.close()


@pytest.fixture(scope="session")
def image(engine: docker.DockerClient) -> str:
    """The tag; built from this tree.  Its layers stay with the engine, so that the next time is faster."""
    try:
        engine.images.get(BASE)
    except DockerException:
        try:
            engine.images.pull(BASE)
        except DockerException as error:
            pytest.skip(f"no base image {BASE} ({HELP}): {error}")
    # The build wants a package index; the network of the machine is the one that is known to reach it.
    engine.images.build(
        path=str(ROOT), dockerfile="packaging/docker/Dockerfile", tag=TAG, rm=True, forcerm=True, network_mode="host",
        buildargs={"BASE": BASE},
    )  # fmt: skip
    return TAG
