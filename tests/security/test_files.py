"""What the broker writes belongs to its user alone."""

from collections.abc import Callable

from tests.support.process import BrokerProcess


def test_no_other_user_may_read_what_it_writes(make_broker: Callable[..., BrokerProcess]) -> None:
    options = ("--ha-cluster", "yes", "--ha-safety", "availability", "--journal", "yes")
    broker = make_broker(*options, "--ha-brokers-url", "127.0.0.1:1", "--ha-address", "127.0.0.1:1").start()
    found = [broker.data_dir, *broker.data_dir.rglob("*")]
    assert {"events", "journal"} <= {path.name for path in found} and any(path.suffix == ".json" for path in found)
    open_ones = {str(path): oct(path.stat().st_mode) for path in found if path.stat().st_mode & 0o077}
    assert open_ones == {}
