#!/usr/bin/env bash
read -r -a torusrun_stat < "/proc/$$/stat"
export SUBMITIT_LOCAL_JOB_ID="$$.${torusrun_stat[21]}"
# torusrun 0.1.0: attempt 1 of run digits-1
set -Eeuo pipefail
umask 077
readonly torusrun_attempt=/shared/runs/digits-1/attempts/1
# Between submission and start somebody may have put a folder of his own into this one's place.
if [[ ! -O "$torusrun_attempt" ]]; then
  torusrun_why="torusrun: on $HOSTNAME $torusrun_attempt is not there, or is not its user's own: nothing is run from it"
  echo "$torusrun_why" >&2
  exit 1
fi
cd -- "$torusrun_attempt"  # private, so that nothing relative means a file of somebody else

torusrun_step=  # what is being run before the entry
# However this script ends, end.json says how. The supervisor, which knows more, usually wrote it before.
torusrun_record_end() {
  local code=$? how record when=" before it recorded an end"
  if [[ -n "$torusrun_step" ]]; then when=" on $HOSTNAME, before the ranks were started"; fi
  [[ -e "$torusrun_attempt/end.json" ]] && return
  how="ended with exit code $code"
  if (( code > 128 && code < 160 )); then how="was killed by SIG$(kill -l "$code")"; fi
  record='{"schema": 1, "state": "FAILED", "certain": false, "exit_code": %d, "reason": "%s %s%s; see job.err"}\n'
  # This file has room for it on a full disk. It holds blanks: what the record leaves of them is no harm.
  # shellcheck disable=SC2059
  if printf "$record" "$code" "${torusrun_step:-the supervisor of the attempt}" "$how" "$when" \
    1<> "$torusrun_attempt/.end.json.reserve"; then
    /bin/mv "$torusrun_attempt/.end.json.reserve" "$torusrun_attempt/end.json"
  fi
}
trap torusrun_record_end EXIT
trap : TERM INT USR2  # the supervisor answers these; the shell waits for it
trap '' USR1  # Grid Engine's announcement of a suspension, which would end whoever does not know it

# A folder of this job's own on each node, where the site has one.
export TORUSRUN_SCRATCH="${TMPDIR:-/tmp}"
export SUBMITIT_EXECUTOR=local
# Python takes an empty or relative entry for the directory that it stands in.
torusrun_rest="${PYTHONPATH:-}:" PYTHONPATH=
while [[ -n "$torusrun_rest" ]]; do
  if [[ "$torusrun_rest" == /* ]]; then PYTHONPATH+="${PYTHONPATH:+:}${torusrun_rest%%:*}"; fi
  torusrun_rest="${torusrun_rest#*:}"
done
export PYTHONPATH
/opt/env/bin/python -u -c 'import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; runpy.run_module(sys.argv.pop(1), None, "__main__", True)' orchestrator.job.attempt /shared/runs/digits-1/attempts/1
