"""Sign in, sign out, preferences, and the pages for errors."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings


def test_sign_in_returns_only_to_addresses_of_this_site(client: Client, ada: User) -> None:
    answer = client.post(
        "/sign-in/?next=//evil.example/x", {"username": "ada", "password": "correct horse", "next": "//evil.example/x"}
    )
    assert answer.status_code == 302 and answer["Location"] == "/"
    page = Client().get("/sign-in/?next=//evil.example/x").content.decode()
    assert "the list of failures" in page and "evil.example" not in page.split("<form")[0]


def test_a_wrong_password_says_so_and_keeps_the_name(client: Client, ada: User) -> None:
    page = client.post("/sign-in/", {"username": "ada", "password": "wrong"}).content.decode()
    assert "That did not work" in page and 'value="ada"' in page


def test_signing_out_needs_a_form_and_ends_the_session(signed_in: Client) -> None:
    assert signed_in.get("/sign-out/").status_code == 405
    assert signed_in.post("/sign-out/")["Location"] == "/sign-in/"
    assert signed_in.get("/").status_code == 302


def test_preferences_are_kept_in_cookies_and_shown_in_the_page(signed_in: Client) -> None:
    answer = signed_in.post("/preferences/", {"theme": "dark", "next": "/upload/"})
    assert answer["Location"] == "/upload/"
    page = signed_in.get("/").content.decode()
    assert '<html lang="en" data-theme="dark">' in page
    assert 'id="keys">' in page, "single keys are off: the box was not ticked"
    signed_in.post("/preferences/", {"theme": "auto", "keys": "on"})
    page = signed_in.get("/").content.decode()
    assert '<html lang="en">' in page and 'id="keys" checked>' in page


@pytest.mark.parametrize("value", ['"><script>', "neon", ""])
def test_a_theme_that_does_not_exist_is_the_systems(signed_in: Client, value: str) -> None:
    signed_in.cookies["faultline_theme"] = value
    assert '<html lang="en">' in signed_in.get("/").content.decode()


def test_preferences_lead_nowhere_else(signed_in: Client) -> None:
    assert signed_in.post("/preferences/", {"theme": "dark", "next": "https://evil.example/"})["Location"] == "/"


def test_error_pages_say_what_happened_and_lead_on(signed_in: Client) -> None:
    page = signed_in.get("/nowhere/")
    assert (
        page.status_code == 404
        and "There is nothing here" in page.content.decode()
        and 'href="/"' in page.content.decode()
    )


def test_a_page_that_fails_says_that_nothing_was_lost(signed_in: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("triage.selectors.attempts.list_attempts", fail)
    signed_in.raise_request_exception = False
    with override_settings(DEBUG=False):
        answer = signed_in.get("/")
    assert answer.status_code == 500
    assert "The page could not be made" in answer.content.decode() and "secret detail" not in answer.content.decode()
