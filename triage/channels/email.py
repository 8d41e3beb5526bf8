"""E-mail through the site's mail server. Mails about one thread refer to its first, so mail programs join them."""

from __future__ import annotations

import smtplib
from collections.abc import Mapping
from email.utils import parseaddr
from typing import Any

from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email

from triage.channels.base import ChannelConfigError, ChannelError, Key, Message, Receipt, Setup, read_config

KEYS = (
    Key(name="to", label="To", required=True, many=True, hint="Addresses, parted by commas or new lines."),
    Key(name="sender", label="From", hint="Else the site's own (FAULTLINE_MAIL_FROM)."),
)


class EmailChannel:
    """See docs/notifications.md for the configuration of the mail server."""

    def __init__(self, config: Mapping[str, Any], setup: Setup) -> None:
        """Raises ChannelConfigError."""
        values = read_config(KEYS, config)
        self._to: list[str] = values["to"]
        self._from: str = values["sender"] or setup.sender
        for key, address in (*(("to", one) for one in self._to), ("sender", values["sender"])):
            if address:
                _check(key, address)
        self._setup = setup

    def send(self, message: Message, delivery: str, first: str) -> Receipt:
        """Raises ChannelError."""
        host = self._setup.site.partition("://")[2].partition("/")[0].partition(":")[0] or "faultline.invalid"
        name = f"<delivery-{delivery}@{host}>"
        headers = {"Message-ID": name, "Auto-Submitted": "auto-generated", "X-Faultline-Thread": message.thread}
        if first:
            headers |= {"In-Reply-To": first, "References": first}
        mail = EmailMessage(
            subject=("Re: " if first else "") + " ".join(message.title.split()),
            body="\n\n".join(filter(None, ("\n".join((message.title, *message.lines)), message.url))) + "\n",
            from_email=self._from,
            to=self._to,
            headers=headers,
        )
        try:
            mail.send()
        except smtplib.SMTPRecipientsRefused as error:
            told = next(iter(error.recipients.values()))
            raise ChannelError(
                f"the mail server refuses every address: {_said(told)}", permanent=told[0] >= 500
            ) from None
        except smtplib.SMTPResponseException as error:
            said = _said((error.smtp_code, error.smtp_error))
            raise ChannelError(f"the mail server answers {said}", permanent=error.smtp_code >= 500) from None
        except (smtplib.SMTPException, OSError) as error:
            raise ChannelError(f"the mail server can not be used: {str(error)[:200] or type(error).__name__}") from None
        return Receipt(name)


def _check(key: str, address: str) -> None:
    try:
        validate_email(parseaddr(address)[1])
    except ValidationError:
        raise ChannelConfigError(key, f"\u201c{address[:80]}\u201d is no e-mail address.") from None


def _said(answer: tuple[int, bytes | str]) -> str:
    code, words = answer
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    return f"{code} {' '.join(text.split())[:200]}"
