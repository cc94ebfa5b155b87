"""The meeting of the ranks: one address, a signed store, one answer for all, and the record of the end."""
