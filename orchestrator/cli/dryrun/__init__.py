"""What submit would do, by the functions that do it; nothing is written."""
