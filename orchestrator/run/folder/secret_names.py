"""Names of files and variables that hold secrets, by which nothing that is kept or sent quotes them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import PurePath

LOGINS = (  # files of programs, not of a user's code
    ".netrc", "_netrc", ".pgpass", ".my.cnf", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd", ".boto", ".s3cfg",
    ".vault-token", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "*.pem", "*.key",
    "*.ppk", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx",
)  # fmt: skip
NAMES = (".env", ".env.*", "*.env", ".envrc", *LOGINS)
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


def is_secret(path: str) -> bool:
    """Whether a relative path says that its file holds secrets: 'prod/.env', '.secrets/wandb', 'hf_token.txt'.

    A program is none by a word in its name, as 'tokens.py'.
    """
    *folders, name = (part.lower() for part in PurePath(path).parts or ("",))
    if any(fnmatchcase(name, known) for known in NAMES):
        return True
    says = any(WORDS & set(re.split(r"[^a-z0-9]+", _API_KEY.sub("apikey", part))) for part in (*folders, name))
    return says and not name.endswith(PROGRAMS)


def is_secret_variable(name: str) -> bool:
    """Whether the name of a variable says that its value is a secret: HF_TOKEN, WANDB_API_KEY, DB_PASSWORD."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    named = any(word in _OF_VARIABLES or word.endswith(_LAST) for word in words)
    return named or _KEY.search(name.lower()) is not None
