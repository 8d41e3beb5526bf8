"""Sign in, sign out, preferences, and the pages for errors."""

from __future__ import annotations

import re
from typing import Any

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


def test_whoever_guesses_passwords_waits_and_the_right_one_no_longer_helps(
    client: Client, ada: User, settings: Any
) -> None:
    settings.AXES_FAILURE_LIMIT = 3
    for _ in range(2):
        assert client.post("/sign-in/", {"username": "ada", "password": "wrong"}).status_code == 200
    locked = client.post("/sign-in/", {"username": "ada", "password": "wrong"})
    assert locked.status_code == 429 and locked["Retry-After"] == "900"
    assert "Too many tries" in locked.content.decode() and "Wait 15 m, then" in locked.content.decode()
    assert client.post("/sign-in/", {"username": "ada", "password": "correct horse"}).status_code == 429
    other = client.post("/sign-in/", {"username": "ada", "password": "correct horse"}, REMOTE_ADDR="192.0.2.7")
    assert other.status_code == 302, "elsewhere she can still sign in: nobody can lock her out"


def test_wrong_names_are_answered_like_wrong_passwords(client: Client, ada: User) -> None:
    answers = [
        client.post("/sign-in/", {"username": name, "password": "wrong"}).content.decode() for name in ("ada", "eve")
    ]
    plain = [re.sub(r'value="\w*"', "", answer) for answer in answers]
    assert plain[0] == plain[1]


def test_one_address_tries_only_so_many_names_a_minute(client: Client, ada: User, settings: Any, broker: None) -> None:
    settings.FAULTLINE_SIGN_IN_RATE = 3
    statuses = [
        client.post("/sign-in/", {"username": f"x{number}", "password": "w"}, REMOTE_ADDR="192.0.2.9").status_code
        for number in range(5)
    ]
    assert statuses[-1] == 429 and 200 in statuses


def test_a_password_is_changed_by_who_knows_the_old_one(signed_in: Client, ada: User) -> None:
    old, new = "correct horse", "battery staple 9"
    wrong = signed_in.post("/password/", {"old_password": "x", "new_password1": new, "new_password2": new})
    assert wrong.status_code == 200 and "Not changed" in wrong.content.decode()
    weak = signed_in.post(
        "/password/", {"old_password": old, "new_password1": "password1", "new_password2": "password1"}
    )
    assert "too common" in weak.content.decode()
    done = signed_in.post("/password/", {"old_password": old, "new_password1": new, "new_password2": new})
    assert done.status_code == 302 and signed_in.get("/").status_code == 200
    assert Client().post("/sign-in/", {"username": "ada", "password": new}).status_code == 302
    assert "Change password" in signed_in.get("/").content.decode()


def test_who_signs_in_elsewhere_has_no_password_here(signed_in: Client, ada: User) -> None:
    ada.set_unusable_password()
    ada.save()
    signed_in.force_login(ada)
    assert "there is no password here" in signed_in.get("/password/").content.decode()
    assert "Change password" not in signed_in.get("/").content.decode()
