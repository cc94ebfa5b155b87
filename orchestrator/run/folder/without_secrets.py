"""What is a secret, by the names of files and variables and by its form in text; records and output without it.

The prefixes of tokens are those of gitleaks (https://github.com/gitleaks/gitleaks, config/gitleaks.toml of 2026-07-22,
commit b58d3f1, MIT), shortened to what no usual word begins with: a token of a new length is removed, too. Those below
`OTHERS` are from the pages of their makers. Repetitions are bounded, so that no output makes the search slow.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePath
from typing import Any

from torusrun.orchestrator.keys.shared import Software

LOGINS = (  # files of programs, not of a user's code
    ".netrc", "_netrc", ".pgpass", ".my.cnf", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd", ".boto", ".s3cfg",
    ".vault-token", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "*.pem", "*.key",
    "*.ppk", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx",
)  # fmt: skip
FILES = (".env", ".env.*", "*.env", ".envrc", *LOGINS)
WORDS = {
    "token", "tokens", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "credential",
    "credentials", "apikey",
}  # fmt: skip
_API_KEY = re.compile("api[^a-z0-9]key")
_KEY = re.compile(
    r"(api|access|account|auth|deploy|encryption|license|private|secret|service|signing|ssh|storage)_?key"
)
_OF_VARIABLES = {"auth", "authorization", "creds", "dsn", "pass", "passcode", "pat", "pwd", "secrets", "webhook"}
_LAST = ("token", "secret", "password", "passwd", "passphrase", "credential", "credentials")  # not as in MAX_TOKENS
PROGRAMS = (".py", ".pyi", ".ipynb", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".rs", ".go", ".md", ".rst")
REMOVED = "***"
NAMES = (
    r"(?:token|secret|passw(?:or)?d|passphrase|passcode|credential|authorization|signature|cookie|webhook"
    r"|(?:api|access|private|account|shared|signing|encryption|master|client|subscription|license|storage)[ _-]?key"
    r"|(?<![a-z])(?:auth|pass|passwd|creds?|pat|jwt|dsn|otp)(?![a-z])|(?<=[_-])pwd|connection[_-]?string)"
)
NAMED = re.compile(NAMES, re.IGNORECASE)
SHELL_WORD = r"""(?:'[^']*'|"(?:[^"\\]|\\.)*"|[^\s'",;])+"""
GITLEAKS = (
    "ops_eyJ", "p8e-", "AGE-SECRET-KEY-", "LTAI", "sk-", "AKCp", "cmVmd", "A3T", "AKIA", "ASIA", "ABIA", "ACCA",
    "ABSK", "bedrock-api-key-", "CLOJARS_", "dapi", "doo_v1_", "dop_v1_", "dor_v1_", "dp.pt.", "duffel_", "dt0c01.",
    "EZAK", "EZTK", "EAAM", "EAAC", "FLWSECK", "FLWPUBK", "fo1_", "fm1a_", "fm1r_", "fm2_", "fio-u-", "AIza",
    "ghu_", "ghs_", "gho_", "ghp_", "ghr_", "github_pat_", "glcbt-", "gldt-", "glffct-", "glft-", "glimt-",
    "glagent-", "gloas-", "glpat-", "glptt-", "GR1348941", "glrt-", "glsoat-", "glc_", "glsa_", "HRKU-", "hf_",
    "api_org_", "ico-", "s-s4t2", "lin_api_", "ntn_", "npm_", "sha256~", "pplx-", "pscale_", "PMAK-", "pnu_",
    "pul-", "pypi-AgE", "rdme_", "rubygems_", "tk-us-", "SG.", "xkeysib-", "sntrys_", "sntryu_", "sm_aat_",
    "sm_pat_", "sm_sat_", "shippo_", "shpat_", "shpca_", "shppa_", "shpss_", "xapp-", "xoxa-", "xoxb-", "xoxe",
    "xoxo-", "xoxp-", "xoxr-", "xoxs-", "sgp_", "EAAA", "sq0atp-", "sq0csp-", "sk_test_", "sk_live_", "sk_prod_",
    "rk_test_", "rk_live_", "rk_prod_", "hvb.", "hvs.",
)  # fmt: skip
OTHERS = (
    "ya29.", "1//0", "GOCSPX-", "IQoJb3JpZ2lu", "FwoGZXIvYXdz", "gsk_", "xai-", "wandb_v1_", "r8_", "nvapi-",
    "dckr_pat_", "dckr_oat_", "whsec_", "tskey-", "ATATT3", "ATBB", "tvly-",
)  # fmt: skip
WITH_DIGITS = ("API-", "key-", "secret_")  # words begin so, too
EXACT = (  # tokens without a prefix of their own, by their shape
    r"A3-[A-Z0-9]{6}-[A-Z0-9-]{20,40}",
    r"pat[A-Za-z0-9]{14}\.[a-f0-9]{32,64}",
    r"(?:pat|sat)\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}",
    r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{20,80}",
    r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk",
    r"[\w~.]{3}\dQ~[\w~.-]{31,34}",
    r"\d{8,10}:AA[\w-]{30,40}",  # Telegram
    r"SK[0-9a-f]{32}",  # Twilio
    r"\d{15,16}(?:\||%)[\w-]{27,40}",  # Facebook
    r"[MNO][A-Za-z0-9_-]{22,26}\.[\w-]{6}\.[\w-]{27,40}",  # Discord
    r"[a-f0-9]{32}-us\d{1,2}",  # Mailchimp
    r"ZXlK[A-Za-z0-9+/=_-]{20,4000}",  # a JWT in base64
    r"eyJ[A-Za-z0-9+/=_-]{10,4000}(?:\.[A-Za-z0-9+/=_-]{0,4000}){0,4}",  # JSON in base64, as a JWT
)
_QUERY = (
    r"sig|signature|sign|token|key|code|auth|secret|pass|password|pwd|jwt|sas|hmac|credential|policy|session|sessionid"
    r"|[\w.-]{0,40}(?:token|secret|passw(?:or)?d|apikey|api_key|access_?key|signature|credential|keyid|key-pair-id)"
)
_KEY_BLOCK = r"-{4,5} ?BEGIN [^-\n]{0,60}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_KEY_END = r"-{4,5} ?END [^-\n]{0,60}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_ENDS_WORD = r"(?=$|[\s'\"`;,)\]}>&|\\])"
SHORTEST = 4  # characters of a value that is looked for in text; "1" would be everywhere
ENVIRONMENTS = ("env", "environment")
SOFTWARE = {field.name for field in fields(Software)}


def _form(text: str, flags: int = re.IGNORECASE, end: str = "") -> tuple[str, int, str]:
    return text, flags, end


_PREFIXES = "|".join(map(re.escape, (*GITLEAKS, *OTHERS)))
FORMS = (  # of secrets in text; the first group of each stays, and the rest of what matches becomes REMOVED and `end`
    _form(rf"{_KEY_BLOCK}.*?{_KEY_END}", flags=re.DOTALL),
    _form(rf"\A.*{_KEY_END}", flags=re.DOTALL),  # its beginning is not in the tail
    _form(rf"{_KEY_BLOCK}.*\Z", flags=re.DOTALL),
    _form(r"(PuTTY-User-Key-File-\d.*?)Private-Lines:.*?(?=Private-MAC|\Z)", re.DOTALL, " "),
    # of a URL: the user, parameters, and paths that are secrets
    _form(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^/\s'\"]{1,500}@", end="@"),
    _form(rf"([?&;](?:amp;)?(?:{_QUERY})=)[^&\s'\"<>]{{1,4000}}"),
    _form(r"(hooks\.slack\.com/(?:services|workflows|triggers)/)[\w/+-]{1,200}"),
    _form(r"(discord(?:app)?\.com/api/(?:v\d+/)?webhooks/)[\w/-]{1,200}"),
    _form(r"(\.webhook\.office\.com/)[^\s'\"]{1,400}"),
    _form(r"(api\.telegram\.org/bot)[^/\s'\"]{1,100}"),
    # headers, whose values have several words
    _form(
        r"((?:(?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?[\w-]{0,40}(?:api-?key|auth-?key|token|secret))"
        r"['\"]?\s{0,9}:(?!\s{0,9}(?:['\"]|[|>][+-]?\s))\s{0,9})[^\r\n'\"]{1,4000}",
    ),
    _form(r"\b((?:bearer|basic|digest|negotiate|apikey|token)\s+)(?=[\w+/=.~-]*\d)[\w+/=.~-]{6,}"),
    _form(r"\b((?:bearer|basic)\s+)[A-Za-z0-9+/=._~-]{6,}"),
    # commands and files of programs
    _form(r"((?:^|\s)(?:machine\s+\S+|default)\s(?:\s*(?:login|account)\s+\S+)?\s*password\s+)\S+"),
    _form(r"(^[^\S\n]*password[^\S\n]+)\S+[^\S\n]*$", re.IGNORECASE | re.MULTILINE),
    _form(rf"(\s(?:-u|--user|--proxy-user)(?:\s+|=)?['\"]?[^\s:'\"]{{1,100}}:){SHELL_WORD}"),
    _form(rf"(\b(?:sshpass|mysql\w*|mysqldump|docker login|podman login)\b[^\n]{{0,200}}?\s-p\s?){SHELL_WORD}"),
    _form(rf"(\b(?:wandb|comet|neptune|huggingface-cli|hf auth) login\s+)(?!-){SHELL_WORD}"),
    _form(r"^((?:[\w.*-]{1,200}:){1,2}\d{1,5}:[^:\s]{1,100}:[^:\s]{1,100}:)\S+", re.MULTILINE),
    _form(r"\$(?:1|2[abxy]|5|6|7|y|gy|apr1|argon2\w{0,2}|scrypt|pbkdf2[\w-]{0,10})\$[^\s:'\"]{8,500}"),  # crypt(3)
    _form(rf"(<[^>\n]{{0,80}}{NAMES}[^>\n]{{0,80}}>)[^<\n]{{1,4000}}"),
    _form(
        rf"(<[^>\n]{{0,200}}key=['\"][^'\"\n]{{0,80}}{NAMES}[^'\"\n]{{0,80}}['\"]\s+value=['\"])[^'\"\n]{{1,4000}}"
    ),  # fmt: skip
    # tokens by themselves
    _form(rf"(?<![A-Za-z0-9])(?:{_PREFIXES})[\w=+/.-]{{10,4000}}", flags=0),
    _form(rf"(?<![A-Za-z0-9])(?:{'|'.join(WITH_DIGITS)})(?=[A-Za-z_-]{{0,40}}\d)[\w-]{{16,4000}}", flags=0),
    _form(rf"(?<![A-Za-z0-9])(?:{'|'.join(EXACT)}){_ENDS_WORD}", flags=0),
    # values behind a name
    _form(rf"((?<!-)--[\w-]{{0,40}}{NAMES}[\w-]{{0,40}}\s{{1,9}}){SHELL_WORD}"),
    _form(
        rf"({NAMES}[\w-]{{0,40}}\\?['\"]?\]?\s{{0,9}}(?:=>|:=|%3D|[=:])\s{{0,9}}(?:[|>][+-]?\s{{1,40}})?[bru]{{0,2}})"
        rf"(?:\\\"(?:[^\"\\]|\\[^\"]){{1,4000}}\\\"|{SHELL_WORD})",
    ),
    _form(r"((?<![\w-])pwd['\"]?\s{0,9}[=:]\s{0,9}['\"]?)(?![/~.'\"])[^\s'\";]+"),
    _form(
        rf"({NAMES}[\w-]{{0,40}}['\"]?[\s,(\[]{{1,9}}(?:is\s|to\s|was\s)?\s?['\"]?)(?=[A-Za-z+/=_.-]{{0,40}}\d)[\w+/=.-]{{16,4000}}"
    ),  # fmt: skip
    _form(r"((?<![a-z])key['\"]?\s{0,9}[=:]\s{0,9}['\"]?)(?=[A-Za-z+/=_.-]{0,40}\d)[\w+/=.-]{20,4000}"),
)


@cache
def patterns() -> list[tuple[re.Pattern[str], str]]:
    """The forms of secrets in text, each with what is left of it; they are compiled by the first search."""
    compiled = [(re.compile(text, flags), end) for text, flags, end in FORMS]
    return [(form, rf"\1{REMOVED}{end}" if form.groups else REMOVED) for form, end in compiled]


def is_secret(path: str) -> bool:
    """Whether a relative path says that its file holds secrets: 'prod/.env', '.secrets/wandb', 'hf_token.txt'.

    A program is none by a word in its name, as 'tokens.py'.
    """
    *folders, name = (part.lower() for part in PurePath(path).parts or ("",))
    if any(fnmatchcase(name, known) for known in FILES):
        return True
    says = any(WORDS & set(re.split(r"[^a-z0-9]+", _API_KEY.sub("apikey", part))) for part in (*folders, name))
    return says and not name.endswith(PROGRAMS)


def is_secret_variable(name: str) -> bool:
    """Whether the name of a variable says that its value is a secret: HF_TOKEN, WANDB_API_KEY, DB_PASSWORD."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    named = any(word in _OF_VARIABLES or word.endswith(_LAST) for word in words)
    return named or _KEY.search(name.lower()) is not None


def masked(value: Any) -> Any:
    """A JSON value of a run, such as its command, without what looks like a secret."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        after = [False, *(isinstance(item, str) and _takes_a_secret(item) for item in value)]
        return [REMOVED if hidden else masked(item) for hidden, item in zip(after, value, strict=False)]
    if isinstance(value, dict):
        return {_text(key): _of_key(key, inner) for key, inner in value.items()}
    return value


def _text(text: str) -> str:
    for pattern, left in patterns():
        text = pattern.sub(left, text)
    return text


def _of_key(key: str, value: Any) -> Any:
    if key in ENVIRONMENTS and isinstance(value, dict) and value.keys() != SOFTWARE:  # else it names software
        return dict.fromkeys(value, REMOVED)
    if NAMED.search(key) and isinstance(value, str) and value:
        return REMOVED
    return masked(value)


def forms_of(value: str) -> Iterator[str]:
    """A value as programs, records and scripts write it; of several lines, each one."""
    for part in (value, *(line.strip() for line in value.splitlines())):
        yield from (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])
        yield from (repr(part)[1:-1], shlex.quote(part))


def _takes_a_secret(word: str) -> bool:
    """True if the next word of a command is a secret, as after '--api-key'."""
    return word.startswith("-") and "=" not in word and NAMED.search(word) is not None
