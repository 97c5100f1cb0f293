"""`lockctl config`: which file counts, where each value comes from, what is wrong; and no secret anywhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs import Lockctl

    Write = Callable[..., Path]

SECRET = "hunter2"


# of a resource, and of a backend: what a run refuses whatever servers say
RESOURCES = (
    ("/none/x", "file: cannot use /none/x: there is no such directory"),
    ("file:///none/x", "file: cannot use /none/x: there is no such directory"),
    ("/etc/passwd/x", "file: cannot use /etc/passwd/x: a part of the path is not a directory"),
    ("sqlite:///none.db", "sqlite: /none.db: there is no such database"),
    ("sqlite:///etc/passwd", "sqlite: /etc/passwd: file is not a database"),
    ("http://127.0.0.1:1/a/", "http://127.0.0.1:1/a/: no object: the path must end with a name"),
    ("s3://bucket/?endpoint=http://127.0.0.1:1", "s3://bucket/: no object: the path must end with a name"),
    ("https://127.0.0.1:1/a?ca=/none.pem", "ca /none.pem: No such file"),
)
UNUSABLE = (
    ("file:///etc/passwd", "file: cannot use /etc/passwd"),
    ("sqlite:///etc/passwd", "sqlite: /etc/passwd: file is not a database"),
    ("rediss://127.0.0.1:1/?ca=/none.pem", "ca /none.pem: No such file"),
    ("etcds://127.0.0.1:1/?ca=/etc/hosts", "ca /etc/hosts: no certificate"),
    ("etcds://127.0.0.1:1/?cert=/none.pem", "client certificate /none.pem: No such file"),
    ("consuls://127.0.0.1:1/?ca=/none.pem", "ca /none.pem: No such file"),
    ("zookeepers://127.0.0.1:1/x?ca=/none.pem", "ca /none.pem: No such file"),
    ("postgresql://u@127.0.0.1:1/x?cert=/none.pem&key=5", "client certificate /none.pem: No such file"),
    ("nats://127.0.0.1:1/x?creds=/none", "creds /none: No such file"),
    ("kubernetes://x?kubeconfig=/none", "kubeconfig /none: No such file"),
    ("gcs://x/y?credentials=/none", "credentials /none: No such file"),
)


@pytest.fixture
def write(locks: Path) -> Write:
    """Write a configuration, at the place of the user's own unless told otherwise."""

    def write_(text: str, name: str = ".no-config/lockctl/config.toml") -> Path:
        path = locks / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_


def shown(lockctl: Lockctl, *words: str, **environment: str) -> dict[str, tuple[str, str]]:
    """Name -> (value, source), as `config show --json` has it."""
    done = lockctl("config", "show", "--json", *words, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return {name: (entry["value"], entry["source"]) for name, entry in json.loads(done.stdout).items()}


def test_every_value_is_shown_with_where_it_came_from(lockctl: Lockctl, write: Write) -> None:
    path = write('[defaults]\nwait = "5m"\nttl = 60\n[locks."a*"]\nttl = "2m"\nskip_ok = true\n')
    found = shown(lockctl, "-l", "abc", LOCKCTL_SIGNAL="int")
    assert found["wait"] == ("5m", f"{path} [defaults]")
    assert found["ttl"] == ("2m", f'{path} [locks."a*"]')
    assert found["skip_ok"] == ("true", f'{path} [locks."a*"]')
    assert found["signal"] == ("INT", "$LOCKCTL_SIGNAL")
    assert found["backend"] == (lockctl.url, "$LOCKCTL_BACKEND")
    assert found["leftover"] == ("kill", "built-in")
    assert found["max_runtime"] == ("", "built-in")
    assert shown(lockctl, "-l", "other")["ttl"] == ("1m", f"{path} [defaults]")


def test_a_variable_counts_more_than_the_file_and_an_option_more_than_both(lockctl: Lockctl, write: Write) -> None:
    write('[defaults]\nbackend = "one"\n[backends.one]\nurl = "file:///one"\n[backends.two]\nurl = "file:///two"\n')
    assert shown(lockctl, LOCKCTL_BACKEND="")["backend"][0] == "file:///one"
    assert shown(lockctl, LOCKCTL_BACKEND="two")["backend"] == ("file:///two", "$LOCKCTL_BACKEND")
    assert shown(lockctl, "-b", "one", LOCKCTL_BACKEND="two")["backend"] == ("file:///one", "--backend")


def test_people_get_a_table_of_the_same(lockctl: Lockctl) -> None:
    done = lockctl("config", "show")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["SETTING", "VALUE", "SOURCE"]
    assert ["max_runtime", "-", "built-in"] in lines
    assert [line[0] for line in lines[1:]] == list(shown(lockctl))


def test_the_first_file_that_exists_counts(lockctl: Lockctl, write: Write) -> None:
    def path(*words: str, **environment: str) -> str:
        done = lockctl("config", "path", *words, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    assert path() in ("", "/etc/lockctl/config.toml")
    user = write("")
    named, asked = write("", "named.toml"), write("", "asked.toml")
    assert path() == str(user)
    assert path(LOCKCTL_CONFIG=str(named)) == str(named)
    assert path("--config", str(asked), LOCKCTL_CONFIG=str(named)) == str(asked)


def test_a_file_that_is_asked_for_and_missing_is_an_error(lockctl: Lockctl) -> None:
    missing = str(lockctl.directory / "missing.toml")
    for words in (
        ["config", "path"],
        ["config", "check"],
        ["config", "show"],
        ["list"],
        ["run", "-l", "a", "--", "true"],
    ):
        done = lockctl(*words, env={"LOCKCTL_CONFIG": missing})
        assert done.returncode == 78
        assert missing in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[defaults]\n\nwait = "5m"\nbanana = 1\n', ":4: [defaults] banana: unknown key"),
        ('[defaults]\nttl = "10s"\nkill_after = "10s"\n', ":3: [defaults] kill_after: kill_after must be shorter"),
        ('[defaults]\nkill_after = "10s"\n[locks.a]\nttl = "9s"\n', ":4: [locks.a] ttl: kill_after must be shorter"),
        ("[locks.a]\nshared = true\nslots = 2\n", ":3: [locks.a] slots: shared and slots contradict each other"),
        ('[locks.a]\nttl = "9s"\nkill_after = "9s"\n', ":3: [locks.a] kill_after: kill_after must be shorter"),
        (
            '[defaults]\nguarantee = "correctness"\n[locks.a]\nfence = "none"\n',
            "--guarantee correctness is not met: --fence none lets the resource accept earlier holders (",
        ),
        ('[locks.a]\nfence = "nosuch://h/x"\n', '[locks."a"] fence: no store of marks for'),
        ('[defaults]\nfence = "redis://h/0?resorce=x"\n', "[defaults] fence: redis: no parameter 'resorce'"),
        ('[defaults]\nfence = "redis:x"\n', ":2: [defaults] fence: must be an absolute path, or a URL such"),
        ('[locks.a]\nfence = "data/stock"\n', ":2: [locks.a] fence: must be an absolute path, or a URL such"),
        ("[defaults]\nshared = true\nslots = 2\n", ":3: [defaults] slots: shared and slots contradict each other"),
        (
            '[defaults]\nmin_hold = "1m"\n[locks."a*"]\nshared = true\n',
            ":4: [locks.a*] shared: min_hold and shared contradict each other",
        ),
        ('[defaults]\nguarantee = "correctness"\nleftover = "leave"\n', "correctness is not met: --leftover leave"),
        ('[locks.a]\nguarantee = "correctness"\non_unavailable = "run"\n', "correctness is not met: --on-unavail"),
        (
            '[defaults]\nguarantee = "correctness"\n[locks.a]\nbackend = "redis://127.0.0.1:1/0"\n',
            "correctness is not met: the tokens of redis are not guaranteed to rise",
        ),
        ('[locks.a]\nbackend = "consul://h/"\nshared = true\n', "the consul backend does not have --shared"),
        ('[locks.a]\nreport = "/no-such-dir/r"\n', '[locks."a"] report: cannot write /no-such-dir/r: '),
        ('[defaults]\nmetrics_dir = "/no-such-dir"\n', "[defaults] metrics_dir: /no-such-dir is not a directory"),
        ('[defaults]\nlog = "/no-such-dir/log"\n', "[defaults] log: cannot write to /no-such-dir/log: "),
        ('[defaults]\nttl = "500ms"\n', "it must be at least 1s (ttl: "),
        ('[locks."a*"]\nttl = "10s"\nkill_after = "9s"\n', "kill-after 9s is too long for a ttl of 10s"),
        ('[locks.a]\nbackend = "y"\n', "[locks.\"a\"] backend: 'y' is neither a URL nor a backend profile"),
        ('[backends.x]\nuri = "file:///x"\n', ":2: [backends.x] uri: this backend has no url"),
        ('[backends.x]\nurl = "banana://x"\n', ":2: [backends.x] url: no backend for 'banana' URLs"),
        (
            '[backends.x]\nurl = "file:///x"\nprefx = "y"\n',
            ":3: [backends.x] prefx: unknown key; this backend has: url",
        ),
        ('[backends.x]\nurl = "file:x"\n', ":2: [backends.x] url: a backend is a URL"),
        ('[backends.x]\nurl = "file:///x"\nprefix = "a/b"\n', ":2: [backends.x] url: file: prefix 'a/b'"),
        (
            '[backends.x]\nurl = "redis://h"\npassword_file = "/nowhere"\n',
            ":3: [backends.x] password_file: /nowhere: No such file or directory",
        ),
        (
            '[backends.x]\nurl = "redis://h"\npassword_command = "exit 3"\n',
            ":3: [backends.x] password_command: the command failed with status 3",
        ),
        ('[backends.x]\nurl = "redis://h"\nca = "a\\u0000"\n', ":3: [backends.x] ca: must not contain a NUL character"),
        ('[backends.x]\nurl = "redis://h/%00"\n', ":2: [backends.x] url: a backend URL must not contain a NUL"),
        ("[defaults]\nttl = " + "1" * 5000 + "\n", "not valid TOML: a number is too long"),
        ('[defaults]\nttl = "banana"\nreport = """\na = ' + "1" * 5000 + '"""\n', ":2: [defaults] ttl: 'banana'"),
        (
            '[defaults]\nreport = """\na = ' + "1" * 5000 + '"""\nttl = "banana"\n',
            ":4: [defaults] ttl: 'banana'",
        ),
        *((f'[defaults]\nfence = "{fence}"\n', f"[defaults] fence: {said}") for fence, said in RESOURCES),
        *((f'[locks.a]\nbackend = "{url}"\n', f'[locks."a"] backend: {said}') for url, said in UNUSABLE),
        *((f'[backends.x]\nurl = "{url}"\n', f"[backends.x] url: {said}") for url, said in UNUSABLE[:2]),
        ('[backends.x]\nurl = "rediss://h/"\nca = "/none.pem"\n', ":3: [backends.x] ca: /none.pem: No such file"),
        ('[defaults]\nbackend = "y"\n', "'y' is neither a URL nor a backend profile"),
        ("[defaults\n", "not valid TOML"),
    ],
    ids=lambda value: value[:40],
)
def test_a_mistake_is_one_line_with_the_place_and_status_78(
    text: str, said: str, lockctl: Lockctl, write: Write
) -> None:
    path = write(text)
    done = lockctl("config", "check", env={"LOCKCTL_BACKEND": ""})
    assert (done.returncode, done.stdout) == (78, "")
    assert said in done.stderr
    assert str(path) in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unknown_key_in_a_profile_ends_only_the_runs_that_use_it(lockctl: Lockctl, write: Write) -> None:
    write('[backends.x]\nurl = "file:///x"\nprefx = "y"\n')
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0
    assert lockctl("run", "-l", "a", "-b", "x", "--", "true").returncode == 78
    assert lockctl("config", "check").returncode == 78


def test_variables_that_contradict_each_other_are_a_mistake_too(lockctl: Lockctl) -> None:
    done = lockctl("config", "check", env={"LOCKCTL_SHARED": "true", "LOCKCTL_SLOTS": "2"})
    assert (done.returncode, done.stdout) == (78, "")
    assert "--shared ($LOCKCTL_SHARED) and --slots ($LOCKCTL_SLOTS) contradict each other" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "[defaults]\nverbose = true\n",
        "[defaults]\nshared = true\n[locks.a]\nslots = 1\n",
        '[defaults]\nonce_per = "1h"\n[locks.a]\nonce_per = 0\nrestart = true\n',
        '[locks.a]\nslots = 2\n[locks.b]\nmin_hold = "1m"\n',
    ],
)
def test_a_file_without_mistakes_is_said_to_be_right(lockctl: Lockctl, write: Write, text: str) -> None:
    path = write(text)
    done = lockctl("config", "check")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}: ok\n", "")


WITH_A_SECRET = [
    f"redis://:{SECRET}@127.0.0.1:1/0",
    f"redis://user:{SECRET}@127.0.0.1:1/0?prefix=x",
    f"file://user:{SECRET}@/var/lib/lockctl",
    f"file:///var/lib/lockctl?password={SECRET}",
    f"file:///var/lib/lockctl?any_filesystem={SECRET}",
    f"file:///var/lib/lockctl?{SECRET}=%zz",
    f"nosuch://user:{SECRET}@host/",
    f"//user:{SECRET}@host",
    f"user:{SECRET}@host",
    f"redis://:{SECRET}/{SECRET}@127.0.0.1:1/0",
    f"redis://:{SECRET}?{SECRET}@127.0.0.1:1/0",
    f"redis://:p@{SECRET}/x@127.0.0.1:1/0",
]
RUN = ("run", "-v", "-l", "a", "--", "true")


def tells_no_secret(lockctl: Lockctl, words: tuple[str, ...], backend: str) -> None:
    done = lockctl(*words, env={"LOCKCTL_BACKEND": backend})
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in {69, 78} or words[0] == "config"


@pytest.mark.parametrize("url", WITH_A_SECRET)
def test_no_secret_of_a_url_is_ever_printed(url: str, lockctl: Lockctl) -> None:
    for words in (("config", "show"), ("config", "check"), RUN):
        tells_no_secret(lockctl, words, url)


def test_no_secret_of_a_profile_is_ever_printed(lockctl: Lockctl, write: Write) -> None:
    write("".join(f'[backends.p{number}]\nurl = "{url}"\n' for number, url in enumerate(WITH_A_SECRET)))
    tells_no_secret(lockctl, ("config", "check"), "p0")
    for number in range(len(WITH_A_SECRET)):
        tells_no_secret(lockctl, RUN if number % 2 else ("config", "show"), f"p{number}")


@pytest.mark.parametrize("verb", [["list"], ["inspect", "a"], ["force-release", "a"], ["run", "-l", "a"]], ids=" ".join)
def test_no_secret_of_an_option_is_ever_printed(verb: list[str], lockctl: Lockctl) -> None:
    command = ["--", "true"] if verb[0] == "run" else []
    done = lockctl(*verb, "-b", f"redis://:{SECRET}@127.0.0.1:1/0", *command)
    assert done.returncode == 69
    assert "redis at 127.0.0.1:1: cannot connect: Connection refused" in done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("verb", ["path", "check"])
def test_the_file_that_counts_is_said_as_json_too(lockctl: Lockctl, write: Write, verb: str) -> None:
    done = lockctl("config", verb, "--json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, {"path": None}, "")
    path = write("[defaults]\nttl = 60\n")
    done = lockctl("config", verb, "--json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, {"path": str(path)}, "")


def test_a_wrong_file_is_no_document(lockctl: Lockctl, write: Write) -> None:
    write("[defaults]\nbanana = 1\n")
    done = lockctl("config", "check", "--json")
    assert (done.returncode, done.stdout) == (78, "")
    assert "banana" in done.stderr


def told_while_everybody_can_read(lockctl: Lockctl, path: Path, secret: Path) -> list[str]:
    """The warnings of `config check` about both files; there are none when their owner alone can read them."""
    told = []
    for mode in (0o644, 0o600):
        path.chmod(mode)
        secret.chmod(mode)
        done = lockctl("config", "check", env={"LOCKCTL_BACKEND": ""})
        assert (done.returncode, done.stdout) == (0, f"{path}: ok\n")
        assert SECRET not in done.stderr
        told.append(done.stderr)
    assert told[1] == ""
    return told[0].splitlines()


def test_a_password_that_everybody_can_read_is_told(lockctl: Lockctl, write: Write, locks: Path) -> None:
    (locks / ".secret").write_text("hunter2\n")
    path = write(
        f'[defaults]\nbackend = "redis://:{SECRET}@127.0.0.1/0"\n[backends.one]\nurl = "redis://127.0.0.1/0"\n'
        f'password = "{SECRET}"\n[backends.two]\nurl = "redis://127.0.0.1/0"\npassword_file = "{locks}/.secret"\n'
        f'[backends.three]\nurl = "redis+sentinel://127.0.0.1/main?sentinel_password_file={locks}/.secret"\n'
        f'[backends.four]\nurl = "redis+sentinel://127.0.0.1/main"\nsentinel_password_file = "{locks}/.secret"\n'
    )
    first, second, third, fourth, fifth = told_while_everybody_can_read(lockctl, path, locks / ".secret")
    assert f"{path}:2: [defaults] backend: every user can read this password" in first
    assert f"{path}:5: [backends.one] password: every user can read this password" in second
    assert f"{path}:8: [backends.two] password_file: every user can read {locks}/.secret" in third
    assert f"{path}:10: [backends.three] url: every user can read {locks}/.secret" in fourth
    assert f"{path}:13: [backends.four] sentinel_password_file: every user can read {locks}/.secret" in fifth


WITH_A_USER = [
    "redis://ops@127.0.0.1:1/0",
    "redlock://ops@h1,h2,h3/0",
    "etcd://ops@127.0.0.1:1/",
    "zookeeper://ops@127.0.0.1:1/",
    "s3://ops@stocks/locks?endpoint=http://127.0.0.1:1",
    "dynamodb://ops@locks/?region=x",
    "nats://ops@127.0.0.1:1/locks",
]


def test_the_password_of_a_profile_may_be_in_a_variable(lockctl: Lockctl, write: Write) -> None:
    profiles = "".join(f'[backends.main{number}]\nurl = "{url}"\n' for number, url in enumerate(WITH_A_USER))
    locks = "".join(f'[locks.a{number}]\nbackend = "{url}"\n' for number, url in enumerate(WITH_A_USER))
    path = write(profiles + locks)
    done = lockctl("config", "check", env={"LOCKCTL_BACKEND": "", "LOCKCTL_PASSWORD": SECRET})
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}: ok\n", "")
    done = lockctl("config", "check", env={"LOCKCTL_BACKEND": ""})
    assert (done.returncode, done.stdout) == (0, f"{path}: ok\n")
    said = done.stderr.splitlines()
    for number in range(len(WITH_A_USER)):
        (of_lock,) = [line for line in said if f'{path} [locks."a{number}"] backend: ' in line]
        (of_profile,) = [line for line in said if f"{path}:{2 * number + 2}: [backends.main{number}] url: " in line]
        for line in (of_lock, of_profile):
            assert line.endswith("; this works only where $LOCKCTL_PASSWORD is set")
    assert len(said) == 2 * len(WITH_A_USER)


@pytest.mark.parametrize(
    ("url", "own", "others"),
    [
        ("redis://h/0", {"ca", "prefix"}, {"db", "tls", "sentinel_user"}),
        ("redis+unix:///run/r.sock", {"db", "prefix"}, {"ca", "sentinel_user"}),
        ("redis+sentinel://h/main", {"db", "tls", "ca", "sentinel_user"}, set()),
    ],
)
def test_an_unknown_key_is_answered_with_those_of_the_scheme(
    lockctl: Lockctl, write: Write, url: str, own: set[str], others: set[str]
) -> None:
    write(f'[backends.main]\nurl = "{url}"\nbanana = 1\n')
    done = lockctl("config", "check")
    assert done.returncode == 78
    known = set(done.stderr.strip().partition("this backend has: ")[2].split(", "))
    assert own <= known
    assert not others & known


@pytest.mark.parametrize("variables", [{}, {"LOCKCTL_PASSWORD": SECRET}])
def test_a_password_that_is_missing_hides_no_other_mistake(
    lockctl: Lockctl, write: Write, variables: dict[str, str]
) -> None:
    urls = [f"{url}{'&' if '?' in url else '?'}banana=1" for url in WITH_A_USER]
    write("".join(f'[backends.main{number}]\nurl = "{url}"\n' for number, url in enumerate(urls)))
    done = lockctl("config", "check", env=variables)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.count("no parameter 'banana'") == len(urls)
    assert SECRET not in done.stderr


def test_a_password_of_a_fence_and_a_key_of_nats_that_everybody_can_read_are_told(
    lockctl: Lockctl, write: Write, locks: Path
) -> None:
    key = locks / ".key"
    key.write_text("SU\n")
    path = write(
        f'[defaults]\nfence = "redis://u:{SECRET}@127.0.0.1/0"\n[locks.a]\nfence = "/a:b"\n'
        f'[locks.b]\nfence = "redis://127.0.0.1/0?password_file={key}"\n'
        f'[locks.c]\nbackend = "nats://127.0.0.1/b?nkey={key}"\n'
        f'[backends.one]\nurl = "nats://127.0.0.1/b"\ncreds = "{key}"\n'
    )
    first, *others = told_while_everybody_can_read(lockctl, path, key)
    assert f"{path}:2: [defaults] fence: every user can read this password" in first
    assert [line.partition(f"{path}:")[2] for line in others] == [
        f"6: [locks.b] fence: every user can read {key}",
        f"8: [locks.c] backend: every user can read {key}",
        f"11: [backends.one] creds: every user can read {key}",
    ]


@pytest.mark.parametrize(
    "url", ["redis:/:hunter2@h/0", "redis:///:hunter2@h/0", "redis//:hunter2@h", "rediss;hunter2@h"]
)
def test_a_url_with_a_mistake_is_shown_without_its_password(lockctl: Lockctl, url: str) -> None:
    done = lockctl("config", "show", "-b", url)
    assert done.returncode == 78
    assert SECRET not in done.stdout + done.stderr
    done = lockctl("config", "show", env={"LOCKCTL_FENCE": url})
    assert SECRET not in done.stdout + done.stderr


def test_check_says_every_mistake_and_what_was_meant(lockctl, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(
        '[defaults]\ntlt = "5s"\nwait = "soon"\n[locks."a*"]\nslots = 0\n[backends.main]\nurl = "x"\n[bakends]\n'
    )
    done = lockctl("config", "check", "--config", str(file))
    assert (done.returncode, done.stdout) == (78, "")
    lines = done.stderr.splitlines()
    assert [line.partition(f"{file}:")[2].partition(":")[0] for line in lines] == ["8", "2", "3", "5", "7"]
    assert lines[0].endswith("did you mean 'backends'?")
    assert lines[1].endswith("did you mean 'ttl'?")
    file.write_text('[backends.one]\nurl = "nosuch://x"\n[backends.two]\nurl = "file:///x?y=1"\n')
    done = lockctl("config", "check", "--config", str(file))
    assert (done.returncode, len(done.stderr.splitlines())) == (78, 2)


@pytest.mark.parametrize(
    "profile",
    ['url = "redis://h/0"\npasword = "x"', 'url = "redlock://a,b/0"', 'url = "redis://h"\npassword_file = "/no"'],
)
def test_a_mistake_in_the_profile_in_use_is_said_once(lockctl, tmp_path, profile):
    file = tmp_path / "config.toml"
    file.write_text(f"[defaults]\nrestart = true\n[backends.one]\n{profile}\n")
    variables = {"LOCKCTL_BACKEND": "one", "LOCKCTL_ONCE_PER": "1h"}
    done = lockctl("config", "check", "--config", str(file), env=variables)
    assert (done.returncode, len(done.stderr.splitlines())) == (78, 2)
    assert "contradict each other" in done.stderr.splitlines()[0], "it does not hide another one"
    assert "[backends.one]" in done.stderr.splitlines()[1]


@pytest.mark.parametrize("words", [["run", "-l", "a", "--", "true"], ["list"], ["config", "show"]])
def test_a_profile_that_is_misspelt_gets_the_one_that_was_meant(lockctl, write, words):
    write('[backends.redis]\nurl = "redis://127.0.0.1:1/0"\n[backends.other]\nurl = "file:///x"\n')
    done = lockctl(*words, env={"LOCKCTL_BACKEND": "redi"})
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)
    assert "'redi' is neither a URL nor a backend profile" in done.stderr
    assert done.stderr.endswith("did you mean 'redis'?\n")


@pytest.mark.parametrize("words", [["run", "-l", "a", "--", "true"], ["list"], ["acquire", "a", "--for", "3s"]])
def test_a_variable_that_means_nothing_is_said_once(lockctl, words):
    done = lockctl(*words, env={"LOCKCTL_WIAT": "5s"})
    assert done.returncode == 0
    assert done.stderr.count("$LOCKCTL_WIAT: no such setting of lockctl: did you mean 'LOCKCTL_WAIT'?") == 1
