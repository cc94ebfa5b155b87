"""submitit for PBS and Grid Engine, and torusrun's own jobs that use submitit's executors."""
