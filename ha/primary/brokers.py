"""Changes the cluster's brokers at run time: `ha.member` add, remove, list.  Why that is safe: `membership.py`.

    asked ──allowed──▶ on record, in force ──▶ safe: answered
      └──refused             └──deposed meanwhile: answered with an error; the change may or may not have been made

One change at a time, by an active primary, after the change before it (and the first set of its epoch) is safe.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.model.environment import Json, Reply
from ha.model.local_member import LocalMember
from ha.model.membership import InSync
from ha.model.safety import Safety, fragile, too_few
from ha.model.status import State
from ha.primary.primary import Primary
from ha.role import Role
from qpidd_py.errors import ConfigError, LinkError
from qpidd_py.option_values import address as parse_address


def changed(in_sync: InSync, safety: Safety, action: str, address: str, own: str) -> tuple[str, ...]:
    """The list after this change.  Raises LinkError if the change is not allowed."""
    brokers = safety.voters(in_sync)
    if own not in brokers:
        raise LinkError(f"the primary {own or '(address unknown)'} is not in its own list: {', '.join(brokers)}")
    if action == "add":
        after = brokers if address in brokers else (*brokers, address)
    elif address not in brokers:
        raise LinkError(f"{address} is not a member, expected one of {', '.join(brokers)}")
    elif address == own:
        raise LinkError(f"{address} is the primary: relocate it first")
    else:
        after = tuple(broker for broker in brokers if broker != address)
    if reason := too_few(safety.mode, after):
        raise LinkError(f"{action} {address}: {reason}; add another one first")
    after_set = in_sync.change_brokers(after, address if action == "remove" else "")
    for member in after_set.members:
        if member.address not in after:
            raise LinkError(f"{member} is in sync at {member.address or 'an unknown address'}, which is no member's")
    if not safety.may_confirm(after_set):
        found, needed = len(after_set.ids), safety.majority(after_set)
        raise LinkError(f"of {len(after)} brokers {found} would be in sync, {needed} needed; wait for more to be ready")
    return after


class Brokers:
    """Answers `ha.member`."""

    def __init__(self, local: LocalMember, role: Callable[[], Role]) -> None:
        """`role` returns the present role."""
        self._local = local
        self._role = role

    def request(self, arguments: Json, user: str, reply: Reply) -> None:
        """`action`: list, add or remove; `address`: HOST:PORT.  Raises LinkError."""
        action = str(arguments.get("action", "list"))
        if action == "list":
            reply(self._answer())
        elif action in ("add", "remove"):
            self._change(action, _address(str(arguments.get("address", ""))), reply)
        else:
            raise LinkError(f"action: found {action!r}, expected list, add or remove")

    def _answer(self) -> Json:
        return {"ok": True, "result": {"brokers": list(self._local.cluster.brokers)}}

    def _change(self, action: str, address: str, reply: Reply) -> None:
        local, role = self._local, self._role()
        if not isinstance(role, Primary) or local.state is not State.ACTIVE:
            raise LinkError(f"only an active primary changes the members; {role.refusal_text()}")
        roster = role.roster
        if roster.changing or local.engine.safe < roster.steady:
            raise LinkError("the change before this one is not safe yet; try again")
        brokers = changed(local.persisted.in_sync, local.safety, action, address, local.settings.address)
        if brokers == local.cluster.brokers:
            reply(self._answer())
            return
        gone = [member for member in local.persisted.in_sync.members if member.address not in brokers]
        if local.needs([member.id for member in gone]):
            what = f"{local.hole}; of the members in sync only {gone[0]} can have them"
            raise LinkError(f"{action} {address}: {what}; relocate the primary first")
        local.env.log("notice", f"{action} {address}: the members become {', '.join(brokers)}")
        if warning := fragile(local.safety.mode, brokers):
            local.env.log("warning", warning)
        removed = address if action == "remove" else ""
        roster.change_brokers(brokers, removed, lambda: self._when_safe(role, reply))

    def _when_safe(self, role: Primary, reply: Reply) -> None:
        local = self._local
        if role.stopped:
            reply({"ok": False, "error": "this broker is no longer primary; look at the list of the new one"})
        elif local.engine.safe >= role.roster.steady:
            reply(self._answer())
        else:
            local.env.after(local.settings.heartbeat / 4, lambda: self._when_safe(role, reply))


def _address(text: str) -> str:
    try:
        return str(parse_address(text))
    except (ConfigError, ValueError) as error:
        raise LinkError(f"address: found {text!r}, expected HOST:PORT ({error})") from error
