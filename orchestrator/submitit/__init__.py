"""submitit for PBS and Grid Engine."""
