"""Requests to an etcd cluster: to whichever member answers, in the name of the user that the URL has."""

from __future__ import annotations

from lockctl import json_text
from lockctl.errors import BackendUnavailable, ConfigError, RequestInterrupted
from lockctl.stores.etcd.connection import Connections, Denied
from lockctl.wire.deadline import NoThread
from lockctl.wire.race import Race
from lockctl.wire.stream import Endpoint, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from lockctl.stores.etcd.connection import Requests
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.lines import Lines

    T = TypeVar("T")

LONGEST_TRY = 2.0  # seconds for a member while there are others: more than an election takes
TURNS = 3  # of one request that may be made several times at once: a late answer costs a third of its time


class Cluster:
    """The members of one cluster. Any thread may send a request beside others: each has a connection of its own."""

    def __init__(self, members: tuple[Endpoint, ...], user: str | None = None, password: str | None = None) -> None:
        """Nothing is opened before it is needed."""
        self._members = members
        self._connections = Connections(user, password)
        self.turn = 0  # number of the member that is asked first: the one that answered last
        self.unanswered = False  # whether a request had no answer, and may still be on its way

    @property
    def where(self) -> str:
        """The member that is asked first, for messages."""
        return self._members[self.turn].where

    def call(self, path: str, request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """The answer of the first member that has one; the request must stand being done twice.

        Beside etcd's own fields it has a ``date``: when that member answered by its clock, ``None`` if it did not say.
        Raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``, ``LeaseGone``, ``LeaseExists``.
        """
        return self.call_in_turn(((path, request),), deadline)[0]

    def call_in_turn(self, requests: Requests, deadline: Deadline) -> list[dict[str, Any]]:
        """As :meth:`call`, of several requests in one round trip, in this order. Raises the first error.

        Those after it are done all the same.
        """
        return self._of_any(self._asking(requests), deadline)

    def begin(self, requests: Requests, deadline: Deadline) -> None:
        """Send these already, if a connection is open; a later call that has them first reads what is answered."""
        self._connections.begin(self._members[self.turn], requests, deadline)

    def call_for(self, requests: Requests, wanted: slice, deadline: Deadline) -> list[dict[str, Any] | Exception]:
        """As :meth:`call_in_turn`, but only those *wanted* matter: an error of others takes the place of an answer.

        So do ``LeaseGone`` and ``LeaseExists`` of any.
        """

        def attempt(member: Endpoint, share: Deadline) -> list[dict[str, Any] | Exception]:
            answers = self._connections.answers(member, requests, share)
            for answer in answers[wanted]:
                if isinstance(answer, (BackendUnavailable, ConfigError)):
                    raise answer
            return answers

        return self._of_any(attempt, deadline)

    def call_beside(self, requests: Requests, deadline: Deadline) -> list[dict[str, Any]]:
        """The answers of the first member that has them, in one round trip; it does the requests in this order.

        While a member is late the next one is asked, too, or the only one on another connection: for requests that may
        be carried out twice at the same time. Raises as :meth:`call` does.
        """
        return self._of_first(self._asking(requests), deadline)

    def watch(self, watches: tuple[dict[str, Any], ...], start: int, deadline: Deadline) -> Lines:
        """What happens in some ranges of keys from revision *start* on, as lines of JSON; the caller closes it."""
        each = [{**one, "start_revision": str(start)} for one in watches]
        body = "".join([json_text.render({"create_request": one}) for one in each]).encode()
        return self._of_any(lambda member, share: self._connections.watch(member, body, share), deadline)

    def close(self) -> None:
        """Close what is open; a connection that a thread is still at, it closes itself."""
        self._connections.close()

    def _asking(self, requests: Requests) -> Callable[[Endpoint, Deadline], list[dict[str, Any]]]:
        return lambda member, share: _all_right(self._connections.answers(member, requests, share))

    def _of_any(self, attempt: Callable[[Endpoint, Deadline], T], deadline: Deadline) -> T:
        problems: list[BackendUnavailable | ConfigError] = []
        count, first = len(self._members), self.turn
        for step in range(count):
            if problems and deadline.left() <= 0:
                break
            turn = (first + step) % count
            last = step == count - 1
            share = deadline if last else deadline.sooner(min(deadline.left() / 2, LONGEST_TRY))
            try:
                answer = attempt(self._members[turn], share)
            except Denied:
                raise
            except (BackendUnavailable, ConfigError, RequestInterrupted) as problem:
                self.unanswered = self.unanswered or not isinstance(problem, ConfigError)
                if isinstance(problem, RequestInterrupted):
                    raise
                problems.append(problem)
                continue
            self.turn = turn
            return answer
        self.turn = (first + 1) % count
        raise _all_failed(problems)

    def _of_first(self, attempt: Callable[[Endpoint, Deadline], T], deadline: Deadline) -> T:
        count, first, step = len(self._members), self.turn, deadline.left() / TURNS
        most, started = max(count, 2), 0
        problems: list[BackendUnavailable | ConfigError] = []
        race = Race(lambda turn: attempt(self._members[turn], deadline), "etcd")
        try:
            while len(problems) < started or started < count:
                if started < most:
                    try:
                        race.start((first + started) % count, "etcd")
                        started += 1
                    except NoThread:
                        if len(problems) == started:  # nobody is being asked
                            return self._of_any(attempt, deadline)
                try:
                    outcomes = race.wait(deadline.sooner(step) if started < most else deadline, most)
                except BackendUnavailable:
                    if deadline.left() <= 0:
                        problems.append(deadline.passed(self.where))
                        break
                    continue
                for turn, answer, error in outcomes:
                    if error is None:
                        self.turn = turn
                        return answer  # type: ignore[no-any-return]
                    if isinstance(error, Denied) or not isinstance(error, (BackendUnavailable, ConfigError)):
                        raise error
                    problems.append(error)
        finally:
            race.end()
        self.turn = (first + 1) % count
        raise _all_failed(problems)


def _all_right(answers: list[dict[str, Any] | Exception]) -> list[dict[str, Any]]:
    """These answers, if none of them is an error; raises the first one that is."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers  # type: ignore[return-value] # there is no error among them


def _all_failed(problems: list[BackendUnavailable | ConfigError]) -> BackendUnavailable | ConfigError:
    text = "; ".join(dict.fromkeys(str(problem) for problem in problems))
    if all(isinstance(problem, ConfigError) for problem in problems):
        return ConfigError(text)
    if isinstance(problems[-1], TooLarge):
        return problems[-1]  # whoever asked can ask for less
    return BackendUnavailable(text)
