"""A cluster is safe without options about safety, or says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ha.model.settings import HaSettings
from qpidd_py.errors import ConfigError
from qpidd_py.option_values import Address
from tests.support.process import BrokerProcess
from tests.support.wait import wait_logged


def settings(size: int, **options: Any) -> HaSettings:
    brokers = tuple(Address("h", port) for port in range(1, size + 1))
    return HaSettings(ha_cluster=True, ha_brokers_url=brokers, **options)


@pytest.mark.parametrize("size", [3, 4, 7])
def test_three_or_more_need_a_majority(size: int) -> None:
    found = settings(size)
    assert (found.safety, found.registry, found.risk) == ("quorum", "none", "")


@pytest.mark.parametrize("size", [1, 2])
def test_fewer_have_to_name_a_mode(size: int) -> None:
    with pytest.raises(ConfigError, match=f"option ha-safety: found auto with {size} broker"):
        settings(size)


def test_the_same_broker_twice_is_one() -> None:
    with pytest.raises(ConfigError, match="found auto with 2 brokers"):
        HaSettings(ha_cluster=True, ha_brokers_url=(Address("h", 1), Address("h", 2), Address("h", 1)))


@pytest.mark.parametrize("size", [2, 3])
def test_a_manager_has_to_name_its_registry(size: int) -> None:
    with pytest.raises(ConfigError, match="option ha-registry: not given with ha-safety=manager, expected pacemaker"):
        settings(size, ha_safety="manager")
    assert settings(size, ha_safety="manager", ha_registry="pacemaker").risk == ""
    assert settings(size, ha_safety="manager", ha_registry="none").risk.startswith("ha-safety=manager with ha-reg")


def test_a_broker_outside_a_cluster_needs_nothing() -> None:
    assert HaSettings().risk == ""


def test_a_real_pair_is_refused_or_warned(tmp_path: Path) -> None:
    pair = ("--ha-cluster", "yes", "--ha-brokers-url", "127.0.0.1:1,127.0.0.1:2")
    with BrokerProcess(tmp_path, *pair, "--ha-safety", "manager", "--ha-registry", "none") as warned:
        assert warned.log.count("warning: ha-safety=manager with ha-registry=none: if brokers cannot hear") == 1
    refused = BrokerProcess(tmp_path, *pair, "--ha-safety", "auto", name="refused")
    try:
        assert refused.spawn().wait() == 1
        wanted = "expected 3 or more (then it is quorum), or ha-safety=manager with ha-registry named"
        wait_logged(refused, f"option ha-safety: found auto with 2 brokers, {wanted}")
    finally:
        refused.close()
