"""The text of an ACL file: the examples of Qpid's book, and what is wrong in a line."""

from typing import Any

import pytest

from qpidd_py.security.acl.reader import AclError, read_acl
from qpidd_py.security.acl.rule_set import RuleSet
from qpidd_py.security.acl.rules import Lookup, identity, substitutes
from qpidd_py.security.acl.topics import Pattern
from qpidd_py.security.acl.words import PAIRS
from tests.support.documents import ROOT, blocks


def read(text: str) -> RuleSet:
    return read_acl(text, "x.acl")


def may(rules: RuleSet, user: str, what: str, key: str | None = None, **properties: str | int) -> bool:
    """`what`: action, object and a name."""
    action, of, *name = what.split()
    known = {"name": name[0]} if name else {}
    if key is not None:
        known["routingkey"] = key
    lookup = Lookup((action, of), {**known, **properties})
    assert (action, of) in PAIRS
    return rules.verdict(identity(user), substitutes(user), lookup).allowed


def who_may(rules: RuleSet, what: str, *users: str, **properties: str) -> list[str]:
    return [user for user in users if may(rules, user, what, **properties)]


# ---- the book's examples


def test_deny_mode_is_the_default() -> None:
    for text in ("acl allow rajith@QPID all all\nacl deny all all\n", "acl allow rajith@QPID all all"):
        rules = read(text)
        assert who_may(rules, "create queue q", "rajith@QPID", "rajith", "kim@QPID") == ["rajith@QPID", "rajith"]
        assert not rules.default.allows


def test_allow_mode() -> None:
    rules = read("acl deny-log bob@QPID create queue\nacl allow all all")
    assert who_may(rules, "create queue q", "bob@QPID", "kim") == ["kim"]
    assert may(rules, "bob", "consume queue q")


def test_rights_for_specific_actions() -> None:
    rules = read(
        "acl allow carlt@QPID create exchange name=carl.*\nacl allow fred@QPID create all\n"
        "acl allow all consume queue\nacl allow all bind exchange\nacl deny all all\n"
    )
    assert may(rules, "carlt", "create exchange carl.x") and not may(rules, "carlt", "create exchange kim.x")
    assert may(rules, "fred", "create link") and not may(rules, "fred", "delete queue q")
    assert may(rules, "kim", "consume queue q") and may(rules, "kim", "bind exchange x", "k", queuename="q")


GROUPS = """
group admin ted@QPID martin@QPID
group user-consume martin@QPID ted@QPID
group group2 kim@QPID user-consume rob@QPID
group publisher group2 \\
tom@QPID andrew@QPID debbie@QPID

acl allow carlt@QPID create exchange name=carl.*
acl allow rob@QPID create queue
acl allow guest@QPID bind exchange name=amq.topic routingkey=stocks.rht.#
acl allow user-consume create queue name=tmp.*

acl allow publisher publish all {}
acl allow publisher create queue name=RequestQueue
acl allow consumer consume queue durable=true
acl allow fred@QPID create all
acl allow bob@QPID all queue
acl allow admin all
acl allow all consume queue
acl allow all bind exchange
acl deny all all
"""


def test_groups_within_groups() -> None:
    with pytest.raises(AclError, match=r"line 13: .* publish exchange has no durable, it has name, routingkey"):
        read(GROUPS.format("durable=false"))
    rules = read(GROUPS.format(""))
    users = ("ted", "martin", "kim", "rob", "tom", "debbie", "carlt", "fred", "bob")
    assert who_may(rules, "publish exchange x", *users) == ["ted", "martin", "kim", "rob", "tom", "debbie"]
    assert who_may(rules, "create queue tmp.1", *users) == ["ted", "martin", "rob", "fred", "bob"]
    assert who_may(rules, "create queue RequestQueue", *users) == [user for user in users if user != "carlt"]
    assert who_may(rules, "access method", *users, name="promote", schemaclass="ha") == ["ted", "martin"]
    assert (rules.groups, rules.count) == (4, 13)


def test_the_first_rule_that_matches_decides() -> None:
    rules = read(
        "group users alice@QPID bob@QPID charlie@QPID\nacl deny  charlie@QPID create queue\n"
        "acl allow users        create queue\nacl deny all all\n"
    )
    assert who_may(rules, "create queue q", "alice", "bob", "charlie") == ["alice", "bob"]
    rules = read(
        "acl deny bob create exchange name=test durable=true\nacl deny bob create exchange name=myEx type=direct\n"
        "acl allow all all"
    )
    assert may(rules, "bob", "create exchange test", durable="false", type="direct")
    assert not may(rules, "bob", "create exchange myEx", durable="true", type="direct")
    with pytest.raises(AclError, match="passive: a passive declaration is `access`"):
        read("acl deny bob create exchange name=test durable=true passive=true")


def test_methods_of_management() -> None:
    rules = read(
        "group allUsers guest@QPID\nacl deny-log allUsers create link\n"
        "acl deny-log allUsers access method name=connect\n"
        "acl deny-log allUsers access method name=echo\nacl allow all all"
    )
    assert who_may(rules, "create link", "guest", "kim") == ["kim"]
    assert who_may(rules, "access method", "guest", "kim", name="echo") == ["kim"]
    assert who_may(rules, "access method", "guest", name="promote") == ["guest"]


PRIVATE = """
acl allow all create  queue    name=${user}-work alternate=${user}-work2
acl deny  all create  queue    name=${user}-work alternate=*
acl allow all create  queue    name=${user}-work
acl deny  all create  queue    name=${user}-work2 alternate=*
acl allow all create  queue    name=${user}-work2
acl allow all bind   exchange name=${user}-work routingkey=${user} queuename=${user}-work
acl allow all publish exchange name=${user}-work routingkey=${user}
acl allow all publish exchange name=all.${userdomain}.${domain}
acl deny all all
"""


def test_names_of_users_in_values() -> None:
    rules = read(PRIVATE)
    bob = "bob.user@QPID.COM"
    assert may(rules, bob, "create queue bob_user-work", alternate="bob_user-work2")
    assert may(rules, bob, "create queue bob_user-work") and not may(rules, "kim", "create queue bob_user-work")
    assert not may(rules, bob, "create queue bob_user-work", alternate="other")
    assert may(rules, bob, "bind exchange bob_user-work", "bob_user", queuename="bob_user-work")
    assert not may(rules, bob, "bind exchange bob_user-work", "kim", queuename="bob_user-work")
    assert may(rules, bob, "publish exchange bob_user-work", "bob_user")
    assert may(rules, bob, "publish exchange all.bob_user_QPID_COM.QPID_COM", "k")
    assert may(rules, "kim", "publish exchange all.kim_QPID.QPID", "k"), "the realm of users that have none"


@pytest.mark.parametrize("user", ["*", "#", "${domain}", "*@*", "a*"])
def test_a_user_whose_name_looks_like_a_wildcard_is_none(user: str) -> None:
    rules = read(
        "acl allow all publish exchange name=${user} routingkey=${user}\nacl allow all purge queue name=${user}"
    )
    name = substitutes(user)["${user}"]
    assert may(rules, user, f"publish exchange {name}", name)
    for other in ("kim", "a", "QPID", "abc"):
        assert not may(rules, user, f"publish exchange {name}", other) and not may(rules, user, f"purge queue {other}")


def test_routing_keys_are_matched_as_by_a_topic_exchange() -> None:
    rules = read("acl allow-log uHash1@COMPANY publish exchange name=X routingkey=a.#.b\nacl deny all all")
    results = {key: may(rules, "uHash1@COMPANY", "publish exchange X", key) for key in ("a.b", "a.x.b", "a.x.y.zz.b")}
    assert all(results.values())
    assert not any(may(rules, "uHash1@COMPANY", "publish exchange X", key) for key in ("a.b.", "q.x.b"))


def test_a_binding_with_wildcards_is_no_way_round_a_rule() -> None:
    rules = read(
        "acl deny bob bind exchange name=t routingkey=secret.#\nacl allow bob bind exchange name=t\n"
        "acl allow kim bind exchange name=t routingkey=news.*\n"
    )
    for key, bob, kim in (
        ("secret.x", False, False),
        ("#", False, False),
        ("*.x", False, False),
        ("news.x", True, True),
        ("news.*", True, True),
        ("news.#", True, False),
    ):
        found = [may(rules, user, "bind exchange t", Pattern(key)) for user in ("bob", "kim")]
        assert found == [bob, kim], key


def test_limits_of_queues() -> None:
    rules = read(
        "acl allow bob create queue name=q1 queuemaxsizelowerlimit=50 queuemaxsizeupperlimit=100 "
        "queuemaxcountupperlimit=0\nacl allow bob create queue"
    )
    size: Any = {"queuemaxcount": 1 << 64}
    assert [may(rules, "bob", "create queue q1", queuemaxsize=n, **size) for n in (49, 50, 100, 101, 1 << 64)] == [
        *(False, True, True, False, False)
    ], "what is beyond is denied, and the next rule is not looked at"
    assert may(rules, "bob", "create queue q2", queuemaxsize=5, **size)


QUOTAS = """
group admin ted@QPID martin@QPID
group blacklist usera@qpid userb@qpid
quota connections 10 admin
quota connections  5 all
quota connections  0 blacklist
quota queues      50 admin
quota queues       1 test@qpid
"""


def test_quotas() -> None:
    rules = read(QUOTAS)
    found = {user: rules.quota("connections", identity(user)) for user in ("ted", "usera@qpid", "kim")}
    assert {user: quota.most for user, quota in found.items() if quota} == {"ted": 10, "usera@qpid": 0, "kim": 5}
    assert rules.quota("queues", "kim@QPID") is None
    last = read("quota queues 3 bob kim\nquota queues 4 bob\n").quota("queues", "bob@QPID")
    assert last == (4, 2)


HOSTS = """
group admins alice bob chuck
group Company1 c1_usera c1_userb
acl allow admins   create connection host=localhost
acl allow admins   create connection host=10.0.0.0,10.255.255.255
acl allow admins   create connection host=192.168.0.0,192.168.255.255
acl allow admins   create connection host=[fc00::],[fc00::ff]
acl allow Company1 create connection host={}
acl deny  all      create connection host=all
"""


def test_hosts() -> None:
    with pytest.raises(AclError, match=r"line 8: found 'company1.com', expected an address.*names are not looked up"):
        read(HOSTS.format("company1.com"))
    rules = read(HOSTS.format("203.0.113.9"))
    for user, peer, allowed in (
        ("alice", "127.0.0.1:5", True),
        ("alice", "[::1]:5", True),
        ("alice", "10.0.0.0:5", True),
        ("alice", "11.0.0.0:5", False),
        ("alice", "[fc00::99]:5", True),
        ("alice", "[fc00::fff]:5", False),
        ("alice", "[::ffff:10.1.1.1]:5", True),
        ("c1_usera", "203.0.113.9:5", True),
        ("c1_usera", "10.0.0.1:5", False),
        ("kim", "127.0.0.1:5", False),
        ("kim", "not TCP/IP", True),
    ):
        assert rules.enters(identity(user), peer).allowed is allowed, (user, peer)
    assert rules.enters_from_somewhere("alice@QPID") and not rules.enters_from_somewhere("kim@QPID")
    rules = read(
        "acl deny all create connection host=192.0.2.1\nacl allow bob create connection host=all\nacl allow all all"
    )
    assert not rules.enters("bob@QPID", "192.0.2.1:5").allowed, "rules for all come first"
    assert rules.enters("kim@QPID", "192.0.2.2:5").allowed, "no rule denies it"


# ---- what is wrong

WRONG = {
    "acl": "expected acl PERMISSION USER ACTION",
    "acl permit bob all": "found 'permit', expected allow, allow-log, deny, deny-log",
    "acl allow bob creat queue": "found 'creat', expected one of access, bind",
    "acl allow bob create queueue": "found 'queueue', expected one of connection, exchange",
    "acl allow bob create queue nmae=q": "found 'nmae', expected one of alternate",
    "acl allow bob create queue name": "found 'name', expected PROPERTY=VALUE",
    "acl allow bob create queue name=": "found 'name=', expected PROPERTY=VALUE",
    "acl allow bob create queue name=a name=b": "expected name once",
    "acl allow bob create queue durable=yes": "found 'yes', expected durable of true, false",
    "acl allow bob create queue policytype=flow_to_disk": "expected policytype of reject, ring, self-destruct",
    "acl allow bob access query schemaclass=habroker": "expected schemaclass of acl, binding",
    "acl allow bob create queue name=${usr}": "expected ${user}, ${domain} or ${userdomain}",
    "acl allow bob publish exchange routingkey=a.b*": "as whole words only",
    "acl allow all delete broker": "can have no effect: broker: no request is about",
    "acl allow all create queue exchangename=xyz": "create queue has no exchangename, it has alternate, autodelete",
    "acl allow all access exchange alternate=abc queuename=xyz": "access exchange has no queuename",
    "acl allow all purge exchange": "that is not done to this object",
    "acl allow a@qpid all all host=1": "expected acl PERMISSION USER create connection host=ADDRESS",
    "acl allow all redirect queue": "queues cannot be redirected here",
    "acl allow all create queue paging=true": "paging: every queue leaves memory",
    "acl allow all create queue filemaxsizeupperlimit=1": "a queue has no files of its own",
    "acl allow all access method schemapackage=x": "requests are told apart by name and schemaclass",
    "acl allow bob create queue queuemaxsizelowerlimit=-1": "'-1', expected a number from 0 to 9223372036854775807",
    "acl allow bob create queue queuemaxcountupperlimit=9223372036854775808": "expected a number from 0 to",
    "acl deny bob create queue queuemaxcountupperlimit=1": "of a rule that denies",
    "acl allow bob bind exchange queuemaxcountupperlimit=0": "bind exchange has no queuemaxcountupperlimit",
    "acl deny all all all\nacl allow bob all": "line 2: 'acl allow bob all' can have no effect: line 1 decides all",
    "acl allow all all\nacl deny bob all": "line 2: 'acl deny bob all' can have no effect: line 1 decides all",
    "acl allow all create connection": "expected acl PERMISSION USER create connection host=ADDRESS",
    "acl allow all create connection host=10.0.0.2,10.0.0.1": "the lower one first",
    "acl allow all create connection host=10.0.0.2,::1": "both of one kind",
    "acl deny all create connection host=all\nacl deny all create connection host=all": "line 1 says it for all",
    "acl allow b$b all": "expected a user or a group",
    "group g": "expected group NAME USER...",
    "group g@h a": "expected a name of a group",
    "group all a": "expected a name of a group",
    "group g a\ngroup g b": "line 2: found 'g', expected another name",
    "acl allow g all\ngroup g a": "line 2: found 'g', expected a group before its first use, in line 1",
    "group g a \\\n\\\nb": "line 2: found '\\\\', expected more names of the group",
    "group g a \\": "found the end of the file",
    "group g a \\\n# c\nb": "expected more names of the group",
    "group \\\n g a \\ \n": "as the last sign of a line only",
    "acl allow bob \\\nall": "only lines of groups go on",
    "acl allow bob create queue name=$\\{user}": "as the last sign of a line only",
    "quota": "expected quota connections|queues NUMBER USER...",
    "quota channels 1 all": "found 'channels', expected connections or queues",
    "quota queues 65531 all": "expected a number from 0 to 65530",
    "quota queues ten all": "found 'ten', expected a number",
    "allow all all": "found 'allow', expected group, acl, quota or #",
    "acl allow bob create queue name=caf\u00e9": "expected ASCII characters only",
    "acl allow bob create queue name=a\0b": "expected ASCII characters only",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_with_its_line(text: str) -> None:
    with pytest.raises(AclError) as caught:
        read(text)
    assert str(caught.value).startswith("x.acl line ") and WRONG[text] in str(caught.value)


def test_lines_that_say_nothing() -> None:
    rules = read("# a comment\r\n\n   \t\n  # another\nacl   allow\tbob   all  \r\n")
    assert rules.count == 1 and may(rules, "bob", "purge queue q")
    assert read("").count == 0 and not may(read(""), "bob", "purge queue q")


def test_the_example_of_the_page() -> None:
    (text,) = [block.text for block in blocks(ROOT / "docs/how-to/acl-file.md") if "group staff" in block.text]
    rules = read(text)
    assert may(rules, "bob", "create queue bob-1", queuemaxsize=10**8, queuemaxcount=1)
    assert not may(rules, "bob", "create queue bob-1", queuemaxsize=10**8 + 1, queuemaxcount=1)
    assert not may(rules, "bob", "create queue bob-1", alternate="x", queuemaxsize=1, queuemaxcount=1)
    assert may(rules, "press-3", "publish exchange news", "press.1")
    assert not may(rules, "bob", "access method", name="close")
    assert [rules.enters(identity("anna"), peer).allowed for peer in ("10.1.2.3:1", "192.0.2.1:1")] == [True, False]
    assert rules.summary(identity("ha")).everything and not rules.summary(identity("bob")).everything
    assert rules.default.line == 20
