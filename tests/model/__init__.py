"""A checked model: every schedule within bounds, of the shipped rules of promotion, confirming and membership.

**State** (`state.py`): for each broker what is on its disk, what it remembers, its role, how far it is whole, the
messages that it holds, its link; for a primary its backups as `ha.primary.peer.Peer` has them, the log that they have
not applied, and the change that is being recorded; a promotion under way; every claim that was ever sent; the registry;
and the judge's own history.

**Steps** (`steps.py`, `leading.py`, `joining.py`, `promoting.py`): one broker does one thing, with whatever has
arrived: publish, hear an acknowledgement, give up a backup, hear of a higher ballot, step down, change the members;
connect, be welcomed (vote and set are written), have copied all, apply one operation; ask, decide and claim, grant or
deny, end the claim; the registry takes an entry, is read, answers, or its answer is lost; crash, also between two
writes of one call; restart with what was on disk; lose its disk.  Time is left out: whatever a timer does may
happen at any moment.

The rules are not repeated here: `host.py` sets the real `Node`, `Primary`, `Backup`, `Roster`, `Recorder`,
`Promoter`, `Arrivals` and `Joining` to a state, calls what the real environment would call, and reads the state out
again.  So `promotion.decide`, `claims.grant`, `decide_claims`, `fell_silent`, `contradicted`, `Safety`, `membership`
and `Brokers.changed` run as shipped.

**The network**: an answer that comes late is one that was lost or one that was read earlier, so only claims and
acknowledgements are kept on the wire.  A claim may arrive at any time, twice or never, also after a restart; its
answer may be lost.  A backup's acknowledgement may arrive after it has left.  Any broker may be silent when it is
asked, or its host may refuse the connection.

**Lost disks**: a voter that loses its disk never comes back.  By the rule (`docs/how-to/replace-a-disk.md`) another
broker starts instead, with an identity and an address of its own; it has to be added, and the lost one is removed.
Three mistakes relax that: it comes back under its identity and votes again (`votes-on`); under another identity at the
address that is still on the list, where it votes (`lost-votes`), or where the shipped code makes it abstain until a
primary has listed it (`at-the-old-address`).  All three lose confirmed messages: the rule is needed, and what the code
does without it is not enough.

**What has to hold** (`judge.py`): P1, P2, votes and sets that never go back, one leader for each ballot.

**What is left out**: content other than "has message n" (the difference, staging, salvage, queues, consumers); the
modes `availability` and `manager` without a registry, which rest on time and fencing; force, a manager's own record
(`known`), planned switch-over; doubt; the journal (a restarted broker is empty); damaged disks; the questions of one
promotion read at different moments; octets of a primary that arrive after its end; a failed registry write that takes
effect late.  Liveness is not checked.

**Symmetry**: ties of ballots are decided by the id, so brokers are not interchangeable in general; the first primary is
`a`, the lowest id.  With one further claim there are no ties, and of states that differ only in the names of equals one
is explored (`symmetry.py`).  That makes four brokers possible, a fourth that enters a cluster of three, and five from
one claim on.

What was found so far: `tests/unit/ha/test_late_claim.py`, `tests/unit/ha/test_listed_again.py`.
"""
