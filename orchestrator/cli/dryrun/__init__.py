"""The dry run of submit: it calls the same functions, and writes nothing."""
