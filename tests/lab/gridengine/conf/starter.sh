#!/bin/bash
# ABCI's variables in every job: the list of its hosts, and a folder on the node that is gone after it.
export SGE_LOCALDIR="$$TMPDIR"
export SGE_JOB_HOSTLIST="$$TMPDIR/hostlist"
if [ -r "$${PE_HOSTFILE:-}" ]; then cut -d' ' -f1 "$$PE_HOSTFILE"; else hostname; fi > "$$SGE_JOB_HOSTLIST"
# A task that qrsh starts on another host comes as one command for a shell.
if command -v -- "$$1" > /dev/null; then exec "$$@"; else exec /bin/sh -c "$$*"; fi
