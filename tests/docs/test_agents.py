"""The page for agents has every verb, state and exit code, and says truly which verbs print JSON."""

import re
from pathlib import Path

from torusrun.orchestrator.base import errors
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.verb_list import VERBS, WITHOUT_JSON, parser_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "agents.md").read_text()


def rows() -> dict[str, str]:
    """Verb -> what the table says about its JSON."""
    table = PAGE.partition("## Verbs")[2].partition("\n## ")[0]
    found = {}
    for line in re.findall(r"^\| `.*", table, re.MULTILINE):
        verbs, json = line.strip("| ").split(" | ")[:2]
        found |= {named.split()[0]: json.strip() for named in re.findall(r"`([^`]+)`", verbs)}
    return found


def test_the_table_has_every_verb_and_its_json() -> None:
    assert set(rows()) == set(VERBS), "add a row for each verb"
    prints = {verb for verb in VERBS if "--json" in parser_of(verb).format_help()}
    claimed = {verb for verb, json in rows().items() if "--json" in json}
    assert claimed <= prints, f"these have no --json: {claimed - prints}"
    assert prints <= claimed, f"say that these have --json: {prints - claimed}"
    assert set(VERBS) - prints == set(WITHOUT_JSON), "these print a text, or what others write"


def test_the_page_has_every_state_and_exit_code() -> None:
    listed = re.findall(r"A state is (.*)", PAGE)[0].replace(" or ", ", ").split(", ")
    assert set(listed) == {state.value for state in State}
    codes = {str(code) for code in (errors.DONE, errors.RUN_FAILED, errors.USER_MISTAKE, errors.SITE_FAILED)}
    assert codes <= set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE))
