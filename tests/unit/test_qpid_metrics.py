"""`qpid-metrics`: what Prometheus reads, in its own format; against a broker behind a socket."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ha.model.status import State
from ha.shell.standalone import Standalone
from qpidd_py.broker.settings import Key
from qpidd_py.cli import metric_views
from qpidd_py.cli.qpid_metrics import Scrape, main, make_parser
from qpidd_py.cli.target import target_of
from qpidd_py.management.parameters import STATES
from tests.support.socket_broker import SocketBroker
from tests.support.system import needs
from tests.unit.ha.world import World
from tests.unit.test_qpid_stat import declared

RULES = Path(__file__).parents[2] / "config/prometheus/qpidd.rules.yml"
ALERTS = Path(__file__).with_name("alerts.yml")
DASHBOARD = Path(__file__).parents[2] / "config/grafana/qpidd.json"
PAGE = Path(__file__).parents[2] / "docs/reference/qpid-metrics.md"

QUERY = {
    "status": "active",
    "epoch": 7,
    "stalled": {"why": "lost b", "seconds": 1.5, "until": "b is back"},
    "isolated": False,
    "members": [
        {"name": "b", "address": "b:1", "counts": True, "lag": {"positions": 3, "octets": 40, "seconds": 0.5}},
        {"name": "", "address": "c:1", "counts": False, "lag": None},
    ],
}


class Hooks:
    """Of a primary in a cluster."""

    def admit(self, connection, properties):
        return None

    def opened(self, connection):
        return False

    def connection_closed(self, connection):
        pass

    def alarm(self, name, reason):
        pass

    def limited(self, reason):
        pass

    def request(self, method, arguments, reply, user):
        assert method == "ha.query"
        reply({"ok": True, "result": QUERY})
        return True


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in ("QPID_CONFIG", "QPID_PORT", "QPID_INTERFACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with SocketBroker(Hooks()) as found:
        yield found


@pytest.fixture
def scrape(server, capsys):
    """The samples by name and labels."""

    def run(*words):
        assert main(["--once", *words, "-b", server.address]) == 0
        families = text_string_to_metric_families(capsys.readouterr().out)
        samples = [sample for family in families for sample in family.samples]
        return {(sample.name, *sorted(sample.labels.values())): sample.value for sample in samples}

    return run


def test_totals_have_the_names_of_rabbitmq(server, scrape):
    declared(server, "a", b"12", b"3")
    declared(server, "b", b"4")
    server.broker.figures["memory"] = lambda: {"resident": 5, "limit": 6, "segments": 7}
    found = scrape()
    assert found["rabbitmq_queue_messages_ready",] == 3 and found["rabbitmq_queue_messages_ready_bytes",] == 4
    assert (found["rabbitmq_queues",], found["rabbitmq_connections",], found["qpidd_up",]) == (2, 3, 1)
    assert found["rabbitmq_global_messages_received_total", "amqp091"] == 3
    assert found["rabbitmq_process_resident_memory_bytes",] == 5 and found["rabbitmq_resident_memory_limit_bytes",] == 6
    assert not any("detailed" in name for name, *_ in found)


def test_turns_are_a_histogram(server, scrape):
    server.broker.figures["turns"] = lambda: {"took": [1] * 32, "seconds": 2.5}
    found = scrape()
    buckets = {float(key[1]): value for key, value in found.items() if key[0] == "qpidd_turn_seconds_bucket"}
    assert buckets == {**{2**bits / 1e6: bits + 1 for bits in range(6, 21)}, float("inf"): 32}
    assert found["qpidd_turn_seconds_sum",] == 2.5 and found["qpidd_turn_seconds_count",] == 32


def test_what_is_in_the_journal_and_not_yet(server, scrape):
    assert not [name for name, *_ in scrape() if "journal" in name], "there is none"
    server.broker.figures["journal"] = lambda: {"octets": 9, "waiting": 3, "behind": 2, "full": True}
    names = ("bytes", "waiting_bytes", "behind_operations", "full")
    assert [scrape()[f"qpidd_journal_{name}",] for name in names] == [9, 3, 2, 1]


def test_the_longest_queues_are_named_and_no_more(server, scrape):
    for number in range(1, 5):
        declared(server, f"q{number}", *[b""] * number)
    found = scrape("--queues", "2")
    named = {labels[1]: value for (name, *labels), value in found.items() if name == "rabbitmq_detailed_queue_messages"}
    assert named == {"q4": 4, "q3": 3}


def test_the_cluster_as_its_primary_sees_it(server, scrape):
    server.broker.limit("disk", "disk: full")
    found = scrape()
    assert [state for state in metric_views.STATES if found["qpidd_ha_state", state]] == ["active"]
    assert (found["qpidd_ha_epoch",], found["qpidd_ha_stalled_seconds",], found["qpidd_ha_isolated",]) == (7, 1.5, 0)
    assert (found["qpidd_ha_backup_in_sync", "b"], found["qpidd_ha_backup_in_sync", "c:1"]) == (1, 0)
    assert found["qpidd_ha_backup_lag_seconds", "b"] == 0.5 and ("qpidd_ha_backup_lag_seconds", "c:1") not in found
    assert found["qpidd_alarm", "disk"] == 1 and found["qpidd_publishers_blocked",] == 1


def test_what_a_real_primary_says_is_understood():
    world = World("abc")
    world.cluster()
    answers = []
    world["a"].requests.request("ha.query", {}, answers.append, "guest")
    families = {family.name: family for family in metric_views.of_cluster(answers[0]["result"])}
    backups = {sample.labels["backup"]: sample.value for sample in families["qpidd_ha_backup_in_sync"].samples}
    assert backups == {"b": 1, "c": 1}
    told = [member["lag"] for member in answers[0]["result"]["members"]]
    for unit, field in (("operations", "positions"), ("bytes", "octets"), ("seconds", "seconds")):
        shown = [sample.value for sample in families[f"qpidd_ha_backup_lag_{unit}"].samples]
        assert shown == [lag[field] for lag in told]


def test_a_backup_does_not_know_what_is_safe(server, scrape):
    server.broker.passive = True
    assert not {("qpidd_unsafe_operations",), ("qpidd_shovels", "running")} & scrape().keys()


def test_shovels_are_counted_by_their_state(server, scrape):
    value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://h"}
    server.broker.vhost.configuration.settings.put(Key("shovel", "/", "s"), value)
    found = scrape()
    assert metric_views.SHOVEL_STATES == STATES
    assert [found["qpidd_shovels", state] for state in STATES] == [0, 0, 1], "no qpid-shovel reports"


def test_states_are_those_of_brokers():
    assert tuple(state.value for state in State) == metric_views.STATES


def test_a_broker_outside_a_cluster_has_no_state(server, scrape):
    server.broker.hooks = None
    assert not any(name.startswith("qpidd_ha") for name, *_ in scrape())


def test_a_broker_that_does_not_answer_is_down(capsys):
    with SocketBroker() as gone:
        address = gone.address
    assert main(["--once", "-b", address]) == 0
    assert "qpidd_up 0.0" in capsys.readouterr().out


def test_scrapes_do_not_pile_up_behind_one_that_hangs(server, caplog):
    target = target_of(make_parser().parse_args(["-b", server.address]), None)
    scrape = Scrape(target, 0.05, 0)
    with scrape._one:
        (found,) = scrape.collect()
    assert [sample.value for sample in found.samples] == [0] and "an earlier scrape" in caplog.text
    scrape._seconds = 60.0
    assert len(list(scrape.collect())) > 10, "the next one asks again"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--listen", "15692"], "argument --listen: found '15692', wanted HOST:PORT"),
        (["--queues", "-1"], "argument --queues: found -1"),
        (["--listen-key", "k"], "belong together"),
        (["here"], "unrecognized arguments: here"),
    ],
)
def test_bad_arguments_are_named(capsys, words, text):
    assert main(words) == 1
    assert text in capsys.readouterr().out


def test_rules_and_page_name_only_metrics_that_there_are(server, scrape):
    server.broker.figures["memory"] = lambda: {"resident": 5, "limit": 6, "segments": 7}
    server.broker.figures["turns"] = lambda: {"took": [1] * 32, "seconds": 2.5}
    server.broker.figures["journal"] = lambda: {"octets": 9, "waiting": 3, "behind": 2, "full": True}
    server.broker.limit("disk", "disk: full")
    declared(server, "q")
    there = {name for name, *_ in scrape("--queues", "1")}
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert all(set(re.findall(r"qpidd_\w+", rule["expr"])) <= there for rule in rules) and len(rules) == 10
    drawn = {name for expr in drawn_by_the_dashboard() for name in re.findall(r"(?:qpidd|rabbitmq)_\w+", expr)}
    assert drawn <= there and len(drawn) > 15
    page = set(re.findall(r"`((?:qpidd|rabbitmq)_\w+?)(?:\{\w+\})?`", PAGE.read_text()))
    assert page <= there and len(page) > 15


def drawn_by_the_dashboard() -> list[str]:
    """The expressions, with a cluster filled in."""
    board = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    found += [each["expr"] for each in board["annotations"]["list"]]
    return [expr.replace("$job", "orders") for expr in found]


@needs("promtool")
def test_expressions_of_the_dashboard_are_valid(tmp_path):
    rules = [{"record": f"drawn:{number}", "expr": expr} for number, expr in enumerate(drawn_by_the_dashboard())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "drawn", "rules": rules}]}))
    found = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert found.returncode == 0 and f"{len(rules)} rules found" in found.stdout, found.stdout + found.stderr


def test_panels_of_the_dashboard_do_not_lie_on_each_other():
    board = json.loads(DASHBOARD.read_text())
    places = [panel["gridPos"] for panel in board["panels"]]
    squares = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(squares) == len(set(squares)) and max(x for x, _ in squares) == 23
    assert len({panel["id"] for panel in board["panels"]}) == len(places)


@needs("promtool")
def test_alerts_of_what_a_cluster_goes_through():
    found = subprocess.run(["promtool", "test", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_each_alert_has_a_case():
    alerts = {rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
    cases = yaml.safe_load(ALERTS.read_text())["tests"]
    raised = {test["alertname"] for case in cases for test in case["alert_rule_test"] if test.get("exp_alerts")}
    assert raised == alerts


def test_a_broker_outside_of_a_cluster_has_a_state_and_no_more() -> None:
    hooks = Standalone("lone", "id")
    (reply,) = asked(hooks, "ha.query")
    (state,) = metric_views.of_cluster(reply["result"])
    assert {sample.labels["state"]: sample.value for sample in state.samples if sample.value} == {"standalone": 1}


def asked(hooks: Standalone, method: str) -> list[Any]:
    found: list[Any] = []
    assert hooks.request(method, {}, found.append, "guest")
    return found
