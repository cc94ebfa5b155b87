# qsub -terse -V -g gaa50000 /r/digits-1/attempts/1/job.sh
#!/usr/bin/env bash
#$ -N digits-1
#$ -l rt_AF=4
#$ -l h_rt=01:00:00
#$ -S /bin/bash
#$ -j y
#$ -o /dev/null
#$ -notify
#$ -r n
# Grid Engine gives blanks, commas, colons and dollars in a path a meaning of its own; bash, quoted, does not.
exec >> /r/digits-1/attempts/1/job.out 2>> /r/digits-1/attempts/1/job.err
# torusrun 0.1.0: attempt 1 of run digits-1
set -Eeuo pipefail
umask 077
attempt=/r/digits-1/attempts/1

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

if ! type module > /dev/null 2>&1; then  # a shell that was not told of them
  for init in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/modules/init/bash; do
    # shellcheck disable=SC1090
    if [[ -r "$init" ]]; then set +u; source "$init"; set -u; break; fi
  done
fi
module load openmpi
# A folder of this job's own on each node, where the site has one.
export TORUSRUN_SCRATCH="${SGE_LOCALDIR:-${PBS_LOCALDIR:-${TMPDIR:-/tmp}}}"
export SUBMITIT_EXECUTOR=gridengine
/opt/py -u -m submitit.core._submit /r/digits-1/attempts/1/submitit
