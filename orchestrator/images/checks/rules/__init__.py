"""The rules of the checks: facts in, findings out. Each file looks at one thing."""
