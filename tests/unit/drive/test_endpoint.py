"""The server's address: URLs, TLS, proxies, secrets, and what each request says of itself."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.drive.endpoint import Endpoint, key_from
from harness.drive.pool import StartError
from tests.support.drive_servers import (
    FINE,
    answer_well,
    answers,
    driven,
    plain,
    plan_of,
)


def test_each_request_says_who_it_is_and_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    echo = plain("401 No", b'{"error":{"message":"bad key sk-very-secret"}}')
    done = driven(answers(echo), plan_of(1, id=["né\r\nX: 1"]), key=key_from("MY_KEY"), headers={"X-Team": "a"})
    request = done.server.requests[0]
    assert request.header(b"authorization") == "Bearer sk-very-secret"
    assert request.header(b"x-request-id") == "n___X:_1"
    assert request.header(b"accept-encoding") == "identity"
    assert request.header(b"x-team") == "a"
    assert request.head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert done.results[0].error == "http_401: bad key [key]"
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(UserError, match="MY_KEY"):
        key_from("MY_KEY")


def test_ipv6() -> None:
    try:
        done = driven(answer_well, plan_of(2), host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert done.ends == [FINE] * 2
    assert done.server.requests[0].header(b"host").startswith("[::1]:")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An authority of its own for 127.0.0.1: certificate and key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not here")
    directory = tmp_path_factory.mktemp("tls")
    pem, key = directory / "ca.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(pem), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return pem, key


def test_tls_with_a_private_authority(certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    done = driven(answer_well, plan_of(3), server_tls=context, ca_file=str(certificate[0]))
    assert done.ends == [FINE] * 3
    assert done.driver.connections == 1
    with pytest.raises(StartError, match="tls: "):
        driven(answer_well, plan_of(1), server_tls=context)


def test_a_proxy_variable_is_not_followed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert driven(answer_well, plan_of(1)).ends == [FINE]
    assert Endpoint("http://127.0.0.1").notes() == ["http_proxy: set, and not used: requests go to 127.0.0.1 directly"]


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "http://a:b@x", "http://x?y"]
)
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(UserError, match="--url"):
        Endpoint(url)


@pytest.mark.parametrize(
    ("url", "path"),
    [("http://x", "/v1/completions"), ("http://x/v1/", "/v1/completions"), ("http://x/a", "/a/v1/completions")],
)
def test_the_url_may_end_in_v1(url: str, path: str) -> None:
    assert Endpoint(url).path == path


def test_secrets_show_nowhere_and_headers_stay_one_line() -> None:
    assert "sk-" not in repr(Endpoint("http://x", key="sk-1", headers={"A": "sk-2"}))
    with pytest.raises(UserError):
        Endpoint("http://x", key="a\r\nb")
    with pytest.raises(UserError):
        Endpoint("https://x", ca_file="/nowhere.pem").context()
