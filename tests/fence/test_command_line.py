"""`lockctl fence` as people and scripts use it: statuses, the one line, JSON, and many processes at once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.fence import current as mark_of
from lockctl.fence import sql
from lockctl.fence.stores.slots import SIZE
from tests.fence.access import ACL, GUEST, give_acl
from tests.jobs import LIMIT, eventually
from tests.run.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs import Lockctl

DOMAIN = "etcd:14841639068965178418"
KEYS = ["resource", "store", "accepted", "token", "domain", "current"]
Shown = tuple[int, str, str]


@pytest.fixture
def stock(locks: Path) -> Path:
    path = locks / "stock.json"
    path.write_text("old\n")
    return path


@pytest.fixture
def fence(lockctl: Lockctl) -> Callable[..., Shown]:
    """Runs one verb: (status, stdout, the one line of stderr)."""

    def run(*words: str, token: int | None = None, **options: Any) -> Shown:
        env = {} if token is None else {"LOCKCTL_TOKEN": str(token), "LOCKCTL_TOKEN_DOMAIN": DOMAIN}
        done = lockctl("fence", *words, env={**env, **options.pop("env", {})}, **options)
        assert done.stderr.count("\n") <= 1, done.stderr
        assert "Traceback" not in done.stderr
        assert not done.stderr or done.stderr.startswith("lockctl: ")
        return done.returncode, done.stdout, done.stderr.rstrip("\n")

    return run


@pytest.fixture
def database(locks: Path) -> str:
    with contextlib.closing(sqlite3.connect(locks / "shop.db")) as base:
        base.executescript(sql.text("sqlite"))
    return f"sqlite://{locks}/shop.db"


def seen(resource: Path | str) -> str:
    """The mark, looked at by no program: ``show`` has tests of its own."""
    mark = mark_of(str(resource))
    return "" if mark is None else str(mark)


def test_show_prints_the_mark_or_says_that_there_is_none(fence: Callable[..., Shown], stock: Path) -> None:
    status, out, said = fence("show", str(stock))
    assert (status, out, bool(said)) == (0, "", True)
    fence("advance", str(stock), token=33)
    assert fence("show", str(stock)) == (0, f"{DOMAIN};33\n", "")


@pytest.mark.parametrize("verb", ["advance", "check"])
def test_a_token_is_taken_from_the_environment_and_an_old_one_is_77(
    verb: str, fence: Callable[..., Shown], stock: Path
) -> None:
    assert seen(stock) == ""
    assert fence(verb, str(stock), token=33) == (0, "", "")
    assert seen(stock) == f"{DOMAIN};33"
    assert fence(verb, str(stock), token=34) == (0, "", "")
    assert fence(verb, str(stock), token=34) == (0, "", "")
    status, out, said = fence(verb, str(stock), token=33)
    assert (status, out) == (77, "")
    assert said == f"lockctl: {stock} refuses token 33: it has already seen token 34"
    assert seen(stock) == f"{DOMAIN};34"


def test_options_count_more_than_the_environment(fence: Callable[..., Shown], stock: Path) -> None:
    assert fence("check", str(stock), "--token", "40", token=33)[0] == 0
    assert seen(stock) == f"{DOMAIN};40"
    status, _, said = fence("check", str(stock), "--token", "41", "--domain", "other", token=50)
    assert status == 77
    assert "another domain" in said
    assert "lockctl fence reset" in said
    assert fence("check", str(stock), "--token", "41", "--domain", DOMAIN)[0] == 0
    assert seen(stock) == f"{DOMAIN};41"


@pytest.mark.parametrize("token", ["", "9" * 20, "\u0665"])
def test_what_is_not_a_token_is_64_and_writes_nothing(token: str, fence: Callable[..., Shown], stock: Path) -> None:
    variables = {"LOCKCTL_TOKEN": token, "LOCKCTL_TOKEN_DOMAIN": DOMAIN}
    for done in (
        fence("check", str(stock), f"--token={token}", "--domain", DOMAIN),
        fence("write", str(stock), env=variables),
    ):
        assert done[:2] == (64, "")
        assert "is not a fencing token" in done[2]
    assert stock.read_text() == "old\n"
    assert not os.path.exists(f"{stock}.fence")


@pytest.mark.parametrize(
    ("env", "words", "said"),
    [
        ({}, [], "there is no LOCKCTL_TOKEN"),
        ({"LOCKCTL_TOKEN": "5"}, [], "is not the domain of a token"),
        ({}, ["--token", "5"], "--token requires --domain"),
        ({}, ["--domain", "x"], "there is no LOCKCTL_TOKEN"),
        ({"LOCKCTL_TOKEN": "5", "LOCKCTL_TOKEN_DOMAIN": "a\nb"}, [], "is not the domain of a token"),
        ({}, ["--token", "5", "--domain", ""], "--domain: '' is not the domain"),
        ({}, ["--token", "5", "--domain", "x" * 301], "is not the domain"),
        ({}, ["--token", "5", "--domain", "x", "--timeout", "soon"], "--timeout:"),
        ({}, ["--token", "5", "--domain", "x", "--timeout", "0"], "--timeout:"),
    ],
)
def test_what_is_missing_or_wrong_is_64(
    env: dict[str, str], words: list[str], said: str, fence: Callable[..., Shown], stock: Path
) -> None:
    status, out, line = fence("check", str(stock), *words, env=env)
    assert (status, out) == (64, "")
    assert said in line
    assert not os.path.exists(f"{stock}.fence")


@pytest.mark.parametrize(
    ("resource", "status", "said"),
    [
        ("banana://a/b", 78, "no store of marks for 'banana'"),
        ("sqlite:///no/such.db", 78, "no such database"),
        ("file://host/a", 78, "three slashes"),
        ("", 64, "not empty"),
        ("/no/such/directory/a", 78, "no such directory"),
        ("/dev/null/a", 78, "not a directory"),
        ("/dev/null/", 64, "not a directory"),
        ("no-such/.", 64, "not a directory"),
        ("file:///no-such/", 64, "not a directory"),
    ],
)
def test_a_resource_that_cannot_be_is_one_line(
    resource: str, status: int, said: str, fence: Callable[..., Shown]
) -> None:
    done = fence("check", resource, token=5)
    assert done[:2] == (status, "")
    assert said in done[2]


def test_json_has_the_same_keys_whatever_the_answer_is(fence: Callable[..., Shown], stock: Path, database: str) -> None:
    def document(status: int, *words: str, token: int | None = None) -> dict[str, Any]:
        found, out, _ = fence(*words, "--json", token=token)
        assert found == status
        read: dict[str, Any] = json.loads(out)
        assert list(read) == KEYS
        return read

    empty = document(0, "show", str(stock))
    assert empty == dict.fromkeys(KEYS) | {"resource": str(stock), "store": "file"}
    large = 2**53 + 1
    current = {"domain": DOMAIN, "token": large}
    assert document(0, "advance", str(stock), token=large) == {
        "resource": str(stock),
        "store": "file",
        "accepted": True,
        "token": large,
        "domain": DOMAIN,
        "current": current,
    }
    stale = document(77, "check", str(stock), token=large - 1)
    assert (stale["accepted"], stale["token"], stale["current"]) == (False, large - 1, current)
    assert document(0, "show", str(stock))["current"] == current
    named = document(0, "check", "stock", "--store", database, token=5)
    assert (named["resource"], named["store"]) == ("stock", "sqlite")
    assert document(0, "show", f"{database}?resource=stock")["current"] == {"domain": DOMAIN, "token": 5}


def test_a_name_that_is_not_utf_8_has_question_marks_in_json(fence: Callable[..., Shown], stock: Path) -> None:
    name = f"{stock}-{os.fsdecode(bytes([255]))}"
    for verb in ("show", "advance"):
        status, out, _ = fence(verb, name, "--json", token=5 if verb == "advance" else None)
        assert (status, json.loads(out)["resource"]) == (0, f"{stock}-?")


def test_of_many_processes_with_shuffled_tokens_none_with_an_older_one_is_let_in_after_a_newer(
    fence: Callable[..., Shown], stock: Path
) -> None:
    tokens = list(range(1, 21))
    random.Random(5).shuffle(tokens)

    def show(token: int) -> tuple[float, float, int, int]:
        begun = time.monotonic()
        status, _, _ = fence("check", str(stock), token=token, limit=100)
        return begun, time.monotonic(), token, status

    with ThreadPoolExecutor(20) as pool:
        shown = list(pool.map(show, tokens))
    assert {status for *_, status in shown} <= {0, 77}
    assert next(status for *_, token, status in shown if token == 20) == 0
    for _, ended, token, status in shown:
        if status == 0:
            assert all(other >= token or late == 77 for begun, _, other, late in shown if begun > ended)
    assert seen(stock) == f"{DOMAIN};20"
    assert os.path.getsize(f"{stock}.fence") == SIZE


def test_a_reset_needs_a_yes_and_says_what_was_there(fence: Callable[..., Shown], stock: Path) -> None:
    assert fence("reset", str(stock)) == (0, "", f"lockctl: {stock} has no mark: nothing to do")
    fence("check", str(stock), token=33)
    status, _, said = fence("reset", str(stock))
    assert status == 64
    assert f"has seen token 33 of {DOMAIN}" in said
    assert "--yes" in said
    assert seen(stock) == f"{DOMAIN};33"
    # the token of the environment is never what a reset is about
    assert fence("reset", str(stock), "--yes", token=99)[0] == 0
    assert seen(stock) == ""
    assert fence("reset", str(stock), "--yes", "--token", "7", "--domain", "new")[0] == 0
    assert seen(stock) == "new;7"
    for half in (["--token", "7"], ["--domain", "new"]):
        assert fence("reset", str(stock), "--yes", *half, token=99)[0] == 64
    assert seen(stock) == "new;7"


def test_a_reset_can_answer_as_json(fence: Callable[..., Shown], stock: Path) -> None:
    for words, current in (
        (("--token", "7", "--domain", "new"), {"domain": "new", "token": 7}),
        (("--token", "7", "--domain", "new"), {"domain": "new", "token": 7}),
        ((), None),
        ((), None),
    ):
        status, shown, said = fence("reset", str(stock), "--yes", "--json", *words)
        assert (status, said) == (0, "")
        document = json.loads(shown)
        assert document["current"] == current
        assert list(document) == list(json.loads(fence("show", str(stock), "--json")[1]))


def test_a_store_that_is_no_url_is_refused_without_its_words(lockctl: Lockctl) -> None:
    words = ("--token", "5", "--domain", DOMAIN, "--store", "nosuch")
    done = lockctl("fence", "advance", "stock", *words)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == "lockctl: the store of a mark is a URL, such as redis://redis.example/0\n"


@pytest.mark.parametrize(
    ("answer", "status", "left"), [("y", 0, ""), ("n", 64, f"{DOMAIN};33"), ("", 64, f"{DOMAIN};33")]
)
def test_a_reset_asks_on_a_terminal(
    answer: str, status: int, left: str, fence: Callable[..., Shown], lockctl: Lockctl, stock: Path
) -> None:
    fence("check", str(stock), token=33)
    terminal = Terminal(lockctl.command, "fence", "reset", str(stock), env=lockctl.environment())
    try:
        terminal.expect(r"\[y/N\]")
        terminal.line(answer)
        assert terminal.process.wait(LIMIT) == status
    finally:
        terminal.end()
    assert seen(stock) == left


def test_a_damaged_mark_is_78_until_a_reset(fence: Callable[..., Shown], stock: Path) -> None:
    fence("check", str(stock), token=33)
    with open(f"{stock}.fence", "w", encoding="ascii") as file:
        file.write("7\n")
    for verb in ("check", "advance", "show"):
        status, _, said = fence(verb, str(stock), token=99)
        assert status == 78
        assert "damaged" in said
    assert fence("reset", str(stock), "--yes", "--token", "34", "--domain", DOMAIN)[0] == 0
    assert fence("check", str(stock), token=33)[0] == 77
    assert fence("check", str(stock), token=34)[0] == 0


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite", "mysql"])
def test_the_sql_of_a_dialect_is_printed(dialect: str, fence: Callable[..., Shown]) -> None:
    assert fence("sql", "--dialect", dialect) == (0, sql.text(dialect), "")
    assert fence("sql", "--dialect", dialect, "--resource", "it's") == (0, sql.text(dialect, "it's"), "")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 301])
def test_sql_for_a_name_that_no_store_takes_is_64(name: str, fence: Callable[..., Shown]) -> None:
    status, out, said = fence("sql", "--dialect", "sqlite", "--resource", name)
    assert (status, out) == (64, "")
    assert "cannot name a resource: 1 to 300 printable characters" in said


def test_sql_of_no_dialect_is_64(fence: Callable[..., Shown]) -> None:
    assert fence("sql", "--dialect", "oracle")[:2] == (64, "")
    assert fence("sql")[:2] == (64, "")


def entries(directory: Path) -> set[str]:
    return {name for name in os.listdir(directory) if name.lstrip(".").startswith("stock")}


def write(fence: Callable[..., Shown], path: Path | str, content: str, token: int, **options: Any) -> Shown:
    reading, writing = os.pipe()
    os.write(writing, content.encode())
    os.close(writing)
    try:
        return fence("write", str(path), token=token, stdin=reading, **options)
    finally:
        os.close(reading)


def test_a_file_is_replaced_under_a_current_token_and_left_alone_under_an_old_one(
    fence: Callable[..., Shown], stock: Path
) -> None:
    stock.chmod(0o640)
    before = stock.stat()
    assert write(fence, stock, "new\n", 33) == (0, "", "")
    assert stock.read_text() == "new\n"
    after = stock.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    status, _, said = write(fence, stock, "stale\n", 32)
    assert status == 77
    assert "token 33" in said
    assert stock.read_text() == "new\n"
    assert entries(stock.parent) == {"stock.json", "stock.json.fence"}
    assert seen(stock) == f"{DOMAIN};33"


def test_a_file_that_does_not_exist_is_made_as_the_umask_says(fence: Callable[..., Shown], locks: Path) -> None:
    content = bytes(range(256)) * 20_000
    (locks / "source").write_bytes(content)
    before = os.umask(0o027)
    try:
        with open(locks / "source", "rb") as source:
            assert fence("write", str(locks / "stock.new"), token=33, stdin=source) == (0, "", "")
    finally:
        os.umask(before)
    assert (locks / "stock.new").read_bytes() == content
    assert stat.S_IMODE((locks / "stock.new").stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_special_bits_and_attributes_stay(fence: Callable[..., Shown], stock: Path) -> None:
    os.chown(stock, 1234, 1235)
    stock.chmod(0o6755)
    with contextlib.suppress(OSError):  # not every file system has them
        os.setxattr(stock, "user.origin", b"here")
    attributes = os.listxattr(stock)
    assert write(fence, stock, "new\n", 33)[0] == 0
    after = stock.stat()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (1234, 1235, 0o6755)
    assert os.listxattr(stock) == attributes


def test_an_access_control_list_stays_and_that_of_the_directory_is_not_added(
    fence: Callable[..., Shown], stock: Path
) -> None:
    stock.chmod(0o660)
    give_acl(stock.parent, GUEST, default=True)
    assert write(fence, stock, "new\n", 33)[0] == 0
    assert ACL not in os.listxattr(stock)
    assert stat.S_IMODE(stock.stat().st_mode) == 0o660
    give_acl(stock, GUEST)
    before = os.getxattr(stock, ACL)
    assert write(fence, stock, "newer\n", 34)[0] == 0
    assert os.getxattr(stock, ACL) == before
    assert stock.read_text() == "newer\n"


def test_the_longest_names_that_a_mark_can_have_are_no_hindrance(fence: Callable[..., Shown], locks: Path) -> None:
    for name in ("x" * 249, "\N{SNOWMAN}" * 83):  # 249 bytes, and 6 for .fence
        for token in (33, 34):
            assert write(fence, locks / name, f"{token}", token) == (0, "", "")
        assert (locks / name).read_text() == "34"
    assert sorted(map(len, map(os.fsencode, os.listdir(locks)))) == [249, 249, 255, 255]


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(fence: Callable[..., Shown], stock: Path) -> None:
    link = stock.parent / "link"
    link.symlink_to(stock.name)
    assert write(fence, link, "new\n", 33)[0] == 0
    assert link.is_symlink()
    assert stock.read_text() == "new\n"
    assert write(fence, stock, "stale\n", 32)[0] == 77


@pytest.mark.parametrize("status", [77, 0])
@pytest.mark.parametrize("moved", ["link", "directory"])
def test_a_link_that_moves_does_not_put_one_file_under_the_mark_of_another(
    moved: str, status: int, fence: Callable[..., Shown], lockctl: Lockctl, locks: Path
) -> None:
    """What the path means is found out once: mark and data are of one file, however long stdin takes."""
    for name in ("old", "new"):
        (locks / name).mkdir()
        (locks / name / "stock").write_text(f"in {name}")
    link, target = (locks / "now", "{}/stock") if moved == "link" else (locks / "there", "{}")
    path = link if moved == "link" else link / "stock"
    link.symlink_to(target.format("old"))
    env = {"LOCKCTL_TOKEN": "33", "LOCKCTL_TOKEN_DOMAIN": DOMAIN}
    slow = lockctl.start("fence", "write", str(path), env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: (locks / "old/stock.fence").exists() and seen(locks / "old/stock"))
    (locks / "moved").symlink_to(target.format("new"))
    os.rename(locks / "moved", link)
    if status:
        assert fence("advance", str(locks / "old/stock"), token=34)[0] == 0
    _, said = slow.communicate("written under 33", timeout=LIMIT)
    assert (slow.returncode, "refuses token 33" in said) == (status, status != 0)
    assert (locks / "old/stock").read_text() == ("in old" if status else "written under 33")
    assert (locks / "new/stock").read_text() == "in new"
    assert not (locks / "new/stock.fence").exists()


def test_what_cannot_be_replaced_is_refused_before_stdin_is_read(
    fence: Callable[..., Shown], stock: Path, database: str
) -> None:
    os.link(stock, stock.parent / "second")
    os.mkfifo(stock.parent / "pipe")
    refusals = [
        (stock, 78, "hard links"),
        (stock.parent / "pipe", 78, "not a regular file"),
        (stock.parent, 78, "not a regular file"),
        (f"{stock}.fence", 64, "is the mark of a file"),
        (f"{database}?resource=a", 64, "FILE must be a path"),
    ]
    for path, status, said in refusals:
        reading, writing = os.pipe()
        os.write(writing, b"new")
        found, _, line = fence("write", str(path), token=33, stdin=reading)
        assert (found, said in line) == (status, True), line
        os.close(writing)
        assert os.read(reading, 10) == b"new"
        os.close(reading)
    assert stock.read_text() == "old\n"
    done = fence("write", str(stock), "--store", database, token=33)
    assert done[0] == 64


def test_a_newer_holder_that_comes_while_stdin_is_read_is_not_kept_waiting_and_wins(
    fence: Callable[..., Shown], lockctl: Lockctl, stock: Path
) -> None:
    env = {"LOCKCTL_TOKEN": "33", "LOCKCTL_TOKEN_DOMAIN": DOMAIN}
    slow = lockctl.start("fence", "write", str(stock), env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert slow.stdin is not None
    slow.stdin.write("stale\n")
    slow.stdin.flush()
    eventually(lambda: os.path.exists(f"{stock}.fence") and seen(stock))
    assert write(fence, stock, "new\n", 34, limit=5) == (0, "", "")
    _, said = slow.communicate(timeout=LIMIT)
    assert slow.returncode == 77
    assert "refuses token 33" in said
    assert stock.read_text() == "new\n"
    assert entries(stock.parent) == {"stock.json", "stock.json.fence"}


def test_an_input_that_does_not_block_is_read_to_its_end(lockctl: Lockctl, stock: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    env = {"LOCKCTL_TOKEN": "33", "LOCKCTL_TOKEN_DOMAIN": DOMAIN}
    slow = lockctl.start("fence", "write", str(stock), env=env, stdin=reading)
    eventually(lambda: os.path.exists(f"{stock}.fence") and seen(stock))
    for word in (b"first ", b"second"):
        time.sleep(0.1)
        os.write(writing, word)
    os.close(writing)
    assert slow.wait(timeout=LIMIT) == 0
    os.close(reading)
    assert stock.read_text() == "first second"


def test_an_input_that_cannot_be_read_is_said_to_be_the_reason(fence: Callable[..., Shown], stock: Path) -> None:
    with open(stock, "ab") as only_to_write:
        status, _, said = fence("write", str(stock), token=33, stdin=only_to_write)
    assert (status, said) == (69, "lockctl: cannot read stdin: Bad file descriptor")
    assert stock.read_text() == "old\n"


@pytest.mark.parametrize("signal_name", ["KILL", "TERM", "INT"])
def test_a_write_that_is_killed_leaves_the_file_as_it_was_and_nothing_beside_it(
    signal_name: str, lockctl: Lockctl, stock: Path
) -> None:
    env = {"LOCKCTL_TOKEN": "33", "LOCKCTL_TOKEN_DOMAIN": DOMAIN}
    slow = lockctl.start("fence", "write", str(stock), env=env, stdin=subprocess.PIPE)
    assert slow.stdin is not None
    slow.stdin.write("half")
    slow.stdin.flush()
    eventually(lambda: os.path.exists(f"{stock}.fence") and seen(stock))
    slow.send_signal(getattr(signal, "SIG" + signal_name))
    slow.wait(timeout=LIMIT)
    assert slow.returncode != 0
    assert stock.read_text() == "old\n"
    assert entries(stock.parent) == {"stock.json", "stock.json.fence"}


def test_a_scheme_without_its_slashes_is_no_file_of_this_name(
    fence: Callable[..., Shown], lockctl: Lockctl, locks: Path
) -> None:
    for verb, words in (
        ("advance", "sqlite:shop.db"),
        ("check", "SQLite:/srv/shop.db"),
        ("show", "postgresql:me:hunter2@db/shop"),
        ("write", "file:stock"),
    ):
        scheme = words.partition(":")[0].lower()
        said = f"a URL begins with {scheme}://, and the name of a file that begins with {scheme}: with ./{scheme}:"
        assert fence(verb, words, token=5, cwd=locks) == (64, "", f"lockctl: {said}")
    done = lockctl("run", "-l", "a", "--fence", "sqlite:shop.db", "--", "echo", "ran", cwd=locks)
    assert (done.returncode, done.stdout) == (64, "")
    assert not list(locks.glob("*.fence"))


def test_a_file_whose_name_begins_with_a_scheme_has_a_mark_by_its_path(
    fence: Callable[..., Shown], locks: Path
) -> None:
    assert fence("advance", "./sqlite:shop.db", token=5, cwd=locks) == (0, "", "")
    assert (locks / "sqlite:shop.db.fence").exists()
    assert fence("show", str(locks / "sqlite:shop.db"))[1] == f"{DOMAIN};5\n"


def test_a_relative_path_in_a_directory_that_was_deleted_is_wrong_usage(lockctl: Lockctl, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    words = (f"{lockctl.command} fence show x", f"{lockctl.command} run -l nightly --fence x -- true")
    for line in words:
        gone.mkdir()
        done = subprocess.run(
            ["sh", "-c", f'rmdir "$0"; {line}', str(gone)],
            cwd=gone,
            env=lockctl.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        assert (done.returncode, done.stderr.count("\n"), "was deleted" in done.stderr) == (64, 1, True)
