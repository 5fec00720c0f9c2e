"""Fuzzers for addresses and URLs: those of brokers and tools, and those of the client library."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from client_lib.addresses.address import parse as parse_address
from client_lib.errors import AddressError, UrlError
from client_lib.urls.url import parse_urls, primary_in_refusal, read_urls
from ha.model.settings import split_address
from qpidd_py.cli.client_socket import split_host_port
from qpidd_py.option_values import address, addresses
from tests.fuzz.hostile import DEEP, spoiled_text
from tests.fuzz.target import Target, files, judge_words

URLS: Final = (
    "amqp://anna:secret@node1:5672/vhost?heartbeat=10&connection_timeout=5000",
    "amqps://[::1]:5671,node2/%2f",
    "amqp:anna/secret@tcp:node1:5672,ssl:node2:5671,[fe80::1]:5672",
    "amqp://guest:guest@test/?brokerlist='tcp://node1:5672?retries='3'&heartbeat='3';ssl://node2:5671'&failover='roundrobin'",
    "node1:5672,ssl:node2:5671,10.0.0.1,[::1]:5672",
    "queue/subject; {create: always, node: {x-declare: {arguments: {'x-max-length': 5}}}, link: {name: a}}",
    "topic; {link: {x-bindings: [{exchange: 'amq.topic', key: 'a.#'}], reliability: at-least-once, durable: True}}",
)
ALPHABET: Final = "/:@,;?&='\"[]{}%#*.0a\\\0é\ud800 \n"


def _text(rng: Random) -> str:
    return spoiled_text(rng, rng.choice(URLS), ALPHABET).replace(DEEP, rng.choice("[{(") * 5000)


def _judge_client(folder: Path, text: str) -> None:
    for read in (parse_urls, read_urls, parse_address):
        try:
            read(text)
        except (UrlError, AddressError) as error:
            judge_words(type(error).__name__)  # the text shows the user what the user has written
    primary_in_refusal(text)


def _judge_broker(folder: Path, text: str) -> None:
    for read in (lambda given: (address(given),), addresses):
        try:
            found = read(text)
        except ValueError as error:
            judge_words(type(error).__name__)
            continue
        for each in found:
            assert each.host == "ssl" or split_address(str(each)) == (each.host, each.port)
    try:
        host, port = split_host_port(text)
    except ValueError as error:
        judge_words(type(error).__name__)
    else:
        assert host and 0 <= (port or 0) <= 65535


TARGETS: Final = (
    Target("urls-of-clients", _text, files(_judge_client), 100),
    Target("urls-of-brokers", _text, files(_judge_broker), 100),
)
