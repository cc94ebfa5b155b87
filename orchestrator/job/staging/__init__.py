"""What a run reads, on every node's own disk before its ranks start: read once from the shared disk, then host to host.

FOLDER/torusrun-UID/ID         a copy: a file, or a folder; ID stands for the source's path, names, sizes and times
FOLDER/torusrun-UID/ID.json    what shows that it is unchanged; its time is the start of the newest reader
FOLDER/torusrun-UID/.ID.WORD/  a copy in progress, locked by its process
FOLDER/torusrun-UID/run-RUN/   NAME -> ../ID for each entry, and paths.json: source -> copy
"""
