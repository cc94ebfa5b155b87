"""The archive of a run for somebody who helps: what happened, without secrets."""
