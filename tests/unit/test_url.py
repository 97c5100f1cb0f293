"""lockctl.url: taken apart right, and never a secret in what is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.errors import ConfigError
from lockctl.url import parse_url, take_params


def quoted(text: str) -> str:
    """Every byte as %XX, so that any text fits anywhere."""
    return "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "surrogateescape"))


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
SECRET = TEXT.filter(bool).map(lambda text: "S3CR3T" + text)
HOSTS = st.lists(st.from_regex(r"[a-z0-9.-]{1,12}(:[0-9]{1,5})?", fullmatch=True), min_size=1, max_size=3)


@given(
    SECRET,
    HOSTS,
    st.from_regex(r"(/[a-z0-9]{1,5}){0,3}", fullmatch=True),
    st.dictionaries(TEXT.filter(bool), TEXT),
)
def test_all_parts_come_back_and_what_is_shown_has_no_secret(
    secret: str, hosts: list[str], path: str, params: dict[str, str]
) -> None:
    query = "&".join(f"{quoted(key)}={quoted(content)}" for key, content in {**params, "key": secret}.items())
    url = parse_url(f"redis://Ops:{quoted(secret)}@{','.join(hosts)}{path}?{query}")
    assert (url.scheme, url.user, url.password, url.hosts, url.path) == ("redis", "Ops", secret, tuple(hosts), path)
    assert dict(url.params) == {**params, "key": secret}
    assert "S3CR3T" not in str(url)
    assert "Ops" not in str(url)


@given(st.text(), st.text())
def test_a_url_is_taken_apart_or_refused_without_repeating_it(before: str, after: str) -> None:
    for text in (f"x:{before}S3CR3T{after}", f"{before}S3CR3T{after}"):
        try:
            parse_url(text)
        except ConfigError as wrong:
            said = str(wrong)
        else:
            said = ""
        assert "\n" not in said
        assert "S3CR3T" not in said


@given(SECRET)
def test_a_broken_url_does_not_leak_its_password(secret: str) -> None:
    for broken in (
        f"redis://:{quoted(secret)}%zz@h/",
        f":{secret}@h",
        f"re dis://:{secret}@h",
        f"redis://h?a=%q&p={quoted(secret)}",
    ):
        with pytest.raises(ConfigError) as refused:
            parse_url(broken)
        assert "S3CR3T" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "hosts", "path"),
    [
        ("file:///var/lib/lockctl", (), "/var/lib/lockctl"),
        ("file:/var/lib", (), "/var/lib"),
        ("file:", (), ""),
        ("FILE://", (), ""),
        ("file:///a%20b%3f", (), "/a b?"),
        ("redlock://h1:1,h2:2/0", ("h1:1", "h2:2"), "/0"),
        ("etcd://[::1]:2379", ("[::1]:2379",), ""),
        ("redis://a@b@host/", ("host",), "/"),
    ],
)
def test_these_urls_are_read_like_this(text: str, hosts: tuple[str, ...], path: str) -> None:
    url = parse_url(text)
    assert (url.scheme, url.hosts, url.path) == (text.partition(":")[0].lower(), hosts, path)


@pytest.mark.parametrize(
    "text", ["file:///a%00b", "redis://a%00b/", "redis://:p4%00ss@h", "etcds://h/?ca=%00", "redis://h/a\0"]
)
def test_a_nul_character_is_refused_wherever_it_stands(text: str) -> None:
    with pytest.raises(ConfigError, match="NUL character") as refused:
        parse_url(text)
    assert "p4" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["redis", "redis+unix", "sqlite", "file"])
def test_a_password_behind_one_slash_alone_is_no_path(scheme: str) -> None:
    with pytest.raises(ConfigError, match="between // and the host") as refused:
        parse_url(f"{scheme}:/user:s3cret@host/path")
    assert "s3cret" not in str(refused.value)
    assert parse_url("file:/srv/a:b@c").path == "/srv/a:b@c"


def test_a_percent_sign_before_two_zeros_is_no_nul() -> None:
    assert parse_url("file:///a%2500").path == "/a%00"


def test_an_empty_password_is_not_the_same_as_none() -> None:
    assert parse_url("redis://:@h").password == ""
    assert parse_url("redis://u@h").password is None
    assert parse_url("redis://u@h").user == "u"
    assert parse_url("redis://h").user is None


def test_parameters_have_defaults_and_an_unknown_one_is_named_with_those_there_are() -> None:
    allowed = {"prefix": "locks/", "dc": ""}
    assert take_params(parse_url("consul://h?dc=a%26b"), allowed) == {"prefix": "locks/", "dc": "a&b"}
    with pytest.raises(ConfigError, match=r"no parameter 'prefx'; there are: dc, prefix"):
        take_params(parse_url("consul://h?prefx=S3CR3T"), allowed)
