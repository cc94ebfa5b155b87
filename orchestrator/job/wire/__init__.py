"""Messages between processes of a job that know a secret."""
