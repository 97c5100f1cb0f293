"""What `lockctl doctor` finds in Redis and Redlock servers that are not as they should be."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.stores.redis import rights, scripts, share_scripts
from tests.servers.process import free_port
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis
    from tests.jobs import Lockctl

    Diagnose = Callable[..., Diagnosis]
    Start = Callable[..., Any]
SECRET = "s3cret-horse"


def test_a_good_server_has_no_findings(diagnose: Diagnose, start_server: Start) -> None:
    server = start_server(Redis, fsync=True)
    before = server.ask("DBSIZE")
    found = diagnose(f"redis://{server.address}/0")
    assert found.troubles("redis.", "backend.") == {}
    assert {"redis.eviction", "redis.acl", "backend.reachable", "backend.round_trip", "backend.clock"} <= set(found)
    assert server.ask("DBSIZE") == before == 0


@pytest.mark.slow
def test_a_server_that_is_far_away_is_looked_at_in_time(diagnose: Diagnose, redis_server: Redis) -> None:
    with contextlib.closing(Proxy(redis_server, "delay=0.4")) as far:
        found = diagnose(f"redis://{far.address}/0")
    assert found.levels("backend.") | found.levels("redis.acl") == {
        "backend.reachable": "ok",
        "backend.round_trip": "warn",
        "backend.clock": "ok",
        "redis.acl": "ok",
    }


def test_what_loses_locks_in_redis_is_found(diagnose: Diagnose, start_server: Start) -> None:
    server = start_server(Redis, password=SECRET)
    replica = start_server(Redis, password=SECRET, replica_of=server)
    for name, setting in (("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru"), ("maxclients", "4")):
        server.ask("CONFIG", "SET", name, setting)
    with server.connect(), server.connect():
        found = diagnose(f"redis://:{SECRET}@{server.address}/0")
    assert found.troubles("redis.", "backend.") == {
        "redis.eviction": "fail",
        "redis.persistence": "warn",
        "redis.replicas": "warn",
        "redis.connections": "warn",
    }
    assert found["redis.replicas"]["seen"].startswith("1, of which 1 confirmed")
    assert f"redis-cli -h 127.0.0.1 -p {server.port} CONFIG SET" in found["redis.eviction"]["remedy"]
    assert diagnose(f"redis://:{SECRET}@{replica.address}/0").levels()["redis.role"] == "fail"


def test_a_server_whose_memory_is_full_is_found(diagnose: Diagnose, start_server: Start, lockctl: Lockctl) -> None:
    server = start_server(Redis, fsync=True, extra=["maxmemory-policy noeviction"])
    assert diagnose(server.url).levels()["redis.memory"] == "ok"
    server.ask("CONFIG", "SET", "maxmemory", "1")
    assert lockctl("run", "-b", server.url, "-l", "nightly", "--", "true").returncode == 69
    found = diagnose(server.url)
    assert found.troubles("redis.") == {"redis.memory": "fail"}
    assert "maxmemory" in found["redis.memory"]["remedy"]


def test_a_node_of_a_cluster_and_a_user_with_few_rights_are_found(diagnose: Diagnose, start_server: Start) -> None:
    narrow = f"user narrow on >{SECRET} ~lockctl:* ~{{lockctl:* &{{lockctl:* +@all -@admin -@dangerous -zadd"
    server = start_server(Redis, password=SECRET, extra=["cluster-enabled yes", f"cluster-port {free_port()}", narrow])
    assert diagnose(f"redis://:{SECRET}@{server.address}/0").levels()["redis.cluster"] == "fail"
    found = diagnose(f"redis://narrow:{SECRET}@{server.address}/0")
    assert found.troubles("redis.") == {"redis.visible": "warn", "redis.acl": "fail"}
    assert "zadd" in found["redis.acl"]["seen"]


def test_a_user_who_may_not_ask_for_the_time_lacks_a_right(diagnose: Diagnose, start_server: Start) -> None:
    server = start_server(Redis, password=SECRET, extra=[f"user narrow on >{SECRET} ~* &* +@all -time"])
    found = diagnose(f"redis://narrow:{SECRET}@{server.address}/0")
    assert found.troubles("redis.acl", "backend.") == {"redis.acl": "fail"}
    assert found["redis.acl"]["seen"].startswith("TIME: ")
    assert "backend.round_trip" in found


def test_a_server_that_is_slow_or_silent_or_gone_is_found(
    diagnose: Diagnose, redis_server: Redis, start_proxy: Start
) -> None:
    slow = start_proxy(redis_server, "delay=0.12")
    assert diagnose(f"redis://{slow.address}/0", "--ttl", "2s").levels()["backend.round_trip"] == "fail"
    assert diagnose("redis://127.0.0.1:1/0").troubles("redis", "backend") == {"backend.reachable": "fail"}


def test_a_command_that_the_server_has_under_another_name_is_found(
    diagnose: Diagnose, start_server: Start, lockctl: Lockctl
) -> None:
    server = start_server(Redis, extra=["rename-command TYPE kind"])
    found = diagnose(server.url)["redis.acl"]
    assert (found["level"], "TYPE: unknown command" in found["seen"]) == ("fail", True), found
    done = lockctl("run", "-b", server.url, "-l", "nightly", "--", "true")
    assert (done.returncode, "rename-command" in done.stderr) == (78, True), done.stderr


def test_a_version_that_is_too_old_is_found(diagnose: Diagnose, redis_server: Redis, start_proxy: Start) -> None:
    # such a server cannot be had: a real one answers, and its number is another on the way
    (number,) = re.findall(rb"redis_version:(\S+)", redis_server.ask("INFO", "server"))
    old = start_proxy(redis_server, said=(b"redis_version:" + number, b"redis_version:" + b"4" + number[1:]))
    found = diagnose(f"redis://{old.address}/0")
    assert found["redis.version"] == {
        **found["redis.version"],
        "level": "fail",
        "seen": "4" + number[1:].decode(),
        "remedy": "upgrade the server to 7 or newer",
    }


def test_what_servers_of_redlock_have_in_common_is_found(diagnose: Diagnose, redis_five: list[Redis]) -> None:
    one, two, three = (server.address for server in redis_five[:3])
    assert diagnose(f"redlock://{one},{two},{three}/0").troubles("redlock.") == {}
    same = one.replace("127.0.0.1", "localhost")
    found = diagnose(f"redlock://{one},{same},127.0.0.1:1,127.0.0.1:2/0")
    assert found.levels("redlock.") == {
        "redlock.nodes": "fail",
        "redlock.number": "warn",
        "redlock.independent": "fail",
    }


def test_every_command_of_a_script_is_among_the_rights_that_are_checked() -> None:
    found = [each for module in (scripts, share_scripts) for each in vars(module).values()]
    texts = [each.text for each in found if isinstance(each, scripts.Script)]
    used = {name for text in texts for name in re.findall(r"redis\.p?call\('([A-Z]+)'", text)}
    assert len(used) > 15
    assert used <= {command[0] for command in rights.commands("lockctl:")}
