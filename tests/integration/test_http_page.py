"""The page of `qpid-http`, in a real browser, in front of a cluster."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from qpidd_py.http.page import FILES
from tests.integration.test_http_api import Api, serving
from tests.support.browser import Page, opened
from tests.support.members import Members
from tests.support.system import needs

browser = needs("chromium")
GUEST = pika.PlainCredentials("guest", "guest")
NAME = "<b>orders</b>"
"""Of a queue: names are text."""
SPANS = "[...lanes.rows[0].querySelectorAll('rect:not(.mark)')].map(span => span.getAttribute('class'))"
"""The states of the broker that is asked, as its timeline shows them."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Members, int]]:
    folder = tmp_path_factory.mktemp("page")
    members = Members(folder)
    try:
        members.up()
        with serving(members.brokers["a"], folder) as port:
            yield members, port
    finally:
        members.close()


def log_in(page: Page, password: str = "guest", user: str = "guest") -> None:
    page.until("document.readyState === 'complete' && !!document.getElementById('login').onsubmit")
    page.run(f"user.value = '{user}'; document.getElementById('password').value = {json.dumps(password)}; 0")
    assert page.run("document.querySelector('#login button').click(); state.innerText") == "Loading…"


def test_the_page_needs_nothing_from_elsewhere(cluster: tuple[Members, int]) -> None:
    for path in FILES:
        with urllib.request.urlopen(f"http://127.0.0.1:{cluster[1]}{path}", timeout=60) as answer:
            text, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "http://" not in text and "https://" not in text and " style=" not in text and "innerHTML" not in text


def test_a_script_is_not_asked_for_a_password_by_its_browser(cluster: tuple[Members, int]) -> None:
    url = f"http://127.0.0.1:{cluster[1]}/api/overview"
    for headers, asked in (({}, True), ({"X-Requested-With": "page"}, False)):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)
        assert error.value.code == 401 and ("WWW-Authenticate" in error.value.headers) is asked


@pytest.mark.parametrize("body", [{"to": 5}, {"to": ["b"]}])
def test_a_switch_over_to_nonsense_is_refused(cluster: tuple[Members, int], body: object) -> None:
    code, found = Api(cluster[1]).request("POST", "/ha/relocate", body)
    assert code == 400 and "wanted the name or address" in found["reason"]


@browser
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_it_fits(cluster: tuple[Members, int], tmp_path: Path, width: int) -> None:
    with opened(f"http://127.0.0.1:{cluster[1]}/", tmp_path, width) as page:
        log_in(page)
        page.until("members.children.length === 2 && lanes.children.length === 3")
        assert page.run("document.documentElement.scrollWidth") <= width
        heights = page.run("[...lanes.querySelectorAll('svg')].map(each => each.getBoundingClientRect().height)")
        assert all(10 < each < 60 for each in heights) and page.run("getComputedStyle(blank).display") == "none"


@browser
def test_what_is_not_allowed_is_not_shown(cluster: tuple[Members, int], tmp_path: Path) -> None:
    api = Api(cluster[1])
    for path, body in (
        ("/vhosts/shop", None),
        ("/users/maria", {"password": "secret", "tags": "management"}),
        ("/permissions/shop/maria", {"configure": ".*", "write": ".*", "read": ".*"}),
        ("/queues/shop/hers", {}),
        ("/queues/%2F/others", {}),
    ):
        assert api.request("PUT", path, body)[0] == 201
    login = pika.PlainCredentials("maria", "secret")
    brokers = [(cluster[0].brokers["a"].port, login, "shop"), (cluster[0].brokers["a"].port, GUEST, "/")]
    clients = [
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, vhost, who))
        for port, who, vhost in brokers
    ]
    with opened(f"http://127.0.0.1:{cluster[1]}/", tmp_path) as page:
        log_in(page, "secret", "maria")
        page.until("[...queues.children].map(row => row.children[0].innerText).join() === 'shop/hers'")
        page.until("[...connections.children].map(row => row.children[2].innerText).join() === 'maria'")
        assert page.run("document.querySelectorAll('#connections button').length") == 1
        for section in ("document.getElementById('cluster')", "document.getElementById('h-timeline')"):
            assert page.run(f"{section}.offsetParent === null"), section
        assert "others" not in page.run("document.body.innerText") and page.run("state.innerText") == ""
    for client in clients:
        client.close()
    assert api.request("DELETE", "/vhosts/shop")[0] == api.request("DELETE", "/queues/%2F/others")[0] == 204


@browser
def test_an_administrator_looks_and_switches_over(cluster: tuple[Members, int], tmp_path: Path) -> None:
    members, port = cluster
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", members.brokers["a"].port))
    channel = connection.channel()
    channel.queue_declare(NAME)
    for _ in range(3):
        channel.basic_publish("", NAME, b"m")
    with opened(f"http://127.0.0.1:{port}/", tmp_path) as page:
        log_in(page, "wrong")
        page.until("document.getElementById('error').innerText.startsWith('Wrong user or password')")
        log_in(page)
        page.until("document.getElementById('state').innerText.startsWith('a is the primary (active), epoch 1')")
        assert page.run("[...members.children].map(row => row.children[2].innerText)") == ["ready", "ready"]
        row = page.until("[...queues.children].map(row => [...row.children].map(cell => cell.innerText))[0]")
        assert row[:4] == [NAME, "3", "0", "0"] and page.run("document.querySelectorAll('#queues b').length") == 0
        page.run("window.asked = []; window.confirm = text => { asked.push(text); return true; }; 0")
        page.run("document.querySelector('#queues button').click()")
        page.until("queues.children[0].children[1].innerText === '0'")
        assert page.run("document.querySelector('#queues button') === null"), "an empty queue has nothing to purge"
        page.run("document.getElementById('filter').value = 'none'; document.getElementById('filter').oninput()")
        page.until("place.innerText === 'page 1 of 1, 0 queues'")
        page.run("document.querySelector('#connections button').click()")
        page.until("connections.children.length === 0")
        page.run("[...members.children].find(row => row.children[0].innerText === 'b').querySelector('button').click()")
        page.until(
            f"document.getElementById('state').innerText.includes('the primary is {members.brokers['b'].address}')"
        )
        page.until(f"{SPANS}.includes('is-catchup') && {SPANS}.at(-1) === 'is-ready'")
        page.until("happened.children.length > 5 && happened.innerText !== undefined")
        assert page.run("[...lanes.querySelectorAll('th')].map(head => head.innerText)")[0] == "a"
        asked = page.run("asked")
        assert asked[0] == f"Throw away the 3 ready messages of {NAME}?"
        assert asked[1].startswith("Close the connection ") and asked[2].startswith("Hand over to b?")
        page.run("logout.click()")
        assert page.run("main.hidden && document.getElementById('password').value === ''")
    assert members.tool("status", name="b").strip() == "active"
