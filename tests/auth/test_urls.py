"""The URLs in the settings: kept byte for byte, compared exactly, refused where that is unsafe."""

from typing import Any

import pytest

from fastapi_mcp_mrtr.auth.urls import canonical, checked_url, is_loopback, metadata_url


@pytest.mark.parametrize(
    "url",
    [
        "https://as.example.com",
        "https://as.example.com/",
        "https://as.example.com/tenant1",
        "https://AS.example.com:8443/Tenant/",
        "https://[2001:db8::1]/x",
        "http://localhost:9000",
        "http://as.localhost",
        "http://127.0.0.1:8000/as",
        "http://127.8.9.1",
        "http://[::1]:8000",
    ],
)
def test_urls_are_kept_byte_for_byte(url: str) -> None:
    """rule 6: an issuer with a slash appended is another issuer."""
    assert checked_url("issuer", url) is url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://as.example.com", "must be https"),
        ("http://128.0.0.1", "must be https"),
        ("http://localhost.example.com", "must be https"),
        ("ftp://as.example.com", "must be https"),
        ("https://as.example.com/x#y", "fragment"),
        ("https://as.example.com/x#", "fragment"),
        ("https://as.example.com/x?y=z", "query"),
        ("https://as.example.com/x?", "query"),
        ("https://alice:secret@as.example.com", "user information"),
        ("as.example.com", "absolute"),
        ("/mcp", "absolute"),
        ("https:///mcp", "absolute"),
        ("https:as.example.com", "absolute"),
        ("https://as.example.com:port", "is no URL"),
        ("https://as.example.com:99999", "is no URL"),
        ("https://[::1", "is no URL"),
        ('https://as.example.com/"', "is no URL"),
        ("https://as.example.com/\\", "is no URL"),
        ("https://as.example.com/ ", "is no URL"),
        ("https://as.example.com/\n", "is no URL"),
        ("https://äs.example.com", "is no URL"),
        ("", "is no URL"),
        (None, "is no URL"),
    ],
)
def test_unsafe_or_ambiguous_urls_are_refused(url: Any, why: str) -> None:
    """rules 7, 20: https but for loopback, no query, no fragment; nothing to be quoted."""
    with pytest.raises(ValueError, match=why) as refused:
        checked_url("resource", url)
    assert str(refused.value).startswith(f"resource={url!r} ")


def test_a_query_or_fragment_is_possible_where_it_makes_sense() -> None:
    """decision: Azure AD B2C has its policy in the query of the jwks_uri."""
    url = "https://as.example.com/keys?p=policy#top"
    assert checked_url("jwks_uri", url, query=True, fragment=True) == url


def test_loopback_is_known_by_name_and_by_address() -> None:
    """rule 20: localhost excepted."""
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("0.0.0.0")


@pytest.mark.parametrize(
    ("uri", "form"),
    [
        ("HTTPS://API.Example.com/MCP", "https://api.example.com/MCP"),
        ("https://api.example.com", "https://api.example.com"),
        ("https://api.example.com/", "https://api.example.com/"),
        ("HTTP://LOCALHOST:80//a/", "http://localhost:80//a/"),
        ("api://5B1C-Aa", "api://5B1C-Aa"),
        ("urn:X:Y", "urn:X:Y"),
        ("5B1C", "5B1C"),
    ],
)
def test_scheme_and_host_of_a_web_url_are_lower_case(uri: str, form: str) -> None:
    """rule 7, spec: SHOULD (index §Canonical Server URI): and everything else is as it was."""
    assert canonical(uri) == form


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        ("https://h/mcp", "https://h/.well-known/oauth-protected-resource/mcp"),
        ("https://h/public/mcp", "https://h/.well-known/oauth-protected-resource/public/mcp"),
        ("https://h/mcp/", "https://h/.well-known/oauth-protected-resource/mcp/"),
        ("https://h", "https://h/.well-known/oauth-protected-resource"),
        ("https://h/", "https://h/.well-known/oauth-protected-resource"),
        ("https://h:8443/m", "https://h:8443/.well-known/oauth-protected-resource/m"),
    ],
)
def test_the_metadata_is_between_host_and_path(resource: str, url: str) -> None:
    """rule 4 (RFC 9728 §3.1): a slash that terminates the host is dropped."""
    assert metadata_url(resource) == url
