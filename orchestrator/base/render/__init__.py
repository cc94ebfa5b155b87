"""Text from templates: every value is quoted, for the shell (environment.py) or for HTML (html.py)."""
