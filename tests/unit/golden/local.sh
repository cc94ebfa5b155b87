#!/usr/bin/env bash
# torusrun 0.1.0: attempt 1 of run digits-1
set -Eeuo pipefail
umask 077
attempt=/shared/runs/digits-1/attempts/1

# However this script ends, end.json says how. The supervisor, which knows more, usually wrote it before.
record_end() {
  local code=$? record
  [[ -e "$attempt/end.json" ]] && return
  record='{"schema": 1, "state": "FAILED", "certain": false, "exit_code": %d, "reason": "the job script ended with exit code %d before its supervisor recorded an end; see job.err"}\n'
  # shellcheck disable=SC2059
  printf "$record" "$code" "$code" > "$attempt/.end.json.script"
  mv "$attempt/.end.json.script" "$attempt/end.json"
}
trap record_end EXIT
trap : TERM INT USR2  # the supervisor answers these; the shell waits for it
trap '' USR1  # Grid Engine's announcement of a suspension, which would end whoever does not know it

# A folder of this job's own on each node, where the site has one.
export TORUSRUN_SCRATCH="${SGE_LOCALDIR:-${PBS_LOCALDIR:-${TMPDIR:-/tmp}}}"
export SUBMITIT_EXECUTOR=local
read -r -a stat < "/proc/$$/stat"
export SUBMITIT_LOCAL_JOB_ID="$$.${stat[21]}"
/opt/env/bin/python -u -m submitit.core._submit /shared/runs/digits-1/attempts/1/submitit
