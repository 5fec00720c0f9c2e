"""`qpidctl` against real brokers: whether they answer, how each is, and what support has to know."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.test_users import Users


def test_the_state_of_a_cluster_with_a_dead_member(tmp_path: Path) -> None:
    cluster = Users(tmp_path)
    try:
        cluster.up()
        addresses = {name: broker.address for name, broker in cluster.brokers.items()}
        for name in addresses:
            assert cluster.ctl("ping", name=name).startswith("result\tok\n")
        assert cluster.ctl("authenticate_user", "bob", "bob").startswith("user\tbob\nresult\tok\n")
        assert "AuthenticationFailure" in cluster.ctl("authenticate_user", "bob", stdin="wrong\n", code=1)
        cluster.brokers["c"].kill()
        for name in ("a", "b"):
            found = json.loads(cluster.ctl("--json", "cluster_status", name=name))
            assert found["primary"] == addresses["a"]
            states = {each["address"]: each["status"] for each in found["brokers"]}
            assert states == {addresses["a"]: "active", addresses["b"]: "ready", addresses["c"]: ""}, found
            assert "ConnectionRefusedError" in found["brokers"][2]["error"]
            text = cluster.ctl("report", name=name)
            assert "ha-username\tha" in text and "ha-password\tha-password" not in text
            assert f"{addresses['a']}\tactive\ta\t" in text and len(text.splitlines()) < 300
    finally:
        cluster.close()
