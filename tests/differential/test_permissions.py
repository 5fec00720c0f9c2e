"""What users may do: each method with each of some permissions, in RabbitMQ's words and ours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pamqp import commands

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from qpidd_py.security.users import hash_password
from tests.differential.conversation import OPTIONS
from tests.interop.raw import RawClient, method, publish
from tests.support.rabbit import rabbit_cluster
from tests.support.three_ways import alone

Basic, Channel, Confirm = commands.Basic, commands.Channel, commands.Confirm
Exchange, Queue = commands.Exchange, commands.Queue
ALL = ".*"
USERS = [  # configure, write, read
    ("", "", ""),
    (ALL, ALL, ALL),
    ("^q$", "", ""),
    ("", "^q$", ""),
    ("", "", "^q$"),
    ("^q$", "", "^q$"),
    ("^q$", "^x$", "^q$"),
    ("", "^q$", "^x$"),
    ("", "^q$", "^t$"),
    ("^e$", "", "^e$"),
    ("^e$", "^x$", "^e$"),
    ("", "^d$", ""),
    ("", "^d$", "^s$"),
    (r"^amq\.gen", "", ""),
    ("", r"^amq\.default$", ""),
    ("q", "default", "x"),
    ("", "^t$", "^t$"),
]
TOPICS = ("^a", "^b")
"""Patterns of each user for routing keys of `t`: write, read."""


def steps() -> list[tuple[str, bytes]]:
    """Each of them leaves the objects that the later ones need."""
    letters: Any = {"x-dead-letter-exchange": "x"}
    alternate: Any = {"alternate-exchange": "x"}
    bind: Any = {"queue": "q", "exchange": "x", "routing_key": "k"}
    topic: Any = {"queue": "q", "exchange": "t"}
    link: Any = {"source": "s", "destination": "d", "routing_key": "k"}
    made: list[Any] = [
        Queue.Declare(queue="q"),
        Queue.Declare(queue="n", arguments=letters),
        Queue.Declare(queue="q", arguments=letters),
        Queue.Declare(queue=""),
        Queue.Declare(queue="q", passive=True),
        Queue.Declare(queue="missing", passive=True),
        Queue.Bind(**bind),
        Queue.Unbind(**bind),
        Queue.Bind(**topic, routing_key="b.1"),
        Queue.Bind(**topic, routing_key="a.1"),
        Queue.Unbind(**topic, routing_key="c"),
        Queue.Purge(queue="q"),
        Queue.Purge(queue="missing"),
        Basic.Get(queue="q"),
        Basic.Get(queue="missing"),
        Basic.Consume(queue="q", consumer_tag="c"),
        Exchange.Declare(exchange="e", exchange_type="fanout"),
        Exchange.Delete(exchange="e"),
        Exchange.Declare(exchange="e", exchange_type="fanout", arguments=alternate),
        Exchange.Declare(exchange="x", passive=True),
        Exchange.Delete(exchange="e"),
        Exchange.Bind(**link),
        Exchange.Unbind(**link),
        Queue.Delete(queue="q"),
    ]
    found = [(f"{each.name} {dict(each)}", method(1, each)) for each in made]
    for exchange, key in (("", "q"), ("x", "k"), ("t", "a.1"), ("t", "b.1"), ("missing", "k")):
        found.append((f"publish {exchange!r} {key}", publish(b"m", key, exchange=exchange)))
    return found


def answers(port: int, number: int) -> list[str]:
    """What a user is told, step by step."""
    owner = RawClient(port).open(**OPTIONS)
    for each in ("x", "t", "s", "d"):
        kind = {"t": "topic", "x": "direct"}.get(each, "fanout")
        owner.call(1, Exchange.Declare(exchange=each, exchange_type=kind), Exchange.DeclareOk)
    owner.call(1, Queue.Declare(queue="q"), Queue.DeclareOk)
    client = RawClient(port).open(**OPTIONS, response=f"\0user{number}\0secret")
    found = []
    for text, octets in steps():
        client.call(1, Confirm.Select(), Confirm.SelectOk)
        client.send(octets)
        _, answer = client.read()
        if isinstance(answer, Channel.Close):
            client.send(method(1, Channel.CloseOk()))
            client.open_channel(1)
        found.append(f"{text}: {told(answer)}")
        if isinstance(answer, Basic.ConsumeOk):
            client.call(1, Basic.Cancel("c"), Basic.CancelOk)
    client.close()
    for name in ("q", "n"):
        owner.call(1, Queue.Delete(queue=name), Queue.DeleteOk)
    owner.close()
    return found


def told(answer: Any) -> str:
    if isinstance(answer, Channel.Close):
        text = answer.reply_text
        if "amq.gen-" in text:  # whose name is chosen before it is judged
            text = text[: text.index("amq.gen-")]
        return f"{answer.reply_code} {text.partition(': received')[0]}"
    return str(answer.name)


def test_each_method_with_each_permission() -> None:
    with rabbit_cluster() as rabbit:
        expressions = []
        for number, patterns in enumerate(USERS):
            name = f'<<"user{number}">>'
            three = ", ".join(f'<<"{pattern}">>'.replace("\\", "\\\\") for pattern in patterns)
            topics = ", ".join(f'<<"{pattern}">>' for pattern in TOPICS)
            expressions += [
                f'rabbit_auth_backend_internal:add_user({name}, <<"secret">>, <<"test">>)',
                f'rabbit_auth_backend_internal:set_permissions({name}, <<"/">>, {three}, <<"test">>)',
                f'rabbit_auth_backend_internal:set_topic_permissions({name}, <<"/">>, <<"t">>, {topics}, <<"test">>)',
            ]
        rabbit.evaluate(", ".join(expressions) + ".")
        theirs = {number: answers(rabbit.ports[0], number) for number in range(len(USERS))}
    ours = ours_of()
    pairs = [pair for number in theirs for pair in zip(ours[number], theirs[number], strict=True)]
    assert len(pairs) == len(USERS) * len(steps())
    different = [f"ours    {pair[0]}\ntheirs  {pair[1]}" for pair in pairs if pair[0] != pair[1]]
    assert not different, "\n".join(different)


def ours_of() -> dict[int, list[str]]:
    with tempfile.TemporaryDirectory() as folder, alone(Path(folder)) as broker:
        target = Target("127.0.0.1", broker.port, Login("guest", "guest", ""))
        with ManagementSocket(target, Deadline(60)) as door:
            for number, (configure, write, read) in enumerate(USERS):
                name = f"user{number}"
                door.request("user.put", {"user": name, "hash": hash_password("secret", log2n=4)})
                patterns = {"configure": configure, "write": write, "read": read}
                door.request("permission.set", {"user": name, **patterns})
                door.request("topic.set", {"user": name, "exchange": "t", "write": TOPICS[0], "read": TOPICS[1]})
        return {number: answers(broker.port, number) for number in range(len(USERS))}
