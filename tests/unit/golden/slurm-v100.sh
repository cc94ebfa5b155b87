# sbatch --parsable /r/digits-1/attempts/1/job.sh
#!/usr/bin/env bash
#SBATCH --job-name=digits-1
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=10
#SBATCH --gres=gpu:v100:4
#SBATCH --time=60
#SBATCH --output=/r/digits-1/attempts/1/job.out
#SBATCH --error=/r/digits-1/attempts/1/job.err
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --account=gaa50000
#SBATCH --exclusive
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

# A folder of this job's own on each node, where the site has one.
export TORUSRUN_SCRATCH="${SGE_LOCALDIR:-${PBS_LOCALDIR:-${TMPDIR:-/tmp}}}"
export SUBMITIT_EXECUTOR=slurm
/opt/py -u -m submitit.core._submit /r/digits-1/attempts/1/submitit
