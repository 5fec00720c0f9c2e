"""One cluster for all scenarios of a kind of broker: a fault leaves it whole."""

from collections.abc import Iterator

import pytest

from tests.faults.scene import QpiddScene, RabbitScene, qpidd_scene, rabbit_scene


@pytest.fixture(scope="package")
def qpidd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QpiddScene]:
    with qpidd_scene(tmp_path_factory.mktemp("qpidd")) as scene:
        yield scene


@pytest.fixture(scope="package")
def rabbit() -> Iterator[RabbitScene]:
    with rabbit_scene() as scene:
        yield scene
