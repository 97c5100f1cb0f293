"""What is kept of a lock in etcd when nobody holds it: bounded, beside the locks, and worth no lock."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import clock, history
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.registry import open_backend
from lockctl.stores.etcd import inspect, layout, prune, records
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, one_of, reader, refused, take
from tests.contract.remembering import a_run
from tests.jobs import eventually
from tests.servers.etcd import Etcd
from tests.servers.proxy import Proxy
from tests.stores.etcd.test_hostile_keys import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.stores.etcd.lock import EtcdBackend
    from lockctl.wire.deadline import Deadline

    Open = Callable[..., EtcdBackend]

NO_SUCCESS = {
    **HOSTILE,
    "no time": b'{"token":5}',
    "a time of no kind": b'{"at":"1"}',
    "a yes": b'{"at":true}',
    "before all time": b'{"at":-1}',
    "after all time": b'{"at":1e300}',
    "endless": b'{"at":Infinity}',
}


def kept(server: Etcd, prefix: str, kind: str = "started") -> list[str]:
    return sorted(server.read(f"{prefix}.history/nightly/{kind}/"))


class TestHistory:
    """A key for each run, beside the locks."""

    def test_what_is_no_run_is_left_out(self, etcd_server: Etcd, backend: EtcdBackend, prefix: str) -> None:
        backend.remember("nightly", a_run(), timeout=LIMIT)
        for value in HOSTILE.values():
            etcd_server.write(f"{prefix}.history/nightly/started/zz", value)
            etcd_server.write(f"{prefix}.history/nightly/zz", value)
            assert backend.history("nightly", timeout=LIMIT) == (a_run(),), value[:50]
            assert backend.inspect("nightly", timeout=LIMIT).last_run is None, "it is known: the newest is not known"
            assert list(backend.list("*", timeout=LIMIT)) == []
        take(backend, claim())

    def test_the_oldest_go_in_batches_and_never_more_than_there_may_be(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        sizes = []
        for number in range(history.KEPT + 2 * records.SPARE + 1):
            backend.remember("nightly", a_run(number, ended_at=1e9 - number), timeout=LIMIT)
            if number > history.KEPT:
                sizes.append(len(kept(etcd_server, prefix)))
        assert max(sizes) < history.KEPT + records.SPARE
        assert min(sizes) >= history.KEPT
        tokens = {run.token for run in backend.history("nightly", timeout=LIMIT)}
        newest = 41 + history.KEPT + 2 * records.SPARE
        assert set(range(newest, newest - history.KEPT, -1)) <= tokens, "by the order of writing, not by hosts' clocks"

    def test_the_answer_to_a_release_does_not_grow_with_the_history(
        self, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers: list[dict[str, Any]] = []
        for number in range(history.KEPT):
            backend.remember("nightly", a_run(number), timeout=LIMIT)
        monkeypatch.setattr(records, "_drop_surplus", lambda *given: answers.append(given[-2]))
        assert backend.release_with_run(take(backend, claim()), a_run(1, duration=0.1), timeout=LIMIT)
        (answer,) = answers
        assert len(json.dumps(answer["responses"])) < history.ROOM

    def test_a_heap_that_another_hand_left_is_worked_off(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        names = [f"{prefix}.history/nightly/started/{number}".encode() for number in range(500)]
        for start in range(0, len(names), 100):
            puts = [layout.put(name, b"x" * 1000, 0) for name in names[start : start + 100]]
            assert etcd_server.request("/v3/kv/txn", {"success": puts})[0] == 200
        for number in range(6):
            backend.remember("nightly", a_run(number), timeout=LIMIT)
        assert len(kept(etcd_server, prefix)) < history.KEPT + records.SPARE
        assert len(backend.history("nightly", timeout=LIMIT)) == 6

    def test_it_goes_a_year_after_the_last_run(self, etcd_server: Etcd, backend: EtcdBackend, prefix: str) -> None:
        grant = take(backend, claim())
        backend.note_success(grant, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        for started in (1.0, None):
            backend.remember("nightly", a_run(started_at=started), timeout=LIMIT)
        (lease,) = {f"{int(entry['lease']):x}" for entry in etcd_server.entries(prefix)}
        told = json.loads(etcd_server.command("lease", "timetolive", lease, "-w", "json"))
        assert history.AGE - 60 < told["ttl"] <= history.AGE
        etcd_server.command("lease", "revoke", lease)
        assert backend.history("nightly", timeout=LIMIT) == ()
        assert backend.last_success("nightly", timeout=LIMIT) is None
        backend.remember("nightly", a_run(7), timeout=LIMIT)
        assert backend.history("nightly", timeout=LIMIT) == (a_run(7),)
        etcd_server.command("lease", "revoke", lease)

    @pytest.mark.parametrize(("duration", "pauses", "asked"), [(0.1, [], 1), (0.5, [0.0025], 2), (3600.0, [0.005], 2)])
    def test_after_a_job_that_was_not_short_whoever_waits_goes_first(
        self,
        etcd_server: Etcd,
        backend: EtcdBackend,
        connect: Open,
        monkeypatch: pytest.MonkeyPatch,
        duration: float,
        pauses: list[float],
        asked: int,
    ) -> None:
        backend.remember("nightly", a_run(), timeout=LIMIT)
        grant, other, paused, sent = take(backend, claim()), connect(etcd_server.address), [], []
        send = backend.cluster._connections._send

        def pause(seconds: float) -> None:
            paused.append(seconds)
            take(other, claim())
            assert other.history("nightly", timeout=LIMIT) == (a_run(),)

        def counted(*words: Any) -> Any:
            sent.append(words)
            return send(*words)

        monkeypatch.setattr(clock, "pause", pause)
        monkeypatch.setattr(backend.cluster._connections, "_send", counted)
        run = a_run(1, duration=duration)
        assert backend.release_with_run(grant, run, timeout=LIMIT)
        assert (paused, len(sent)) == (pauses, asked)
        assert other.history("nightly", timeout=LIMIT) == (run, a_run())

    def test_a_run_that_a_release_added_without_an_answer_is_there_once(
        self, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grant, ask = take(backend, claim()), backend.cluster.call_for
        run = a_run(token=grant.token, duration=1.0)

        def unheard(*words: Any) -> Any:
            ask(*words)
            raise BackendUnavailable("the answer was lost")

        backend.remember("nightly", a_run(), timeout=LIMIT)
        with monkeypatch.context() as patch:
            patch.setattr(clock, "pause", lambda _: patch.setattr(backend.cluster, "call_for", unheard))
            assert not backend.release_with_run(grant, run, timeout=LIMIT)
        assert backend.history("nightly", timeout=LIMIT) == (run, a_run()), "it was added"
        backend.remember("nightly", run, timeout=LIMIT)
        assert backend.history("nightly", timeout=LIMIT) == (run, a_run())

    def test_the_first_run_of_a_lock_takes_one_round_trip_more(
        self, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grant, sent, send = take(backend, claim()), [], backend.cluster._connections._send

        def counted(*words: Any) -> Any:
            sent.append(words)
            return send(*words)

        monkeypatch.setattr(backend.cluster._connections, "_send", counted)
        run = a_run(duration=0.1)
        assert backend.release_with_run(grant, run, timeout=LIMIT)
        assert len(sent) == 2
        assert backend.history("nightly", timeout=LIMIT) == (run,)

    def test_a_run_is_remembered_of_readers_and_slots_too(self, backend: EtcdBackend) -> None:
        for mine in (reader(), one_of(2)):
            grant = take(backend, mine)
            backend.note_success(grant, timeout=LIMIT)
            assert backend.last_success("nightly", timeout=LIMIT) == grant.at
            backend.release(grant, timeout=LIMIT)


class TestSuccess:
    """One key for each lock, written by its holder alone."""

    def test_what_is_no_time_is_none(self, etcd_server: Etcd, backend: EtcdBackend, prefix: str) -> None:
        grant = take(backend, claim())
        for value in NO_SUCCESS.values():
            etcd_server.write(f"{prefix}.success/nightly", value)
            assert backend.last_success("nightly", timeout=LIMIT) is None, value[:50]
            backend.note_success(grant, timeout=LIMIT)
            assert backend.last_success("nightly", timeout=LIMIT) == grant.at

    def test_who_does_not_hold_the_lock_any_more_notes_none(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open
    ) -> None:
        old = take(backend, claim())
        etcd_server.command("lease", "revoke", f"{backend.lease_of(old.claim):x}")
        other = connect(etcd_server.address)
        grant = take(other, claim())
        other.note_success(grant, timeout=LIMIT)
        with pytest.raises(BackendUnavailable, match="not ours any more"):
            backend.note_success(old, timeout=LIMIT)
        (noted,) = etcd_server.read(f"{backend.layout.prefix}.success/nightly").values()
        assert json.loads(noted) == {"at": grant.at, "token": grant.token}


class TestForgetting:
    """The store compares: nothing is removed that was written after the look."""

    @pytest.mark.parametrize("use", ["a run", "a success", "a holder"])
    def test_what_comes_between_the_look_and_the_removal_keeps_all_of_it(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, monkeypatch: pytest.MonkeyPatch, use: str
    ) -> None:
        backend.remember("nightly", a_run(), timeout=LIMIT)
        other = connect(etcd_server.address)
        before = take(other, claim()) if use == "a success" else None
        call = backend.cluster.call

        def late(path: str, request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
            if "compare" in request:
                if use == "a run":
                    other.remember("nightly", a_run(1), timeout=LIMIT)
                elif before is not None:
                    other.note_success(before, timeout=LIMIT)
                    other.release(before, timeout=LIMIT)
                else:
                    take(other, claim())
            return call(path, request, deadline)

        monkeypatch.setattr(backend.cluster, "call", late)
        if before is not None:  # the holder is no reason here: as if it came and went between the two
            monkeypatch.setattr(prune, "_last_use", lambda found: 0.0 if any(found[1:]) else None)
        assert not backend.forget("nightly", older_than=0.0, timeout=LIMIT)
        expected = [a_run(1), a_run()] if use == "a run" else [a_run()]
        assert list(other.history("nightly", timeout=LIMIT)) == expected
        assert (other.last_success("nightly", timeout=LIMIT) is not None) == (use == "a success")

    def test_an_answer_that_is_lost_does_no_harm(self, etcd_server: Etcd, connect: Open) -> None:
        with Proxy(etcd_server) as proxy:
            cut, other = connect(proxy.address), connect(etcd_server.address)
            cut.remember("nightly", a_run(), timeout=LIMIT)
            call = cut.cluster.call

            def lost(path: str, request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
                proxy.mode = "drop_replies" if "compare" in request else "pass"
                return call(path, request, deadline)

            cut.cluster.call = lost  # type: ignore[method-assign]
            with pytest.raises(BackendUnavailable):
                cut.forget("nightly", older_than=0.0, timeout=1.0)
            eventually(lambda: other.history("nightly", timeout=LIMIT) == ())
            other.remember("nightly", a_run(1), timeout=LIMIT)
            assert not cut.forget("nightly", older_than=3600.0, timeout=LIMIT), "it was used meanwhile"
            assert other.history("nightly", timeout=LIMIT) == (a_run(1),)

    def test_only_what_is_a_lock_of_ours_is_among_the_names(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        for key in (".history/", ".history/a b/started/1", ".success/..", "theirs/1", "plain", ".other/nightly"):
            etcd_server.write(prefix + key, b"theirs")
        assert list(backend.unused("*", older_than=0.0, timeout=LIMIT)) == []
        etcd_server.write(f"{prefix}.success/spoilt", b"\xff")
        assert list(backend.unused("*", older_than=3600.0, timeout=LIMIT)) == [("spoilt", 0.0)]
        assert backend.forget("spoilt", older_than=3600.0, timeout=LIMIT)
        assert list(backend.unused("*", older_than=0.0, timeout=LIMIT)) == []

    def test_the_clock_of_the_host_that_ran_last_does_not_count(self, backend: EtcdBackend) -> None:
        backend.remember("nightly", a_run(started_at=1.0, ended_at=2.0), timeout=LIMIT)
        assert list(backend.unused("*", older_than=3600.0, timeout=LIMIT)) == []
        assert not backend.forget("nightly", older_than=3600.0, timeout=LIMIT)

    def test_names_of_many_pages_come_in_order(self, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inspect, "PAGE", 7)
        names = [f"job-{number:02}" for number in range(prune.NAMES_AT_ONCE + 5)]
        for name in reversed(names):
            backend.remember(name, a_run(), timeout=LIMIT)
        assert [name for name, _ in backend.unused("job-*", older_than=0.0, timeout=LIMIT)] == names


class TestRefusals:
    """A store that takes no more, or not from us, is said; the lock is not touched by it."""

    def test_a_full_database(self, start_server: Callable[..., Etcd], connect: Open) -> None:
        server = start_server(Etcd, extra={"quota-backend-bytes": 200_000})
        client = connect(server.address)
        client.remember("nightly", a_run(), timeout=LIMIT)
        grant = take(client, claim())
        second = take(client, claim("second"))
        with contextlib.suppress(RuntimeError):
            for number in range(100):
                server.command("put", f"fill/{number}", "x" * 50_000)
        with pytest.raises(BackendUnavailable, match="space"):
            client.remember("nightly", a_run(1), timeout=LIMIT)
        with pytest.raises(BackendUnavailable, match="space"):
            client.remember("never", a_run(1), timeout=LIMIT)
        with pytest.raises(BackendUnavailable, match="space"):
            client.note_success(grant, timeout=LIMIT)
        with pytest.raises(BackendUnavailable, match="space"):
            client.release(grant, timeout=LIMIT, hold=60.0)
        assert client.renew(grant, timeout=LIMIT).token == grant.token
        assert client.history("nightly", timeout=LIMIT) == (a_run(),)
        assert client.last_success("nightly", timeout=LIMIT) is None
        for each in (grant, second):
            client.release(each, timeout=LIMIT)
        assert client.inspect("nightly", timeout=LIMIT).state == "free"

    def test_a_user_who_may_only_write_the_lock(self, start_server: Callable[..., Etcd]) -> None:
        server = start_server(Etcd, auth=True)
        server.command("user", "add", "night:n1ght-s3cret")
        server.command("role", "add", "night")
        for beginning in ("lockctl/nightly/", "lockctl/.revoke/", "lockctl/.token/"):
            server.command("role", "grant-permission", "night", "--prefix=true", "readwrite", beginning)
        server.command("user", "grant-role", "night", "night")
        client = open_backend(parse_url(f"etcd://night:n1ght-s3cret@{server.address}/"))
        grant = take(client, claim())
        for attempt in (
            lambda: client.note_success(grant, timeout=LIMIT),
            lambda: client.last_success("nightly", timeout=LIMIT),
            lambda: client.remember("nightly", a_run(), timeout=LIMIT),
            lambda: client.history("nightly", timeout=LIMIT),
        ):
            with pytest.raises(ConfigError, match="permission denied") as wrong:
                attempt()
            assert "s3cret" not in str(wrong.value)
        client.release(client.renew(grant, timeout=LIMIT), timeout=LIMIT, hold=60.0)
        assert refused(client, claim())
        client.close()
