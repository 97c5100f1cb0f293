"""`acquire`, `renew`, `release`: what is taken, handed out and refused."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl.cli.daemon.remains import KEPT, Remains, sweep
from tests.jobs import LIMIT, Lockctl, eventually
from tests.run.acquirer import Acquirer, read, word

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLES = ["LOCK", "TOKEN", "TOKEN_DOMAIN", "OWNER", "FENCING", "HANDLE"]


@pytest.mark.parametrize("served", ["file", "redis"])
@pytest.mark.servers("redis_server")
def test_a_lock_is_taken_refused_renewed_and_released(
    served: str, lockctl: Lockctl, new_acquirer: Callable[[str], Acquirer], request: pytest.FixtureRequest
) -> None:
    url = lockctl.url
    if served != "file":
        server = request.getfixturevalue(f"{served}_server")
        url = f"{served}://{server.address}/?prefix=acq{os.urandom(6).hex()}/"
    acquirer = new_acquirer(url)
    first = acquirer.acquire()
    handle = read(first)
    assert (handle["name"], handle["backend"], handle["ttl"]) == ("deploy", served, 30)
    holder = json.loads(acquirer("inspect", "deploy", "--json").stdout)["holders"][0]
    assert (holder["owner"], holder["token"], holder["pid"]) == (handle["owner"], handle["token"], handle["pid"])
    assert holder["command"] == ["lockctl", "acquire", "deploy", "--for", "1m"]
    refused = acquirer("acquire", "deploy", "--for", "5s", "--export", "sh")
    assert (refused.returncode, refused.stdout) == (75, "(exit 75)\n")
    assert f"pid {handle['pid']}" in refused.stderr
    assert acquirer("acquire", "deploy", "--for", "5s", "-E", "9").returncode == 9
    assert acquirer("acquire", "deploy", "--for", "5s", "-E", "0").returncode == 75  # 0 is a lock that is held
    assert word(acquirer("renew", "--handle", first, "--for", "1h")) == (0, "")
    assert read(first)["expires_at"] > handle["expires_at"]
    assert word(acquirer("release", "--handle", first)) == (0, "")
    assert acquirer.free()
    second = read(acquirer.acquire())
    assert second["token"] > handle["token"]
    code, text = word(acquirer("release", "--handle", first))
    assert (code, "not held by this handle any more" in text) == (75, True)
    assert acquirer("renew", "--handle", first).returncode == 75
    assert acquirer.state() == "held"


def test_a_handle_with_another_owner_is_refused_and_frees_nothing(acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    forged = {**read(path), "owner": "0" * 32}
    Path(path).write_text(json.dumps(forged))
    for verb in ("renew", "release"):
        code, text = word(acquirer(verb, "--handle", path))
        assert (code, "refused" in text) == (75, True)
    assert acquirer.state() == "held"


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", "[" * 5000, '{"socket": "/x.sock"}', "x" * 100_000],
    ids=["empty", "object", "list", "deep", "part", "huge"],
)
def test_what_is_not_a_handle_is_wrong_usage(text: str, acquirer: Acquirer) -> None:
    path = acquirer.runtime / "wrong"
    path.write_text(text)
    assert word(acquirer("renew", "--handle", str(path)))[0] == 64
    assert word(acquirer("release", "--handle", "-", input=text, stdin=None))[0] == 64


def test_no_handle_is_wrong_usage(acquirer: Acquirer) -> None:
    assert word(acquirer("release"))[0] == 64
    assert word(acquirer("release", "--handle", str(acquirer.runtime / "none")))[0] == 64


def test_a_handle_with_absurd_numbers_is_wrong_usage(acquirer: Acquirer) -> None:
    document = read(acquirer.acquire())
    for verb, field, number in (
        ("renew", "ttl", "1e999"),
        ("release", "ttl", "NaN"),
        ("renew", "ttl", "-1"),
        ("release", "ttl", "1" + "0" * 400),
        ("renew", "pid", "-1"),
        ("release", "token", "1" + "0" * 30),
    ):
        wrong = json.dumps({**document, field: "@"}).replace('"@"', number)
        assert word(acquirer(verb, "--handle", "-", input=wrong, stdin=None))[0] == 64, (field, number)
    assert acquirer.state() == "held"


def test_a_handle_with_half_a_character_is_wrong_usage(acquirer: Acquirer) -> None:
    document = read(acquirer.acquire())
    for verb, field in (("renew", "name"), ("release", "socket")):
        wrong = json.dumps({**document, field: f"/\ud800/{document[field]}"})
        code, text = word(acquirer(verb, "--handle", "-", input=wrong, stdin=None))
        assert (code, "is not a handle" in text) == (64, True)


def test_remains_that_a_release_takes_away_meanwhile_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remains = Remains(f"{tmp_path}/{'0' * 32}")
    for suffix in (".end", ".log"):
        Path(remains.path(suffix)).touch()
    found = os.lstat

    def taken_away(path: str) -> os.stat_result:
        seen = found(path)
        remains.remove()
        return seen

    monkeypatch.setattr("os.lstat", taken_away)
    sweep(str(tmp_path), 0.0)
    assert not remains.known()


def test_the_log_of_a_daemon_can_be_read_by_its_user_whatever_the_umask_is(acquirer: Acquirer) -> None:
    acquirer.acquire(umask=0o777)
    (log,) = [each for each in acquirer.remains() if each.suffix == ".log"]
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_report_whose_daemon_was_killed_while_it_wrote_it_is_swept_when_it_is_old(tmp_path: Path) -> None:
    old, new = (tmp_path / f"{'0' * 32}.end.{word}.tmp" for word in ("old", "new"))
    for each in (old, new):
        each.touch()
    now = new.stat().st_mtime
    os.utime(old, (now - KEPT - 1, now - KEPT - 1))
    sweep(str(tmp_path), now)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_handle_can_come_out_of_a_pipe_and_one_to_which_nobody_writes_is_wrong_usage(acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    fifo = str(acquirer.runtime / "fifo")
    os.mkfifo(fifo)
    assert word(acquirer("release", "--handle", fifo))[0] == 64
    assert acquirer.state() == "held"
    line = f'{acquirer.lockctl.command} release --handle <(sleep 0.3; cat "$0")'
    environment = acquirer.lockctl.environment(acquirer.env)
    assert subprocess.run(["bash", "-c", line, path], env=environment, timeout=LIMIT, check=False).returncode == 0
    assert acquirer.free()


def test_a_handle_from_a_closed_stdin_is_wrong_usage(acquirer: Acquirer) -> None:
    line = f"{acquirer.lockctl.command} release --handle - <&-"
    done = subprocess.run(
        ["sh", "-c", line], env=acquirer.lockctl.environment(acquirer.env), capture_output=True, check=False
    )
    assert (done.returncode, b"no stdin" in done.stderr) == (64, True)


def test_the_handle_the_socket_and_the_log_are_for_this_user_alone(acquirer: Acquirer) -> None:
    path = Path(acquirer.acquire())
    assert path.stat().st_mode & 0o777 == 0o600
    assert (acquirer.runtime / "lockctl").stat().st_mode & 0o777 == 0o700
    assert {entry.suffix for entry in acquirer.remains()} == {".sock", ".log"}
    assert {entry.stat().st_mode & 0o777 for entry in acquirer.remains()} == {0o600}
    assert acquirer("release", "--handle", str(path)).returncode == 0
    assert acquirer.remains() == []


def test_a_directory_that_others_may_enter_is_no_place_for_a_socket(acquirer: Acquirer) -> None:
    (acquirer.runtime / "lockctl").mkdir(mode=0o755)
    code, text = word(acquirer("acquire", "deploy", "--for", "5s"))
    assert (code, "chmod 700" in text) == (78, True)
    assert acquirer.free()


def test_eval_gives_the_variables_of_the_job_and_release_takes_the_handle_from_them(acquirer: Acquirer) -> None:
    command = shlex.quote(acquirer.lockctl.command)
    show = "; ".join(f'printf "%s\\n" "$LOCKCTL_{name}"' for name in VARIABLES)
    line = f'lock=$({command} acquire a@b:c+d --for 60s --export sh) && eval "$lock"; {show}; {command} renew --for 5m; {command} release'
    done = subprocess.run(
        ["sh", "-ec", line],
        env=acquirer.lockctl.environment(acquirer.env),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    name, token, domain, owner, fencing, handle = done.stdout.splitlines()
    assert (name, fencing) == ("a@b:c+d", "strict")
    assert int(token) > 0
    assert domain.startswith("file:")
    assert re.fullmatch("[0-9a-f]{32}", owner)
    assert not os.path.exists(handle)
    # that handle is gone, and what is true of every other one is true of it
    for verb in ("release", "renew"):
        code, text = word(acquirer(verb, env={"LOCKCTL_HANDLE": handle, "LOCKCTL_LOCK": name}))
        assert (code, "a@b:c+d is not held by this handle any more" in text) == (75, True), text
    code, text = word(acquirer("release", "--handle", handle.removesuffix(".handle")))
    assert (code, "cannot read the handle" in text) == (64, True)


def test_eval_in_a_job_leaves_nothing_of_what_the_outer_run_told_of_its_locks(acquirer: Acquirer) -> None:
    url = f"sqlite://{acquirer.runtime}/locks.db"
    acquire = f"{shlex.quote(acquirer.lockctl.command)} acquire -b {url} inner --ttl 7s --for 60s --export sh"
    line = f'eval "$({acquire})"; env | grep ^LOCKCTL_; {shlex.quote(acquirer.lockctl.command)} run -l c -- true'
    done = acquirer("run", "-l", "b", "-l", "a", "--", "sh", "-c", line)
    told = dict(each.split("=", 1) for each in done.stdout.splitlines())
    assert set(told) == {f"LOCKCTL_{name}" for name in (*VARIABLES, "BACKEND", "TTL")}
    assert (told["LOCKCTL_LOCK"], told["LOCKCTL_BACKEND"], told["LOCKCTL_TTL"]) == ("inner", "sqlite", "7")
    assert told["LOCKCTL_TOKEN_DOMAIN"].startswith("sqlite:")
    assert (done.returncode, "runs under a lock of sqlite, and no backend" in done.stderr) == (78, True), done.stderr


def test_eval_leaves_the_backend_and_the_lease_that_its_shell_has_for_all_calls(acquirer: Acquirer) -> None:
    printed = acquirer("acquire", "deploy", "--for", "60s", "--export", "sh", env={"LOCKCTL_TTL": "12s"}).stdout
    assert "LOCKCTL_BACKEND" not in printed
    assert "LOCKCTL_TTL" not in printed


@pytest.mark.parametrize("outer", [["-l", "a"], ["-l", "b", "-l", "a"]])
@pytest.mark.parametrize("left", ["", "LOCKCTL_TOKENS='b=1 a=2'"], ids=["", "tokens of others"])
def test_a_run_after_eval_in_a_job_does_not_wait_for_itself(acquirer: Acquirer, outer: list[str], left: str) -> None:
    """*left*: what an older version does not unset."""
    own = f"LOCKCTL_BACKEND={shlex.quote(acquirer.lockctl.url)} {shlex.quote(acquirer.lockctl.command)}"
    line = f'eval "$({own} acquire inner --for 60s --export sh)"; {left} {own} run -l inner -w 1m -- true'
    done = acquirer("run", *outer, "--", "sh", "-c", line)
    assert (done.returncode, "it would wait for itself" in done.stderr) == (64, True), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("deploy", "--fro", "5s", "--export", "sh"),
        ("--for", "5s", "--export=sh"),
        ("deploy", "--export", "sh"),
        ("deploy", "--for", "5s", "--export", "bash"),
        ("deploy", "another", "--for", "5s", "--export", "sh"),
        ("deploy", "--for", "5s", "--export"),
    ],
)
def test_eval_fails_when_the_words_are_wrong(words: tuple[str, ...], acquirer: Acquirer) -> None:
    done = acquirer("acquire", *words)
    assert (done.returncode, done.stdout) == (64, "(exit 64)\n")
    assert done.stderr.startswith("lockctl: ")


def test_eval_fails_when_the_words_before_the_verb_or_the_verb_are_wrong(lockctl: Lockctl) -> None:
    rest = ("deploy", "--for", "5s", "--export")
    for words in (("--nosuch", "acquire", *rest, "sh"), ("acquir", *rest, "sh"), ("-b", "acquire", *rest)):
        done = lockctl(*words)
        assert (done.returncode, done.stdout) == (64, "(exit 64)\n")
    assert lockctl("list", "--nosuch", "--export", "sh").stdout == "", "this is no verb for eval"


@pytest.mark.parametrize("words", [("--bogus",), ("--for", "soon"), ("--for", "5s", "--bind-pid", "0"), ()])
@pytest.mark.parametrize("wanted", ["option", "variable"])
def test_wrong_words_are_told_as_json_if_that_is_wanted(
    words: tuple[str, ...], wanted: str, acquirer: Acquirer
) -> None:
    manner = ("--log-format", "json") if wanted == "option" else ()
    variables = {} if wanted == "option" else {"LOCKCTL_LOG_FORMAT": "json"}
    done = acquirer("acquire", "deploy", *words, *manner, env=variables)
    assert (done.returncode, done.stdout) == (64, "")
    said = json.loads(done.stderr)
    assert (said["level"], said["lock"]) == ("error", None)


@pytest.mark.parametrize("name", ["a;id", "$(id)", "a'b", "a\nb", "../a", "-x"])
def test_a_name_that_means_something_to_a_shell_is_refused(name: str, acquirer: Acquirer) -> None:
    done = acquirer("acquire", "--for", "5s", "--export", "sh", "--", name)
    assert (done.returncode, done.stdout) == (64, "(exit 64)\n")


def test_eval_fails_with_the_status_of_an_acquire_that_failed(acquirer: Acquirer) -> None:
    assert acquirer("acquire", "deploy", "--for", "60s").returncode == 0
    line = f'eval "$({shlex.quote(acquirer.lockctl.command)} acquire deploy --for 60s --export sh)"; echo "went on with $?"'
    env = acquirer.lockctl.environment(acquirer.env)
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.stdout == "went on with 75\n"
    done = subprocess.run(["sh", "-ec", line], env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout) == (75, "")


def test_a_path_that_means_something_to_a_shell_is_quoted(acquirer: Acquirer) -> None:
    hostile = acquirer.runtime / "a'; touch pwned; $(touch pwned) `touch pwned` \""
    hostile.mkdir()
    acquirer.env["XDG_RUNTIME_DIR"] = str(hostile)
    printed = acquirer("acquire", "deploy", "--for", "60s", "--export", "sh").stdout
    script = f'{printed}printf %s "$LOCKCTL_HANDLE"'
    done = subprocess.run(
        ["sh", "-c", script], cwd=acquirer.runtime, capture_output=True, text=True, timeout=9, check=True
    )
    assert done.stdout.startswith(f"{hostile}/lockctl/")
    assert not (acquirer.runtime / "pwned").exists()
    assert acquirer("release", "--handle", done.stdout).returncode == 0


def test_a_path_that_is_no_text_comes_through_a_shell(acquirer: Acquirer) -> None:
    odd = acquirer.runtime / os.fsdecode(b"odd\xff")
    odd.mkdir()
    acquirer.env["XDG_RUNTIME_DIR"] = str(odd)
    printed = acquirer("acquire", "deploy", "--for", "60s", "--export", "sh", errors="surrogateescape").stdout
    script = f'{printed}printf %s "$LOCKCTL_HANDLE"'
    place = os.fsdecode(subprocess.run(["sh", "-c", script], capture_output=True, timeout=9, check=True).stdout)
    assert place.startswith(f"{odd}/lockctl/")
    assert acquirer("release", "--handle", place).returncode == 0


@pytest.mark.parametrize("place", ["-", "device"])
def test_the_handle_can_go_to_a_stream_and_a_device_stays_what_it_is(place: str, acquirer: Acquirer) -> None:
    if place == "device":
        link = acquirer.runtime / "device"
        link.symlink_to("/dev/stdout")
        place = str(link)
    done = acquirer("acquire", "deploy", "--for", "60s", "--handle", place)
    assert json.loads(done.stdout)["name"] == "deploy"
    assert place == "-" or os.readlink(place) == "/dev/stdout"
    assert acquirer("release", "--handle", "-", input=done.stdout).returncode == 0


def test_the_handle_of_a_lock_that_is_held_is_not_replaced(acquirer: Acquirer) -> None:
    """Its lock could be released by nobody then; that of a lock which is held no more is replaced."""
    path = acquirer.acquire()
    handle = read(path)
    code, text = word(acquirer("acquire", "backup", "--for", "60s", "--handle", path))
    assert (code, "is the handle of deploy, which is still held" in text) == (64, True)
    assert read(path) == handle
    assert acquirer.look("backup").state == "free"
    assert acquirer("acquire", "deploy", "--for", "60s", "--handle", path).returncode == 75, "it is held, as ever"
    assert word(acquirer("release", "--handle", path)) == (0, "")
    assert word(acquirer("acquire", "backup", "--for", "60s", "--handle", path)) == (0, "")
    assert read(path)["name"] == "backup"


def test_a_daemon_that_has_released_its_lock_and_is_about_to_end_is_waited_for(acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    stem = acquirer.runtime / ("0" * 32)
    Path(path).write_text(json.dumps({**read(path), "name": "backup", "socket": f"{stem}.sock"}))
    with open(f"{stem}.log", "w") as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # as its processes do
        following = acquirer.lockctl.start("acquire", "backup", "--for", "60s", "--handle", path, env=acquirer.env)
        eventually(lambda: acquirer.look("backup").state == "held")
    assert following.wait(LIMIT) == 0
    assert read(path)["socket"] != f"{stem}.sock"


def test_the_handle_of_another_slot_is_not_replaced(acquirer: Acquirer) -> None:
    words = ("--for", "60s", "--slots", "2", "--handle", str(acquirer.runtime / "h"))
    assert word(acquirer("acquire", "deploy", *words)) == (0, "")
    code, text = word(acquirer("acquire", "deploy", *words))
    assert (code, "which is still held" in text) == (64, True)
    assert len(acquirer.look("deploy").holders) == 1


def test_a_handle_that_names_a_fifo_holds_nobody_up(acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    stem = acquirer.runtime / ("0" * 32)
    os.mkfifo(f"{stem}.log")
    Path(path).write_text(json.dumps({**read(path), "name": "backup", "socket": f"{stem}.sock"}))
    assert acquirer("release", "--handle", path).returncode == 76
    assert acquirer("acquire", "backup", "--for", "60s", "--handle", path).returncode == 0


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (64, ["--for", "banana"]),
        (64, ["--for", "0"]),
        (64, []),
        (64, ["--for", "5s", "--bind-pid", "0"]),
        (64, ["--for", "5s", "--bind-pid", "999999999"]),
        (64, ["--for", "5s", "--handle", "/nowhere/h"]),
        (64, ["--for", "5s", "--ttl", "1s", "--kill-after", "9s"]),
        (69, ["--for", "5s", "-b", "redis://127.0.0.1:1/0"]),
        (78, ["--for", "5s", "-b", "banana"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_refusal_prints_nothing_on_stdout_and_leaves_nothing(
    status: int, words: list[str], acquirer: Acquirer
) -> None:
    done = acquirer("acquire", "deploy", *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("lockctl: ")
    assert acquirer.remains() == []


@pytest.mark.parametrize(
    ("words", "variables", "status"),
    [(["--handle", "../h"], {}, 64), ([], {"LOCKCTL_FENCE": "../h"}, 78)],
    ids=["handle", "fence"],
)
def test_a_path_in_a_directory_that_was_deleted_is_refused(
    words: list[str], variables: dict[str, str], status: int, acquirer: Acquirer
) -> None:
    (gone := acquirer.runtime / "gone").mkdir()
    leave = {"cwd": gone, "preexec_fn": gone.rmdir}
    done = acquirer("acquire", "deploy", "--for", "60s", *words, env=variables, **leave)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (status, 1, "")
    assert "../h: the working directory was deleted" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_root_renews_for_another_user_who_releases_the_lock_later(acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    os.chown(path, 65534, -1)
    assert word(acquirer("renew", "--handle", path)) == (0, "")
    assert Path(path).stat().st_uid == 65534


def test_settings_of_run_that_would_do_without_the_lock_do_not_count(acquirer: Acquirer) -> None:
    acquirer.acquire()
    for variable in ("LOCKCTL_SKIP_OK", "LOCKCTL_ON_UNAVAILABLE"):
        env = {variable: "true" if "SKIP" in variable else "run", "LOCKCTL_MAX_RUNTIME": "1s"}
        assert acquirer("acquire", "deploy", "--for", "5s", env=env).returncode == 75
    env = {"LOCKCTL_ON_UNAVAILABLE": "run"}
    assert acquirer("acquire", "other", "--for", "5s", "-b", "redis://127.0.0.1:1/0", env=env).returncode == 69


def test_a_umask_that_forbids_all_leaves_a_directory_for_sockets_that_can_be_used(acquirer: Acquirer) -> None:
    taken = acquirer("acquire", "deploy", "--for", "60s", "--export", "sh", umask=0o777)
    assert (taken.returncode, taken.stderr) == (0, "")
    assert acquirer.state() == "held"


def test_a_directory_for_sockets_that_its_user_may_not_read_is_refused_in_one_line(acquirer: Acquirer) -> None:
    place = acquirer.runtime / "lockctl"
    place.mkdir(mode=0o300)
    refused = acquirer("acquire", "deploy", "--for", "60s")
    assert (refused.returncode, refused.stdout) == (78, "")
    assert (
        refused.stderr
        == f"lockctl: {place} must be a directory of this user alone (chmod 700): a daemon listens there\n"
    )


def test_paths_in_settings_count_from_where_acquire_was_started(acquirer: Acquirer) -> None:
    (acquirer.runtime / "metrics").mkdir()
    env = {"LOCKCTL_FENCE": f"data-{os.getpid()}", "LOCKCTL_METRICS_DIR": "metrics"}
    path = acquirer.acquire(env=env, cwd=acquirer.runtime)
    mark = acquirer("fence", "show", env["LOCKCTL_FENCE"], "--json", cwd=acquirer.runtime)
    assert json.loads(mark.stdout)["current"]["token"] == read(path)["token"]
    assert acquirer("release", "--handle", path).returncode == 0
    assert (acquirer.runtime / "metrics/lockctl-deploy.prom").exists()


def test_a_resource_of_the_configuration_that_refuses_the_token_leaves_no_handle_and_no_lock(
    acquirer: Acquirer,
) -> None:
    resource = str(acquirer.runtime / "data")
    newest = ("--token", "9223372036854775807", "--domain", "another", "--yes")
    assert acquirer("fence", "reset", resource, *newest).returncode == 0
    refused = acquirer("acquire", "deploy", "--for", "5s", env={"LOCKCTL_FENCE": resource})
    assert (refused.returncode, refused.stdout) == (77, "")
    assert f"nothing was started: {resource} refuses token" in refused.stderr
    assert acquirer("run", "-l", "deploy", "--", "true").returncode == 0


@pytest.mark.parametrize("limit", range(4, 20))
def test_too_few_descriptors_for_a_daemon_are_told_in_lines_without_a_traceback(acquirer: Acquirer, limit: int) -> None:
    line = f"ulimit -n {limit}; exec {shlex.quote(acquirer.lockctl.command)} acquire deploy --for 60s --export sh"
    environment = acquirer.lockctl.environment(acquirer.env)
    done = subprocess.run(
        ["sh", "-c", line], env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert (done.returncode == 70, "Traceback" in done.stderr) == (False, False)
    assert done.stderr.count("cannot start: ") <= 1
    if done.stderr.startswith("lockctl: "):
        assert (done.returncode == 78, done.stdout) == (False, f"(exit {done.returncode})\n")


def test_a_refusal_that_cannot_be_passed_on_is_told_nevertheless(acquirer: Acquirer) -> None:
    """The daemon says why in a file, for which there may be no room."""
    acquirer.acquire()
    program = shlex.quote(acquirer.lockctl.command)
    environment = acquirer.lockctl.environment(acquirer.env)
    for blocks, quiet, told in ((0, "", 1), (1, "-q", 0)):
        line = f"trap '' XFSZ; ulimit -f {blocks}; exec {program} acquire deploy --for 60s {quiet}"
        done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)
        said = (done.stderr.count("\n"), done.stderr.count(".log: File too large\n"))
        assert (done.returncode, said) == (75, (told, told))
