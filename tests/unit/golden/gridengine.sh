#!/usr/bin/env bash
#$ -N digits-1.1
#$ -pe mpi 4
#$ -l gpu=4
#$ -l h_rt=01:00:00
#$ -S /bin/bash
#$ -j y
#$ -o /dev/null
#$ -notify
#$ -r n
#$ -l mem_free=15360M
#$ -q gpu.q@@v100
#$ -P "group 1"
#$ -ac weight=heavy
#$ -m n
# torusrun 0.1.0: run digits-1, from attempt 1 on
set -Eeuo pipefail
umask 077
readonly torusrun_attempt=/shared/runs/digits-1/attempts/1
# Between submission and start somebody may have put a folder of his own into this one's place.
if [[ ! -O "$torusrun_attempt" ]]; then
  torusrun_why="torusrun: on $HOSTNAME $torusrun_attempt is not there, or is not its user's own: nothing is run from it"
  echo "$torusrun_why" >&2
  echo "$torusrun_why" >> ~/torusrun-errors.log  # standard error goes nowhere yet
  exit 1
fi
cd -- "$torusrun_attempt"  # private, so that nothing relative means a file of somebody else
exec >> /shared/runs/digits-1/attempts/1/job.out 2>> /shared/runs/digits-1/attempts/1/job.err

torusrun_step=  # what is being run before the entry
# However this script ends, end.json says how. The supervisor, which knows more, usually wrote it before.
torusrun_record_end() {
  local code=$? cause=unknown how record when=" before it recorded an end"
  if [[ -n "$torusrun_step" ]]; then cause=configuration when=" on $HOSTNAME, before the ranks were started"; fi
  [[ -e "$torusrun_attempt/end.json" ]] && return
  how="ended with exit code $code"
  if (( code > 128 && code < 160 )); then cause=killed how="was killed by SIG$(kill -l "$code")"; fi
  record='{"schema": 1, "state": "FAILED", "cause": "%s", "certain": false, "exit_code": %d, '
  record+='"reason": "%s %s%s; see job.err"}\n'
  # This file has room for it on a full disk. It holds blanks: what the record leaves of them is no harm.
  # shellcheck disable=SC2059
  if printf "$record" "$cause" "$code" "${torusrun_step:-the supervisor of the attempt}" "$how" "$when" \
    1<> "$torusrun_attempt/.end.json.reserve"; then
    /bin/mv "$torusrun_attempt/.end.json.reserve" "$torusrun_attempt/end.json"
  fi
}
trap torusrun_record_end EXIT
torusrun_check() {  # whether the step before it failed
  local code=$?
  set -eu
  if (( code )); then echo "torusrun: $torusrun_step ended with exit code $code" >&2; exit "$code"; fi
}
trap : TERM INT USR2  # the entry answers these; the shell waits for it
trap '' USR1  # Grid Engine's announcement of a suspension, which would end whoever does not know it

# A folder of this job's own on each node, where the site has one.
export TORUSRUN_SCRATCH="${SGE_LOCALDIR:-${TMPDIR:-/tmp}}"
export SUBMITIT_EXECUTOR=gridengine
set +eu  # as for the lines below
for torusrun_init in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh \
  ${LMOD_PKG:+"$LMOD_PKG/init/bash"} ${MODULESHOME:+"$MODULESHOME/init/bash"} /usr/share/modules/init/bash; do
  if type module > /dev/null 2>&1; then break; fi  # a shell that knows them
  # shellcheck disable=SC1090
  if [[ -r "$torusrun_init" ]]; then source "$torusrun_init"; fi
done
if ! type module > /dev/null 2>&1; then
  module() {
    echo "torusrun: this machine has no modules, as neither /etc/profile.d nor MODULESHOME leads to the command" >&2
    return 127
  }
fi
torusrun_load() {  # module load; 3.2 returns 0 after most failures, and Lmod if a module in Tcl ends by `exit`
  local before="${LOADEDMODULES-}" said
  module load "$1" || return
  if [[ -z "${LOADEDMODULES+x}${LMOD_CMD+x}" || "${LOADEDMODULES-}" != "$before" ]]; then return 0; fi
  if [[ ":$before:" == *":$1"[:/]* ]]; then return 0; fi  # it was loaded before
  if said=$(module is-loaded "$1" 2>&1) && [[ -z "$said" ]]; then return 0; fi  # by another name
  echo "torusrun: \`module load $1\` returned 0, but the module is not loaded" >&2
  return 1
}
torusrun_step='`module load gcc/12.2`'
set +eu  # modules and conda read variables that are not set
torusrun_load gcc/12.2
torusrun_check
torusrun_step='`module load openmpi/4.1`'
set +eu  # modules and conda read variables that are not set
torusrun_load openmpi/4.1
torusrun_check
torusrun_step=
export MOTTO=$'one\n#$ -q evil.q'
# Python takes an empty or relative entry for the working directory.
torusrun_rest="${PYTHONPATH:-}:" PYTHONPATH=
while [[ -n "$torusrun_rest" ]]; do
  if [[ "$torusrun_rest" == /* ]]; then PYTHONPATH+="${PYTHONPATH:+:}${torusrun_rest%%:*}"; fi
  torusrun_rest="${torusrun_rest#*:}"
done
export PYTHONPATH
/opt/env/bin/python -u /opt/torusrun/training/entry/torusrun torusrun.orchestrator.job.loop /shared/runs/digits-1/attempts/1
