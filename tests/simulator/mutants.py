"""The HA core, broken on purpose in ways that have lost messages elsewhere: the invariants must notice.

The mistakes themselves are in `mistakes_safety.py` (who counts, who is promoted), `mistakes_votes.py` (what is asked,
granted and written), `mistakes_log.py` (what is copied, kept and said), `mistakes_messages.py` (single messages),
`mistakes_kinds.py` (queues of special kinds), `mistakes_registry.py` and `mistakes_pacemaker.py` (the registry),
`mistakes_reactor.py` (turns and sockets), `mistakes_journal.py` (disks of members), `mistakes_liveness.py` (what a
refused connection means), `mistakes_score.py` (what a resource manager is told) and `mistakes_twins.py` (copied
identities).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from tests.simulator import mistakes_follower as follower
from tests.simulator import mistakes_journal as journal
from tests.simulator import mistakes_kinds as kinds
from tests.simulator import mistakes_liveness as liveness
from tests.simulator import mistakes_log as log
from tests.simulator import mistakes_messages as messages
from tests.simulator import mistakes_pacemaker as pacemaker
from tests.simulator import mistakes_reactor as reactor
from tests.simulator import mistakes_registry as registry
from tests.simulator import mistakes_safety as safety
from tests.simulator import mistakes_score as score
from tests.simulator import mistakes_slow as slow
from tests.simulator import mistakes_twins as twins
from tests.simulator import mistakes_votes as votes
from tests.simulator.plan import plan
from tests.simulator.scenario import Scenario

RUNS = 16
"""Runs of the recorded plan that are tried."""


@dataclass(frozen=True)
class Mutant:
    """One mistake, and where it shows."""

    apply: Callable[[], AbstractContextManager[None]]
    mode: str = ""
    """The seed decides by default."""
    faults: tuple[str, ...] = ()
    """Rare coincidences are brought about by these."""
    within: int = 150
    """It is found within that many seeds."""
    seed: int = 0
    """Tried first: it was found there.  Plans change; then it is looked for from 0 on."""
    run: int = 0
    """The plan of `seed` shows it in this run: what is random beside the plan comes from here.  0: that of `seed`."""

    def scenarios(self) -> Iterator[tuple[int, Scenario]]:
        """With the seeds of their plans.  A change elsewhere may shift a run by some milliseconds: then another run of
        the plan is likely to show it."""
        recorded = plan(self.seed, self.mode, self.faults)
        for run in (self.run or self.seed, *(range(1, RUNS) if self.seed else ())):
            yield self.seed, replace(recorded, seed=str(run))
        for seed in range(self.within):
            yield seed, plan(seed, self.mode, self.faults)


MUTANTS: Mapping[str, Mutant] = {
    "confirm-at-once": Mutant(safety.confirm_at_once),
    "shrink-at-once": Mutant(safety.shrink_at_once, "manager"),
    "promote-unasked": Mutant(safety.promote_unasked, seed=15),
    "grant-and-follow-on": Mutant(safety.grant_and_follow_on, seed=3),
    "refused-is-dead": Mutant(liveness.refused_is_dead, "manager", ("listener",), seed=56),
    "ignore-silence": Mutant(safety.ignore_silence, "manager", ("ambush",), 600, seed=37),
    "expect-everything": Mutant(safety.expect_everything, "manager", ("ambush", "crash"), 1000, seed=12),
    "forget-removed": Mutant(safety.forget_removed, "manager", ("isolate", "cut", "pause", "promote"), seed=28),
    "list-without-counting": Mutant(safety.list_without_counting),
    "confirm-before-record": Mutant(safety.confirm_before_record, "registry", ("duel", "isolate", "promote")),
    "read-before-write": Mutant(safety.read_before_write, "registry", ("duel",), 300, seed=70),
    "count-by-old-list": Mutant(safety.count_by_old_list, "quorum", ("member", "split")),
    "start-with-three": Mutant(safety.start_with_three, "quorum", ("member",)),
    "relocate-unprepared": Mutant(safety.relocate_unprepared, "", ("relocate",)),
    "forget-votes": Mutant(log.forget_votes, "quorum", ("crash", "promote", "split")),
    "torn-state": Mutant(log.torn_state, "", ("trap",), 600, seed=223),
    "both-slots": Mutant(log.both_slots, "", ("trap",), 600, seed=223),
    "oldest-slot": Mutant(log.oldest_slot, "", (), 600),
    "other-slot": Mutant(log.other_slot, "", ("disk error", "crash", "promote"), 600, seed=356),
    "failed-write-for-done": Mutant(log.failed_write_for_done, "", ("disk error", "crash"), 600),
    "claim-without-write": Mutant(
        log.claim_without_write, "quorum", ("disk error", "crash", "promote", "split"), 600, seed=22
    ),
    "set-without-write": Mutant(log.set_without_write, "", ("disk error", "crash", "promote"), 600, seed=76),
    "believe-the-cache": Mutant(log.believe_the_cache, "", ("disk error", "crash", "promote"), 600, seed=140),
    "union-on-rejoin": Mutant(log.union_on_rejoin),
    "acknowledge-holes": Mutant(log.acknowledge_holes),
    "half-a-difference": Mutant(log.half_a_difference, "quorum", ("half-a-difference",), seed=1),
    "cut-after-snapshot": Mutant(log.cut_after_snapshot),
    "dequeue-before-enqueue": Mutant(log.dequeue_before_enqueue, "", ("crash", "slow"), seed=8),
    "confirm-twice": Mutant(log.confirm_twice),
    "demote-before-closing": Mutant(log.demote_before_closing, seed=5),
    "salvage-skipped": Mutant(log.salvage_skipped, "gamble"),
    "inherited-at-once": Mutant(
        messages.inherited_at_once, "registry", ("pacemaker", "duel", "isolate", "promote"), seed=2
    ),
    "redelivered-lost": Mutant(messages.redelivered_lost, "quorum", ("crash",)),
    "last-turns-assumed": Mutant(messages.last_turns_assumed, "quorum", ("isolate", "promote")),
    "letters-unmarked": Mutant(messages.letters_unmarked, "quorum", ("isolate", "promote")),
    "uncounted-by-backups": Mutant(messages.uncounted_by_backups, "quorum", ("crash", "returns"), seed=3),
    "uncounted-by-who-joins": Mutant(messages.uncounted_by_who_joins, "quorum", ("crash", "returns"), seed=3),
    "keys-left-out": Mutant(kinds.keys_left_out, "quorum", ("crash", "once"), 600, seed=1),
    "secret-of-its-own": Mutant(kinds.secret_of_its_own, "quorum", ("crash", "once"), 600, seed=1),
    "waiting-not-compared": Mutant(kinds.waiting_not_compared, "quorum", ("crash", "delays"), 600),
    "due-when-promoted": Mutant(kinds.due_when_promoted, "quorum", ("crash", "delays"), 600, seed=1),
    "groups-ignored": Mutant(kinds.groups_ignored, "quorum", ("crash", "groups"), 600),
    "values-as-a-ring": Mutant(kinds.values_as_a_ring, "quorum", ("crash", "values"), 600),
    "values-kept": Mutant(kinds.values_kept, "quorum", ("crash", "values"), 600, seed=2),
    "kept-letters-dropped": Mutant(kinds.kept_letters_dropped, "quorum", ("crash", "kept letters"), 600),
    "leaves-early": Mutant(kinds.leaves_early, "quorum", ("crash", "homes"), 600),
    "waits-for-ever": Mutant(kinds.waits_for_ever, "quorum", ("crash", "homes"), 600),
    "exclusive-replicated": Mutant(kinds.exclusive_replicated, "quorum", ("crash", "homes"), 600),
    "expires-early": Mutant(kinds.expires_early, within=600, seed=45),
    "limit-off-by-one": Mutant(kinds.limit_off_by_one, within=600, seed=2),
    "letter-in-two-batches": Mutant(messages.letter_in_two_batches, "quorum", ("crash",), 600, seed=83),
    "purge-answered-early": Mutant(messages.purge_answered_early, "quorum", ("crash",), 600, seed=405),
    "take-second-link": Mutant(twins.take_second_link, "", ("clone",), seed=4),
    "read-publishers-on": Mutant(slow.read_publishers_on, "", ("narrow",)),
    "keep-the-slow": Mutant(slow.keep_the_slow, "manager", ("narrow",), seed=3, run=6),
    "keep-the-late": Mutant(slow.keep_the_late, "quorum", ("late",), seed=36),
    "late-for-ever": Mutant(slow.late_for_ever, "manager", ("late",)),
    "last-copy-given-up": Mutant(slow.last_copy_given_up, "manager", ("late",)),
    "spare-the-slow": Mutant(slow.spare_the_slow, "", ("narrow",)),
    "confirm-before-sealing": Mutant(reactor.confirm_before_sealing),
    "copies-kept": Mutant(follower.copies_kept, "quorum"),
    "copies-lost": Mutant(follower.copies_lost, "quorum"),
    "one-pass": Mutant(follower.one_pass, "quorum", seed=97),
    "write-in-place": Mutant(registry.write_in_place, "registry", ("registry", "crash", "promote"), seed=10),
    "lost-is-gone": Mutant(pacemaker.lost_is_gone, "registry", ("pacemaker", "isolate", "promote"), seed=111, run=3),
    "quorum-unasked": Mutant(pacemaker.quorum_unasked, "registry", ("pacemaker", "isolate", "promote")),
    "quorum-is-enough": Mutant(pacemaker.quorum_is_enough, "registry", ("pacemaker", "isolate", "promote"), seed=159),
    "own-copy-only": Mutant(pacemaker.own_copy_only, "registry", ("pacemaker", "duel", "isolate", "promote"), seed=400),
    "look-then-write": Mutant(pacemaker.read_before_write, "registry", ("pacemaker", "duel"), seed=70, run=5),
    "score-while-catching-up": Mutant(score.score_while_catching_up, "quorum", ("crash",), 600, seed=42, run=4),
    "score-never-dropped": Mutant(score.score_never_dropped, "quorum", (), 600, seed=111),
    "no-score-for-copies": Mutant(score.no_score_for_copies, "quorum"),
    "no-score-in-doubt": Mutant(score.no_score_in_doubt, "quorum", seed=11),
    "grant-unwritten": Mutant(votes.grant_unwritten, "quorum", ("forgotten-grant",)),
    "set-unwritten": Mutant(votes.set_unwritten, "quorum", ("forgotten-set",)),
    "listed-before-it-is-noted": Mutant(journal.listed_before_it_is_noted, "registry", ("blackout", "crash"), seed=3),
    "reading-grants": Mutant(journal.reading_grants, "quorum", ("blackout", "crash", "promote", "reads"), seed=5),
    "acknowledge-before-disk": Mutant(journal.acknowledge_before_disk, "registry", ("unwritten",), seed=32),
    "own-disk-forgotten": Mutant(journal.own_disk_forgotten, "registry", ("unwritten",), seed=28, run=6),
    "removals-unwritten": Mutant(journal.removals_unwritten, "registry", ("blackout", "crash"), seed=6),
    "removed-too-early": Mutant(
        journal.removed_before_the_difference_counts, "registry", ("blackout", "crash"), seed=7
    ),
    "restart-without-doubt": Mutant(journal.restart_without_doubt, "manager", ("last-witness",), seed=4),
    "dead-is-lost": Mutant(journal.dead_is_lost, "registry", ("blackout", "crash"), seed=64),
    "rot-is-cut-off": Mutant(journal.rot_is_cut_off, "quorum", ("blackout", "disks"), seed=43, run=3),
    "rot-stays-whole": Mutant(journal.rot_stays_whole, "quorum", ("pages", "crash"), seed=11),
    "rot-is-held": Mutant(journal.rot_is_reported_as_held, "quorum", ("pages", "crash"), seed=8),
    "rot-stays-primary": Mutant(journal.rot_stays_primary, "quorum", ("pages", "crash"), seed=15),
    "rot-goes-on-alone": Mutant(journal.rot_goes_on_alone, "", seed=2746, run=64),
    "cache-is-believed": Mutant(journal.cache_is_believed, "quorum", ("blackout", "disks"), seed=7),
    "copy-stands-for-member": Mutant(journal.copy_stands_for_member, "registry", ("blackout", "clone"), seed=15),
    "set-unheard": Mutant(votes.set_unheard, "quorum"),
    "vote-taken-back": Mutant(votes.vote_taken_back, "quorum", ("race",), seed=8, run=5),
    "claim-unanswered": Mutant(votes.claim_unanswered, "quorum", ("ambush",), seed=5, run=16),
    "registry-ignored": Mutant(votes.registry_ignored, "registry", ("duel",)),
    "registry-unread": Mutant(votes.registry_unread, "registry", ("duel",)),
    "confirm-below-majority": Mutant(votes.confirm_below_majority, "quorum", ("isolate", "promote")),
    "unaware-accounts": Mutant(votes.unaware_accounts, "", seed=464),
    "impatient-alone": Mutant(votes.impatient_alone, "manager", ("isolate", "promote")),
    "ignore-higher-ballots": Mutant(votes.ignore_higher_ballots, "quorum", ("trap", "isolate", "promote"), seed=215),
    "whole-from-disk": Mutant(votes.whole_from_disk, "quorum", ("crash",), seed=5),
    "trust-former-acks": Mutant(votes.trust_former_acks, "quorum", seed=75),
    "wait-for-one": Mutant(votes.wait_for_one),
    "count-while-linked": Mutant(votes.count_while_linked),
    "lost-link-counts": Mutant(
        liveness.lost_link_counts, "registry", ("registry", "reset", "another registry"), seed=6
    ),
    "configuration-kept": Mutant(votes.configuration_kept, "quorum"),
    "slices-skipped": Mutant(votes.slices_skipped, "quorum"),
}
