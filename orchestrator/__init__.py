"""torusrun's half on the login node and beside the ranks: it plans, submits, watches and resumes runs; never torch."""
