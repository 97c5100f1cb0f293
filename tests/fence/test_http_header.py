"""The header of a fencing token: every mark survives it, and nothing else is one."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.errors import BackendUnavailable, ConfigError, UsageError
from lockctl.fence import LARGEST, Mark, Stale, http

PRINTABLE = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), min_size=1, max_size=300)
MARKS = st.builds(Mark, PRINTABLE, st.integers(1, LARGEST))
LIKELY = st.text(st.sampled_from('ab:;,%% 019\t\n"\\\N{SNOWMAN}\x00F;'), max_size=30)


@given(MARKS)
def test_every_mark_comes_back_from_its_header(mark: Mark) -> None:
    text = http.format_header(mark)
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert http.parse_header(text) == mark
    assert http.mark_of([text]) == mark


@given(st.text() | LIKELY | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_is_a_mark_or_is_refused_with_one_line(text: str) -> None:
    try:
        mark = http.parse_header(text)
    except http.MalformedToken as refused:
        said = str(refused)
    else:
        said = ""
        assert http.parse_header(http.format_header(mark)) == mark
        assert 0 < mark.token <= LARGEST
        assert mark.domain.isprintable()
    assert said.isprintable()


@given(
    st.text() | MARKS.map(http.format_header), st.text() | MARKS.map(http.format_header), st.sampled_from([",", ", "])
)
def test_a_header_that_came_twice_is_no_mark_however_a_server_joins_it(first: str, second: str, comma: str) -> None:
    with pytest.raises(http.MalformedToken):
        http.mark_of([first, second])
    with pytest.raises(http.MalformedToken):
        http.mark_of([first + comma + second])
    with pytest.raises(http.MalformedToken, match="twice"):
        http.mark_of(["d;33" + comma + "d;33"])


def test_the_longest_mark_fits() -> None:
    longest = Mark("\N{GRINNING FACE}" * 300, LARGEST)
    assert len(http.format_header(longest)) == http.LONGEST
    assert http.parse_header(http.format_header(longest)) == longest
    with pytest.raises(http.MalformedToken, match="too long"):
        http.parse_header("a" * http.LONGEST + ";1")


def test_usual_domains_stand_in_the_header_as_they_are() -> None:
    for domain in ("etcd:14841639068965178418", "redis:[::1]:6379/0", "postgresql:7/app/locks", "file:web3:/srv/locks"):
        assert http.format_header(Mark(domain, 33)) == f"{domain};33"


NOT_MARKS = "|;|33|d|d;|;33|d;0|d;-1|d;+1|d; 1|d;1 | d;1|d;1.0|d;0x1|d;1e3|d;\u0661|d;1;2|d;9223372036854775808"
NOT_MARKS += '|d;00000000000000000001|d e;1|d\\;1|d";1|d%;1|d%4;1|d%zz;1|d%+1;1|d%FF;1|d%00;1|d%0A;1'
NOT_MARKS += "|\N{SNOWMAN};1|d;1\n|d%C0%80;1|d%ED%A0%80;1"


@pytest.mark.parametrize("text", NOT_MARKS.split("|"))
def test_what_is_not_a_mark_is_refused(text: str) -> None:
    with pytest.raises(http.MalformedToken, match="X-Fencing-Token"):
        http.parse_header(text)


@pytest.mark.parametrize(
    "mark", [Mark("", 1), Mark("d\n", 1), Mark("d" * 301, 1), Mark("d", 0), Mark("d", LARGEST + 1)]
)
def test_what_no_lock_gave_is_not_sent(mark: Mark) -> None:
    with pytest.raises(ValueError, match="not"):
        http.format_header(mark)


def test_the_header_of_a_client_comes_from_its_environment() -> None:
    environ = {"LOCKCTL_TOKEN": "33", "LOCKCTL_TOKEN_DOMAIN": "file:web 3:/a,b"}
    assert http.headers(environ) == {"X-Fencing-Token": "file:web%203:/a%2Cb;33"}
    for wrong in ({}, {"LOCKCTL_TOKEN": "33"}, {"LOCKCTL_TOKEN": "x", "LOCKCTL_TOKEN_DOMAIN": "d"}):
        with pytest.raises(UsageError):
            http.headers(wrong)


def test_an_answer_that_refuses_the_token_is_an_error_of_the_client_and_no_other_answer_is() -> None:
    fields = Message()
    offered = Mark("d", 33)
    for status in (200, 412, 428, 500):
        http.raise_if_stale("stock", offered, status, fields)  # another precondition of HTTP
    fields["x-fencing-token-current"] = "d;34"
    http.raise_if_stale("stock", offered, 200, fields)
    with pytest.raises(Stale, match="already seen token 34") as told:
        http.raise_if_stale("stock", offered, 412, fields)
    assert told.value.current == Mark("d", 34)
    fields.replace_header("x-fencing-token-current", "<script>")
    with pytest.raises(BackendUnavailable, match="not DOMAIN;TOKEN"):
        http.raise_if_stale("stock", offered, 412, fields)


def test_a_refusal_is_a_problem_document_that_says_nothing_of_the_store() -> None:
    strange = Mark('d";\n\N{SNOWMAN}'.replace("\n", ","), LARGEST)
    stale = http.refusal(Stale("stock", Mark("d", 1), strange), "stock")
    assert stale.status_line == "412 Precondition Failed"
    assert json.loads(stale.body)["current"] == {"domain": strange.domain, "token": LARGEST}
    assert json.loads(stale.body)["error"] == "other_domain"
    assert http.parse_header(dict(stale.fields)["X-Fencing-Token-Current"]) == strange
    for error, status, name in (
        (Stale("redis at 10.1.2.3", Mark("d", 1), Mark("d", 2)), 412, "stale"),
        (Stale("redis at 10.1.2.3", Mark("d", 1), Mark("e", 2)), 412, "other_domain"),
        (http.MissingToken("m"), 428, "missing"),
        (http.MalformedToken("m"), 400, "malformed"),
        (http.NoLength("m"), 411, "no_length"),
        (UsageError("redis at 10.1.2.3"), 400, "resource"),
        (BackendUnavailable("redis at 10.1.2.3"), 503, "unavailable"),
        (ConfigError("redis at 10.1.2.3"), 500, "unusable"),
    ):
        answer = http.refusal(error, 'a"\ud800')
        document = json.loads(answer.body)
        assert (answer.status, document["status"], document["error"]) == (status, status, name)
        assert document["resource"].startswith('a"')
        assert list(document) == ["title", "status", "detail", "error", "resource", "current"]
        assert "10.1.2.3" not in answer.body.decode()
        assert "lockctl" not in document["detail"]  # what an operator may do
        assert int(dict(answer.fields)["Content-Length"]) == len(answer.body)


def test_a_client_of_the_standard_library_sends_the_header_and_reads_the_refusal() -> None:
    got: list[list[str] | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            got.append(self.headers.get_all("X-Fencing-Token"))
            self.send_response(412)
            self.send_header("X-Fencing-Token-Current", "d;34")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    environ = {"LOCKCTL_TOKEN": "33", "LOCKCTL_TOKEN_DOMAIN": "d"}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        request = urllib.request.Request(url, b"", http.headers(environ), method="PUT")
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(request, timeout=5)
        server.shutdown()
    assert got == [["d;33"]]
    with answer.value as refused, pytest.raises(Stale):
        http.raise_if_stale(url, Mark("d", 33), refused.code, refused.headers)
