"""How runs stand: one poll for all of them, a view that follows one, and the table at its end."""
