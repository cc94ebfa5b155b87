"""The metrics of runs for other programs: table.py has the rows that count, formats.py makes files of them."""
