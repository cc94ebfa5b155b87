"""The rules of the checks: facts in, findings out. Each file checks one subject."""
