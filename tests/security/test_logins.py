"""Which login is verified when; the threads are played by the test."""

from hypothesis import given
from hypothesis import strategies as st

from client_lib.retry_policy import RetryPolicy
from qpidd_py.security.logins import AGAIN, DELAYS, FORGET, SWEEP, WORKERS, Logins, PendingLogin, origin
from qpidd_py.security.users import Users

HASHES = {name: f"scrypt$4$8$1${'00' * 16}${name.encode().hex():0>128}" for name in ("anna", "ben", "carl")}


class World:
    """Every user's password is its name."""

    def __init__(self) -> None:
        self.users = Users(HASHES)
        self.logins = Logins(self.users)
        self.now = 0.0
        self.running: list = []
        self.verified: list[tuple[str, str]] = []
        self.answers: dict[int, str | None] = {}
        self.gone: set[int] = set()

    def login(self, number: int, name: str, password: str | None = None, host: str = "10.0.0.1") -> None:
        def decided(user: str | None) -> None:
            assert number not in self.answers, "answered twice"
            self.answers[number] = user

        word = name if password is None else password
        self.logins.submit(f"{host}:{number}", name, word, decided, lambda: number not in self.gone, self.now)

    def start(self) -> None:
        for lane, login in self.logins.run(self.now):
            self.running.append((lane, login))
        assert len(self.running) <= WORKERS

    def finish(self, at: int = 0) -> None:
        lane, login = self.running.pop(at)
        self.verified.append((lane.address, login.name))
        self.logins.finished(lane, login, self.right(login), self.now)

    def right(self, login: PendingLogin) -> bool:
        return login.name in HASHES and login.password == login.name

    def until_idle(self) -> None:
        for _ in range(10_000):
            self.start()
            if self.running:
                self.finish()
            elif not self.logins.pending:
                if self.logins.due is None:
                    return
                self.now = max(self.now, self.logins.due)
        raise AssertionError("never idle")


def test_a_right_password_is_verified_once() -> None:
    world = World()
    for number in range(100):
        world.login(number, "anna", host=f"10.0.0.{number % 7}")
    world.until_idle()
    assert set(world.answers.values()) == {"anna"} and len(world.answers) == 100
    assert len(world.verified) <= WORKERS, "the others follow from the first"
    world.login(100, "anna")
    assert world.answers[100] == "anna", "at once"


def test_a_storm_of_one_address_lets_others_through() -> None:
    world = World()
    for number in range(50):
        world.login(number, f"nobody{number}", "guess")
    world.start()
    world.login(50, "anna", host="10.0.0.2")
    for _ in range(WORKERS):
        world.finish()
        world.start()
    assert world.running[-1][1].name == "anna", "the next turn but one at the latest"


def test_users_of_one_address_take_turns() -> None:
    world = World()
    for number in range(20):
        world.login(number, "ben", f"guess {number}")
    world.login(20, "anna")
    world.start()
    assert sorted(login.name for _, login in world.running) == ["anna", "ben"]


def test_a_failure_slows_this_user_from_this_address_only() -> None:
    world = World()
    world.login(0, "anna", "guess")
    world.start()
    world.finish()
    assert world.answers == {0: None}
    for number, (name, host) in enumerate([("anna", "10.0.0.1"), ("anna", "10.0.0.2"), ("ben", "10.0.0.1")], 1):
        world.login(number, name, "guess again", host)
    world.start()
    started = {(lane.address, login.name) for lane, login in world.running}
    assert started == {("10.0.0.2", "anna"), ("10.0.0.1", "ben")}
    assert world.logins.due == DELAYS[0]


def test_delays_grow_and_are_forgotten() -> None:
    world = World()
    for number in range(8):
        world.login(number, "anna", f"guess {number}")
    world.until_idle()
    assert world.now == sum(DELAYS) + 4 * DELAYS[-1]
    world.now += FORGET
    world.login(8, "anna", "guess 8")
    world.start()
    assert world.running


def test_known_passwords_are_not_slowed_by_guesses() -> None:
    world = World()
    world.login(0, "anna")
    world.until_idle()
    world.login(1, "anna", "guess")
    world.until_idle()
    world.login(2, "anna")
    assert world.answers[2] == "anna"


def test_the_same_wrong_password_costs_one_verification() -> None:
    world = World()
    for number in range(5):
        world.login(number, "anna", "guess")
    world.until_idle()
    assert world.answers == dict.fromkeys(range(5)) and len(world.verified) == 1
    world.logins.users_changed()
    world.now += FORGET
    world.login(5, "anna", "guess")
    world.until_idle()
    assert len(world.verified) == 2, "it may be right since the file has changed"


def test_every_answer_comes_before_a_client_gives_up() -> None:
    """A client that tries again and again, with another wrong password each time or with the same one: it is refused in
    less time than our library waits, however often that was."""
    patience = RetryPolicy().connect_timeout
    world = World()
    for number in range(20):
        world.login(number, "anna", f"guess {number}" if number % 2 else "old")
        asked = world.now
        world.until_idle()
        assert world.answers[number] is None and world.now - asked < 0.75 * patience, number


def test_a_client_with_an_old_password_delays_nobody() -> None:
    """It tries again for ever, from the address of a client that has the new one."""
    world = World()
    for number in range(20):
        world.login(number, "anna", "old")
        world.until_idle()
        world.now += 2
    asked = world.now
    world.login(20, "anna", "old")
    world.login(21, "anna")
    world.until_idle()
    assert world.answers[20] is None and world.answers[21] == "anna" and world.now - asked == AGAIN
    assert world.verified == [("10.0.0.1", "anna")] * 2


def test_a_password_that_becomes_right_while_its_refusal_waits_is_verified() -> None:
    world = World()
    world.login(0, "anna", "later")
    world.until_idle()
    world.now += FORGET
    world.login(1, "anna", "later")
    world.logins.users_changed()
    world.right = lambda login: login.password == "later"  # type: ignore[method-assign]
    world.until_idle()
    assert world.answers == {0: None, 1: "anna"}


def test_a_wrong_password_of_an_added_user_takes_the_same_way() -> None:
    """Else the time of the answer would tell that the name exists."""
    world = World()
    world.users.add("ha", "secret")
    world.login(0, "ha", "guess")
    world.login(1, "nobody", "guess")
    world.start()
    assert len(world.running) == 2 and not world.answers


def test_who_has_gone_is_not_verified() -> None:
    world = World()
    for number in range(4):
        world.login(number, f"nobody{number}", "guess")
    world.gone = {0, 1, 2}
    world.until_idle()
    assert world.answers == {3: None} and len(world.verified) == 1


def test_logins_of_those_who_have_gone_do_not_pile_up() -> None:
    """A peer that sends a login under a new name and leaves, again and again, while verifications take their time."""
    world, most = World(), 0
    for number in range(200):
        world.login(number, f"patient{number}", "guess")
    for number in range(200, 20_000):
        world.login(number, f"nobody{number}", "x" * 1000)
        world.gone.add(number)
        if number % 500 == 0:
            world.start()
            most = max(most, len(world.logins), len(world.logins._lanes))
    assert most <= 2 * SWEEP, most
    world.until_idle()
    assert sorted(world.answers) == [*range(200)] and not world.logins._lanes


def test_a_hash_that_changes_during_the_verification_is_verified_anew() -> None:
    world = World()
    world.login(0, "anna")
    world.start()
    world.users.replace(HASHES | {"anna": HASHES["ben"]})
    world.finish()
    assert world.answers == {}
    world.start()
    assert world.running, "against the new hash"


def test_no_memory_for_a_verification_is_no_wrong_password() -> None:
    world = World()
    world.login(0, "anna")
    world.start()
    lane, login = world.running.pop()
    world.logins.failed(lane, login, world.now)
    assert world.answers == {0: None}
    world.now += FORGET
    world.login(1, "anna")
    world.until_idle()
    assert world.answers[1] == "anna"


def test_addresses() -> None:
    assert origin("192.0.2.7:99") == "192.0.2.7"
    assert origin("[::ffff:192.0.2.7]:99") == "192.0.2.7"
    assert origin("[2001:db8:1:2:3:4:5:6]:99") == origin("[2001:db8:1:2::1]:98") == "2001:db8:1:2::"
    assert origin("[fe80::1%eth0]:99") == "fe80::"
    assert origin("memory") == ""


LOGIN = st.tuples(st.sampled_from(["anna", "ben", "nobody"]), st.sampled_from([None, "a", "b"]), st.integers(1, 3))
STEP = st.one_of(LOGIN, st.sampled_from(["start", "finish", "finish last", "wait", "gone"]))


@given(st.lists(STEP, max_size=60))
def test_everyone_gets_one_right_answer(steps: list) -> None:
    world, asked = World(), {}
    for number, step in enumerate(steps):
        if step in ("start", "wait", "gone"):
            world.now += 0.3 if step == "wait" else 0
            world.gone |= {number - 1} if step == "gone" and number - 1 in asked else set()
            world.start()
        elif step in ("finish", "finish last"):
            if world.running:
                world.finish(0 if step == "finish" else -1)
        else:
            name, password, host = step
            asked[number] = name if password is None and name in HASHES else None
            world.login(number, name, password, f"10.0.0.{host}")
    world.until_idle()
    while world.running:
        world.finish()
        world.until_idle()
    for number, expected in asked.items():
        assert world.answers.get(number, expected) == expected
        assert number in world.answers or number in world.gone
    assert len(world.logins) == 0 and not world.logins._lanes
