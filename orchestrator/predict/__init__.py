"""What calibrate measured, and the answers of predict in words."""
