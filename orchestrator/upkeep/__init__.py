"""What is done for runs beside their work: notices, copies, removal."""
