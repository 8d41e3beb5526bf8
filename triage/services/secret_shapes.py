"""How secrets look in logs: the list that services/masking.py hides. Tried on tests/triage/secrets.yaml.

Each shape is tried in two steps. `trigger` runs over every byte in one pass (hyperscan) and names the lines that are
looked at again; `hides` runs on those lines alone, and its groups are what is hidden. Every repetition is bounded, so
that a hostile line takes linear time. A shape that touches ordinary lines is worse than none: evidence is what people
come for.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_QUOTE = rb"(?:\\?[\"'])?"
_MADE_BY_MACHINE = rb"(?=[^\s\"'\\,;&]{0,60}[0-9])(?=[^\s\"'\\,;&]{0,60}[a-z])"
"""Both a digit and a letter near its start: no word, no number."""
_KEY_WORD = rb"(?:token|secret|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key|auth)"
_VALUE = rb"[A-Za-z0-9_.~+=-][A-Za-z0-9_.~+/=-]{15,4096}"
_SERVICES = rb"(?:glpat|glcbt|gldt|glrt|nvapi|pypi|sk|xox[abeprs]|xapp|npm|dckr_pat|GOCSPX)[_-]"
_ALONE = rb"(?<![0-9A-Za-z])"


class Shape(NamedTuple):
    """One kind of secret."""

    kind: str
    trigger: bytes
    hides: re.Pattern[bytes]
    caseless: bool = False
    """Whether the trigger is."""


def _shape(kind: str, trigger: bytes, hides: bytes, *, caseless: bool = False) -> Shape:
    return Shape(kind, trigger, re.compile(hides), caseless)


def _token(kind: str, prefix: bytes, rest: bytes) -> Shape:
    """A token that tells by its beginning what it is. `rest` must hold no unbounded repetition."""
    return _shape(kind, prefix + rest, _ALONE + rb"(" + prefix + rest + rb")")


SHAPES: tuple[Shape, ...] = (
    # --- what stands beside a word that says so ---------------------------------------------------------------------
    _shape("password in an address", rb"://[^\s/@\"']{0,256}:[^\s/@\"']{1,256}@",
           rb"://[^\s/:@\"']{0,256}:([^\s/@\"']{1,256})@"),
    _shape("token in an address", rb"://[A-Za-z0-9_.-]{20,256}@",
           rb"://((?=[A-Za-z_.-]{0,60}[0-9])(?=[0-9_.-]{0,60}[A-Za-z])[A-Za-z0-9_.-]{20,256})@"),
    _shape("authorization header", rb"authorization",
           rb"(?i)authorization" + _QUOTE + rb"\s{0,4}[:=]\s{0,4}" + _QUOTE
           + rb"(?:(?:bearer|basic|token|digest|negotiate|aws4-hmac-sha256)\s{1,4})?([^\s\"'\\]{6,8192})",
           caseless=True),
    _shape("bearer", rb"\b(?:bearer|basic)\s+[A-Za-z0-9._~+/-]{16}",
           rb"(?i)\b(?:bearer|basic)\s{1,4}([A-Za-z0-9._~+/-]{16,8192}={0,2})", caseless=True),
    _shape("cookie", rb"\bcookie[\"']?\s{0,3}:\s{0,3}[\"']?[^\s=;\"']{1,100}=[^\s;\"']{8}",
           rb"(?i)\bcookie[\"']?\s{0,3}:\s{0,3}[\"']?([^\s=;\"']{1,100}=[^\"'\r\n]{8,4096})", caseless=True),
    _shape("password", rb"(?:pass|pwd|secret|credential)[a-z]*[\\\"']{0,2}\s{0,3}[:=]",
           rb"(?i)(?:(?:(?<![a-z])|(?<=[_-]))(?:pass(?:phrase)?|pwd|secret|credentials?)|passw(?:or)?d)"
           + _QUOTE + rb"\s{0,3}[:=]\s{0,3}" + _QUOTE + rb"([^\s\"'\\,;&]{4,512})", caseless=True),
    _shape("quoted password", rb"passw(?:or)?d[\"']?\s{0,3}[:=]\s{0,3}[\"'][^\"'\s]",
           rb"(?i)passw(?:or)?d[\"']?\s{0,3}[:=]\s{0,3}(?:\"([^\"\r\n]{1,512})\"|'([^'\r\n]{1,512})')", caseless=True),
    _shape("password option", rb"--?pass[a-z]*\s",
           rb"(?i)--?pass(?:word|wd|phrase)\s{1,4}([^\s\"'-][^\s\"']{3,512})", caseless=True),
    _shape("password of a command", rb"\b(?:sshpass|mysql|mysqldump|mysqladmin)\s[^\n]{0,60}-p",
           rb"\b(?:sshpass|mysql|mysqldump|mysqladmin)\s(?:[^\n]{0,60}?\s)?-p\s{0,1}([^\s-][^\s]{3,200})"),
    _shape("user and password of curl", rb"\b(?:curl|wget)\s[^\n]{0,80}(?:-u|--user)[ =]",
           rb"\b(?:curl|wget)\s(?:[^\n]{0,80}?\s)?(?:-u|--user)[ =][\"']?[^\s:\"']{1,100}:([^\s\"']{1,256})"),
    # only what looks made by a machine, for pad_token=<pad> or max_tokens=4096 are evidence
    _shape("named key", rb"(?:token|secret|key|auth)[\\\"']{0,2}\s{0,3}[:=]",
           rb"(?i)" + _KEY_WORD + _QUOTE + rb"\s{0,3}[:=]\s{0,3}" + _QUOTE + rb"(" + _MADE_BY_MACHINE + _VALUE + rb")",
           caseless=True),
    _shape("named key as an option", rb"--?[a-z_-]{0,40}(?:token|secret|key)\s{1,4}[A-Za-z0-9_.~+=-]{16}",
           rb"(?i)--?[a-z_-]{0,40}?" + _KEY_WORD + rb"\s{1,4}(" + _MADE_BY_MACHINE + _VALUE + rb")", caseless=True),
    _shape("key in a variable", rb"[A-Z0-9]_(?:API_KEY|SECRET_KEY|ACCESS_KEY|AUTH_TOKEN|API_TOKEN|ACCESS_TOKEN)=",
           rb"[A-Z0-9]_(?:API_KEY|SECRET_KEY|ACCESS_KEY|AUTH_TOKEN|API_TOKEN|ACCESS_TOKEN)=[\"']?"
           rb"([A-Za-z0-9][A-Za-z0-9_.~+/=-]{7,4096})"),
    _shape("key of Kaggle", rb"\"username\"\s{0,3}:\s{0,3}\"[^\"\n]{1,100}\"\s{0,3},\s{0,3}\"key\"",
           rb"\"username\"\s{0,3}:\s{0,3}\"[^\"\n]{1,100}\"\s{0,3},\s{0,3}\"key\"\s{0,3}:\s{0,3}\"([0-9a-f]{32})\""),
    _shape("signed address",
           rb"(?:x-(?:amz|goog)-(?:signature|security-token|credential)|[?&](?:sig|signature|access_token|api_key|token))=",
           rb"(?i)(?:x-(?:amz|goog)-(?:signature|security-token|credential)"
           rb"|[?&](?:sig|signature|access_token|api_key|token))=([^\s&\"'\\]{6,8192})", caseless=True),
    _shape("key of Weights & Biases", rb"(?:wandb|WANDB)[^\n]{0,60}[0-9a-f]{40}",
           rb"(?i)wandb.{0,60}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])"),
    # --- addresses that are secrets -----------------------------------------------------------------------------------
    _shape("web hook of Slack", rb"hooks\.slack\.com/(?:services|workflows|triggers)/",
           rb"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/-]{8,300})"),
    _shape("web hook of Discord", rb"/api/webhooks/[0-9]{5,25}/",
           rb"/api/webhooks/[0-9]{5,25}/([A-Za-z0-9_-]{20,200})"),
    _shape("web hook of Teams", rb"/(?:webhookb2|IncomingWebhook)/",
           rb"/(?:webhookb2|IncomingWebhook)/([^\s\"']{8,400})"),
    _shape("bot of Telegram", rb"[0-9]{6,12}:[A-Za-z0-9_-]{35}",
           rb"(?<![0-9A-Za-z])(?:bot)?[0-9]{6,12}:([A-Za-z0-9_-]{35})(?![A-Za-z0-9_-])"),
    # --- what tells by its shape --------------------------------------------------------------------------------------
    _shape("access key of AWS", rb"(?:AKIA|ASIA|AROA)[0-9A-Z]{16}",
           _ALONE + rb"((?:AKIA|ASIA|AROA)[0-9A-Z]{16})(?![0-9A-Za-z])"),
    _token("token of Hugging Face", rb"(?:hf|api_org)_", rb"[A-Za-z0-9]{20,100}"),
    _token("token of Weights & Biases", rb"wandb_v[0-9]_", rb"[A-Za-z0-9_]{20,200}"),
    _token("token of GitHub", rb"(?:gh[opsur]|github_pat)_", rb"[A-Za-z0-9_]{20,255}"),
    _shape("token of a service", _SERVICES + rb"[A-Za-z0-9_-]{20}",
           _ALONE + rb"(" + _SERVICES + rb"(?=[A-Za-z0-9_-]{0,40}[0-9])[A-Za-z0-9_-]{20,300})"),
    _token("key of Google", rb"AIza", rb"[0-9A-Za-z_-]{35}"),
    _token("token of Google", rb"ya29\.", rb"[0-9A-Za-z_-]{20,2048}"),
    _token("token of Vault", rb"hv[sbr]\.", rb"[A-Za-z0-9_-]{20,300}"),
    _token("token of Grafana", rb"gl(?:sa|c)_", rb"[A-Za-z0-9_+/=]{20,400}"),
    _token("token of Databricks", rb"dapi", rb"[0-9a-f]{32}"),
    _token("token of DigitalOcean", rb"do[opr]_v1_", rb"[0-9a-f]{64}"),
    _token("key of SendGrid", rb"SG\.", rb"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}"),
    _token("token of Faultline", rb"flt_", rb"[A-Za-z0-9_-]{28,200}"),
    _token("key of age", rb"AGE-SECRET-KEY-1", rb"[0-9A-Z]{20,80}"),
    _token("credential of MUNGE", rb"MUNGE:", rb"[A-Za-z0-9+/=]{20,4096}"),
    _shape("JSON web token", rb"eyJ[A-Za-z0-9_-]{10,}\.",
           _ALONE + rb"(eyJ[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,8192}(?:\.[A-Za-z0-9_-]{0,4096})?)"),
)  # fmt: skip
PRIVATE_KEY = re.compile(rb"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----")
PRIVATE_KEY_TRIGGER = rb"-----(?:BEGIN|END) [A-Z0-9 ]{0,60}PRIVATE KEY-----"
