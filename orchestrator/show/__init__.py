"""The output about runs for users: logs, screens, published recipes."""
