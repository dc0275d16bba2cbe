# supervisor.sh: the part of job.sbatch that is the same for all jobs: signals, requeue, verdict.
#
# A launch writes it beside job.sbatch, which reads it once, runs it only if it has the SHA-256 that stands there, and
# sets what it goes by:
#   slurmopt_place      the folder, run or sweep, that the script holds open as descriptor 19
#   slurmopt_log_from   the bytes that the job's log had when the script began
#   slurmopt_python, slurmopt_start    slurmopt's own Python, and the words before the name of a module
#   slurmopt_ranks, slurmopt_per       processes of the step; what each is: rank, node or job
#   slurmopt_local      "yes" on this machine, without Slurm
#   slurmopt_sweep      "points" or "packed" for the array tasks of a sweep
#   slurmopt_mode       of folders: 700, or 750
#   slurmopt_policy     what comes back how often, as JSON
#   slurmopt_lead, slurmopt_time_limit, slurmopt_may_hold    seconds before the time limit at which Slurm signals, the
#                       limit, and "yes" if the ranks may be told later than that
#   slurmopt_watchdog   the words of the process that looks for hangs
#   slurmopt_notify     whom to tell of an end, as JSON

slurmopt_held=/proc/$$/fd/19 slurmopt_swapped=${slurmopt_swapped-}
slurmopt_umask=077
if [ "$slurmopt_mode" = 750 ]; then slurmopt_umask=027; fi

# ---- the folder ------------------------------------------------------------------------------------------------------
slurmopt_hold() { # FOLDER: opens it; what is written by $slurmopt_held comes into it, whatever others put in its place
  slurmopt_place=$1
  if exec 19<&-; [ -d "$1/." ]; then exec 19< "$1/."; fi 2> /dev/null
}

slurmopt_is_swapped() { # whether something else is in the place of the held folder; says so once
  if [ "$slurmopt_place" -ef "$slurmopt_held/." ]; then return 1; fi
  if [ ! -e "$slurmopt_place" ] || [ ! -e "$slurmopt_held/." ]; then return 1; fi # its file system is away
  # mounted anew, it has another device number
  if [ "$(stat -L -c %i:%u "$slurmopt_place")" = "$(stat -L -c %i:%u "$slurmopt_held/.")" ]; then return 1; fi
  if [ -z "$slurmopt_swapped" ]; then
    slurmopt_swapped="something else is at $slurmopt_place now: nothing of it is used, and the job is not started again"
    echo "slurmopt: $slurmopt_swapped" >&2
  fi
}

slurmopt_is_foreign() { # PATH: whether it, or its target, belongs to another user who is not root; sets why
  why="belongs to another user"
  if slurmopt_seems_foreign "$1" && slurmopt_finds owner "$1"; then return 0; fi
  # Into this user's own folders a group that may write there puts what it likes: a run's is never such a one.
  if [ "$1" != "$slurmopt_place" ]; then return 1; fi
  case "$(stat -L -c %a "$slurmopt_held/." 2> /dev/null)" in *[2367]? | *[2367]) ;; *) return 1 ;; esac
  why="may be written by others: see what is in it, then chmod go-w"
  slurmopt_finds mode "$slurmopt_held/."
}

slurmopt_seems_foreign() { # PATH: by the user ids that its file system shows
  if [ -L "$1" ]; then
    case "$(stat -c %u "$1" 2> /dev/null || command -v stat)" in "$EUID" | 0 | '') ;; *) return 0 ;; esac
  fi
  [ -e "$1" ] && [ ! -O "$1" ] && [ "$(stat -L -c %u "$1" 2> /dev/null)" != 0 ]
}

slurmopt_finds() { # owner|mode PATH: whether that is wrong, also where the file system does not show the true ones
  ! (cd / && exec "$slurmopt_python" "${slurmopt_start[@]}" slurmopt.run_folder.private "$1" "$2" 2> /dev/null)
}

slurmopt_refuse_foreign() { # FOLDER: ends the job where the run's folder, or what it reads there, is another user's
  local path name why patience=${slurmopt_patience:-60} of_sweep=
  if [ -n "$slurmopt_sweep" ]; then of_sweep="points.json sweep.json cancelled more points tasks"; fi
  for name in '' . config.yaml task.json events.jsonl $of_sweep code python submitit logs heartbeat; do
    path=$1
    if [ -n "$name" ]; then path=$slurmopt_held${1#"$slurmopt_place"}/$name; fi
    while slurmopt_is_foreign "$path"; do # so is all for a node that cannot map user ids, which may pass
      if [ $((patience -= 1)) -lt 0 ]; then
        case "$path" in "$slurmopt_held"*) path=$slurmopt_place${path#"$slurmopt_held"} ;; esac
        echo "slurmopt: $path $why: the job ends, and uses nothing of what is there" >&2
        exit 69
      fi
      sleep 1
    done
  done
}

# ---- the points of a sweep's array task ------------------------------------------------------------------------------
slurmopt_nth() { # N RANGES: the Nth number, from 0, of "3,7-9"
  local left=$1 span first last
  for span in ${2//,/ }; do
    first=${span%-*} last=${span#*-}
    if [ "$left" -le $((last - first)) ]; then echo $((first + left)); return; fi
    left=$((left - (last - first + 1)))
  done
  return 1
}

slurmopt_among() { # N RANGES: whether N is one of "3,7-9"
  local span
  for span in ${2//,/ }; do
    if [ "${span%-*}" -le "$1" ] && [ "$1" -le "${span#*-}" ]; then return 0; fi
  done
  return 1
}

slurmopt_has_newer() { # SUBMISSION POINT: whether a later submission has the point too: it is that one's then
  local number points
  if [ ! -e "$slurmopt_held/sweep.json" ]; then return 1; fi
  while read -r number points; do
    if [ "$number" -gt "$1" ] && slurmopt_among "$2" "$points"; then return 0; fi
  done < <(tr '}' '\n' < "$slurmopt_held/sweep.json" |
    sed -n 's/.*"number": \([0-9]*\),.*"points": "\([0-9,-]*\)".*/\1 \2/p')
  return 1
}

slurmopt_go_on() { # SECONDS: submits points that still wait for room in the queue
  local later=
  if [ -n "$slurmopt_local" ]; then return; fi # without Slurm no points wait for room in its limits
  read -r later 2> /dev/null < "$slurmopt_held/more" || [ -e "$slurmopt_held/more" ] || return
  # Where array tasks still wait, the last of them at the latest will look again.
  if [ -n "$later" ] && [ "$slurmopt_task" != "${SLURM_ARRAY_TASK_MAX:-}" ] &&
    [ -n "$(find "$slurmopt_held/more" -newermt '-10 seconds')" ]; then return; fi
  if slurmopt_is_swapped; then return; fi
  (
    trap '' TERM
    # in the environment that this shell began with: each array job would hand on what its surroundings added
    # (not by `env -i`, whose words all users of the node could read; functions stay as they are)
    mapfile -d '' -t slurmopt_began < "/proc/$$/environ"
    slurmopt_folder=$SLURMOPT_SWEEP
    unset $(compgen -e) 2> /dev/null
    for slurmopt_word in "${slurmopt_began[@]}"; do export "$slurmopt_word" 2> /dev/null; done
    cd / && exec "$slurmopt_python" "${slurmopt_start[@]}" slurmopt.sweeps.submit.backlog "$slurmopt_folder" "$1"
  )
}

slurmopt_look_last() { # this array task ends: who waits for room may have nobody else
  if [ -n "$slurmopt_looking" ]; then wait "$slurmopt_looking"; fi
  slurmopt_go_on "$([ -n "$slurmopt_first_signal" ] && echo 5 || echo 60)"
}

slurmopt_make_folder() {
  (
    umask "$slurmopt_umask"
    # -m for each: a default ACL of the place counts instead of the umask
    mkdir -p -m "$slurmopt_mode" "${slurmopt_run%/*}" "$slurmopt_run" "$slurmopt_run"/{logs,heartbeat}
    : >> "$slurmopt_run/events.jsonl"
  )
}

slurmopt_choose_points() { # SUBMISSION POINTS PER_TASK, the script's words, which survive a requeue: what this task runs
  slurmopt_task=${SLURM_ARRAY_TASK_ID:-0}
  if [ "$slurmopt_sweep" = packed ]; then
    SLURMOPT_RUN_FOLDER=$SLURMOPT_SWEEP/tasks/$1-$slurmopt_task
  else
    if ! SLURMOPT_POINT=$(slurmopt_nth "$slurmopt_task" "$2"); then
      echo "slurmopt: $2 has no point $slurmopt_task" >&2
      exit 2
    fi
    printf -v SLURMOPT_RUN_FOLDER '%s/points/%05d' "$SLURMOPT_SWEEP" "$SLURMOPT_POINT"
    if [ -e "$slurmopt_held/cancelled" ] && slurmopt_among "$SLURMOPT_POINT" "$(< "$slurmopt_held/cancelled")"; then
      slurmopt_go_on 60
      exit 0
    fi
    if slurmopt_has_newer "$1" "$SLURMOPT_POINT"; then # before the attempt has a number, which would end that one's
      echo "slurmopt: point $SLURMOPT_POINT is not started: a newer array job has it" >&2
      slurmopt_go_on 60
      exit 0
    fi
    export SLURMOPT_POINT
  fi
  export SLURMOPT_RUN_FOLDER
  slurmopt_run=$slurmopt_held${SLURMOPT_RUN_FOLDER#"$SLURMOPT_SWEEP"}
  slurmopt_make_folder
  slurmopt_looking=
  if [ -e "$slurmopt_held/more" ]; then
    slurmopt_go_on "$([ "$slurmopt_task" = "${SLURM_ARRAY_TASK_MAX:-}" ] && echo 30 || echo 0)" > /dev/null 2>&1 &
    slurmopt_looking=$!
  fi
}

# ---- the supervisor: this shell alone owns signals, requeue and verdict ----------------------------------------------
slurmopt_own_shell() { # the options and traps that all below relies on, whatever lines of the user's own have set
  set +e +u +f +C +o pipefail +o posix
  shopt -u nullglob failglob
  IFS=$' \t\n'
  trap - ERR DEBUG RETURN
  trap 'slurmopt_left $?' EXIT
  trap 'slurmopt_signal USR1' USR1
  trap 'slurmopt_signal TERM' TERM
  trap 'slurmopt_tell' USR2
  trap 'slurmopt_late' ALRM
}

slurmopt_fail() { # says why, and ends; the status is 69 unless the fault is the user's own
  slurmopt_own_shell
  echo "slurmopt: $1" >&2
  slurmopt_why=$1
  exit "${2:-69}"
}

slurmopt_event() { # a line of the run's journal: its word, then further JSON fields
  local now=${EPOCHREALTIME/,/.} journal=$slurmopt_run/events.jsonl
  if [ -z "$now" ]; then printf -v now '%(%s)T' -1; fi
  if [ -n "$(tail -c 1 "$journal" 2> /dev/null)" ]; then echo >> "$journal"; fi # a full disk has torn the last line
  printf '{"time": %s, "event": "%s", "attempt": %d%s}\n' "$now" "$1" "$SLURMOPT_ATTEMPT" "${2:+, $2}" >> "$journal"
}

slurmopt_note() { # FILE: makes it, empty; nobody else may write it, whatever the umask
  (umask "$slurmopt_umask"; : > "$1")
}

slurmopt_deaf() { (trap '' TERM; exec "$@"); } # what Slurm's SIGTERM to the whole batch step must not cut short

slurmopt_own_python() { # MODULE WORDS...: away from files that would stand in for Python's own modules, also those in /
  if [ -n "${slurmopt_pythonpath+is set}" ]; then export PYTHONPATH=$slurmopt_pythonpath; fi # not that of the ranks
  cd / && SLURMOPT_HELD="$slurmopt_held $slurmopt_place" exec "$slurmopt_python" "${slurmopt_start[@]}" "$@"
}

slurmopt_python_says() { # MODULE WORDS...: the first line of its answer in slurmopt_answer; none within a minute is ""
  local reader process
  exec {reader}< <(trap '' TERM; slurmopt_own_python "$@")
  process=$!
  read -r -t 60 -u "$reader" slurmopt_answer || { slurmopt_answer=; kill -KILL "$process" 2> /dev/null; }
  exec {reader}<&-
}

slurmopt_sleep() { # SECONDS, in this very process: whoever ends it leaves no `sleep` behind
  local never
  exec {never}<> <(:) # a pipe that this process itself can write to: never at its end
  read -r -t "$1" -u "$never"
  exec {never}<&-
}

slurmopt_after() { # SECONDS SIGNAL: a signal to this shell, later
  (trap - USR1 USR2 TERM ALRM EXIT; slurmopt_sleep "$1"; exec kill -"$2" $$) > /dev/null 2>&1 &
  slurmopt_timers+=" $!"
}

slurmopt_left() { # however this shell ends before the training, the journal tells, and the run may come back
  if [ -n "$slurmopt_training" ]; then return; fi
  slurmopt_own_shell
  slurmopt_training=never
  slurmopt_conclude "$1" "${slurmopt_why:-the job script ended before the training}"
}

slurmopt_signal() { # the ranks that start later read the stop file; Slurm itself sends SIGTERM to those that run
  local first=$slurmopt_first_signal
  slurmopt_first_signal=${first:-$1}
  if [ -n "$slurmopt_over" ] || [ -z "$slurmopt_beats" ]; then return; fi
  slurmopt_hold_again
  slurmopt_event signal "\"signal\": \"$1\""
  if [ "$1$first" = USR1 ]; then slurmopt_time_is_near; return; fi
  slurmopt_note "$slurmopt_beats/stop"
  if [ -n "$slurmopt_local" ] || [ "$1" != TERM ]; then return; fi
  if [ "$slurmopt_per" = job ] && grep -q '^[0-9]*:\(.*freezer.*:.*\|:.*slurmstepd\.scope\)/job_' /proc/self/cgroup; then
    [ -z "$slurmopt_step" ] || kill -TERM "$slurmopt_step" 2> /dev/null || : # cgroup: Slurm tells this shell alone
  fi
  if slurmopt_slurm_wrote 'DUE TO \(PREEMPTION\|TIME LIMIT\)'; then
    slurmopt_early=yes # all that runs here may be killed before there is a verdict: ask for the requeue now
    slurmopt_event requeue "\"job\": \"$slurmopt_job\""
    slurmopt_deaf scontrol requeue "$slurmopt_job" > /dev/null 2>&1 &
  fi
}

slurmopt_slurm_wrote() { # PATTERN: whether slurmstepd's last line on this job, within this attempt, matches
  tail -c "+$((${slurmopt_log_from:-0} + 1))" "$slurmopt_log" 2> /dev/null |
    grep -a '\*\*\* JOB .* CANCELLED AT' | tail -n 1 | grep -q "$1"
}

slurmopt_time_is_near() { # Slurm's signal comes early; the ranks are told in time to save, and ended in time to requeue
  local reserve=$((slurmopt_lead / 4))
  reserve=$((reserve > 20 ? 20 : reserve < 1 ? 1 : reserve))
  slurmopt_after $((slurmopt_lead - reserve)) ALRM
  slurmopt_limit=${slurmopt_timers##* }
  if [ -n "$slurmopt_local" ] && [ -z "$slurmopt_may_hold" ]; then slurmopt_tell; return; fi
  (
    trap - USR1 USR2 TERM ALRM EXIT
    if [ -z "$slurmopt_local" ] && slurmopt_is_preempted; then # where the site has Slurm send the job's own signal then
      slurmopt_note "$slurmopt_beats/preempted"
      exec kill -USR2 $$
    fi
    if [ -n "$slurmopt_may_hold" ]; then
      cd / # as slurmopt_own_python
      hold=$(SLURMOPT_HELD="$slurmopt_held $slurmopt_place" timeout -k 1 10 "$slurmopt_python" "${slurmopt_start[@]}" \
        slurmopt.job.supervisor.stop_lead_time "$SLURMOPT_RUN_FOLDER" "$((slurmopt_lead - reserve))" "$slurmopt_policy")
      case "$hold" in '' | *[!0-9]*) hold=0 ;; esac
      slurmopt_sleep "$hold"
    fi
    exec kill -USR2 $$
  ) > /dev/null 2>&1 &
  slurmopt_timers+=" $!"
}

slurmopt_is_preempted() { # whether this job is in the grace time of a preemption
  slurmopt_record 5 | grep -q 'PreemptTime=[0-9]'
}

slurmopt_record() { # SECONDS: what Slurm knows of this job; slurmctld that reads slurm.conf anew breaks off: once more
  local more=$((SECONDS + 3))
  until timeout -k 1 "$1" scontrol show job --oneliner "$slurmopt_job" 2> /dev/null; do
    if [ $? -eq 127 ] || [ "$SECONDS" -ge "$more" ]; then return 1; fi
    slurmopt_sleep 0.2
  done
}

slurmopt_tell() { # now the ranks save and leave
  echo "slurmopt: the job is about to end: the ranks are asked to save and stop; this shell asks for the requeue" >&2
  slurmopt_hold_again
  slurmopt_note "$slurmopt_beats/stop"
  if [ -n "$slurmopt_step" ]; then slurmopt_forward; fi
}

slurmopt_forward() { # only once each rank's handler stands: before that the signal would kill it
  local tries=300
  until [ "$(ls "$slurmopt_beats" | grep -c '^rank-')" -ge "$slurmopt_ranks" ] || [ $((tries -= 1)) -le 0 ]; do
    kill -0 "$slurmopt_step" 2> /dev/null && [ -z "$slurmopt_was_late" ] || return
    sleep 0.1
  done
  if [ -z "$slurmopt_local" ] && [ -e "$slurmopt_beats/preempted" ]; then
    # as Slurm itself tells them, without that parameter
    kill "$slurmopt_limit" 2> /dev/null # how long they may take is Slurm's to say
    if [ "$slurmopt_per" = job ]; then
      kill -TERM "$slurmopt_step" 2> /dev/null
      timeout 20 scancel --signal=TERM "$slurmopt_job" # the tasks of its sruns, where one is running
      return
    fi
    if timeout 20 scancel --signal=TERM "$slurmopt_job"; then return; fi
  fi
  kill -USR1 "$slurmopt_step" 2> /dev/null
}

slurmopt_late() { # the ranks did not leave in time: their step is ended, and if it does not end, it is left behind
  if [ -n "$slurmopt_over" ] || [ -z "$slurmopt_step" ]; then return; fi
  if [ -n "$slurmopt_was_late" ]; then slurmopt_abandoned=yes; return; fi
  slurmopt_was_late=yes
  echo "slurmopt: the ranks have not ended in time; ending them" >&2
  kill -TERM "$slurmopt_step" 2> /dev/null # srun ends the step's tasks by SIGKILL then
  slurmopt_after 2 ALRM
}

slurmopt_is_taken() { # PORT: whether somebody listens there, at any address of this node
  local hexadecimal
  printf -v hexadecimal %04X "$1"
  grep -qs ":$hexadecimal [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6
}

slurmopt_rendezvous() { # sets where the ranks meet: an address that resolves, a port that nobody listens at
  if [ -n "$slurmopt_local" ]; then
    MASTER_ADDR=127.0.0.1
  else
    MASTER_ADDR=${SLURMD_NODENAME:-$(hostname)}
    getent hosts "$MASTER_ADDR" >/dev/null || MASTER_ADDR=$(hostname -I | cut -d' ' -f1)
  fi
  MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
  # below the ports that the kernel gives to clients; at random, so that nobody can hold it before
  MASTER_PORT=$((15000 + (RANDOM << 15 | RANDOM) % 15000))
  while slurmopt_is_taken "$MASTER_PORT"; do MASTER_PORT=$((MASTER_PORT + 1)); done
  export MASTER_ADDR MASTER_PORT
}

slurmopt_write_hostfile() { # SLOTS on each node: for the launchers of MPI and DeepSpeed
  export SLURMOPT_HOSTFILE=$SLURMOPT_RUN_FOLDER/hostfile
  slurmopt_note "$slurmopt_run/hostfile"
  if [ -n "$slurmopt_local" ]; then
    echo "localhost slots=$1" > "$slurmopt_run/hostfile"
  else
    scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\$/ slots=$1/" > "$slurmopt_run/hostfile"
  fi
}

slurmopt_prepare_step() { # looks at the folder again; sets slurmopt_logs, the ranks' folder as srun's --output takes it
  if slurmopt_is_swapped; then slurmopt_why=$slurmopt_swapped; exit 69; fi
  slurmopt_logs=$SLURMOPT_RUN_FOLDER/logs/attempt-$SLURMOPT_ATTEMPT
  case "$slurmopt_logs" in *%*) slurmopt_logs=${slurmopt_logs#"$PWD/"} ;; esac # Slurm 26.05 reads the %% of srun as %
  slurmopt_logs=${slurmopt_logs//%/%%}
}

slurmopt_watch() { # waits for the step, however often a signal interrupts that, and gives the verdict
  slurmopt_step=$1 slurmopt_training=begun
  if [ -n "${slurmopt_watchdog[*]}" ]; then
    (
      if [ -n "$slurmopt_sweep" ]; then trap - USR1 USR2 TERM ALRM EXIT; slurmopt_sleep 10; fi # a point may end at once
      slurmopt_own_python slurmopt.job.watchdog.watchdog "$SLURMOPT_RUN_FOLDER" "$SLURMOPT_ATTEMPT" "$slurmopt_ranks" \
        "${slurmopt_watchdog[@]}" --step-pid "$slurmopt_step"
    ) &
    slurmopt_timers+=" $!"
  fi
  if [ -e "$slurmopt_beats/stop" ]; then slurmopt_forward; fi
  wait "$slurmopt_step"
  while [ -z "$slurmopt_abandoned" ] && kill -0 "$slurmopt_step" 2>/dev/null; do wait "$slurmopt_step"; done
  local status=137
  if [ -z "$slurmopt_abandoned" ]; then wait "$slurmopt_step"; status=$?; fi
  slurmopt_conclude "$status"
}

slurmopt_conclude() { # STATUS [WHY]: the verdict on the attempt, and what follows
  local step_status=$1
  kill $slurmopt_timers 2> /dev/null
  slurmopt_await_folder
  slurmopt_is_swapped
  slurmopt_yield
  cd /
  if [ -z "$slurmopt_local" ] &&
    { [ "$1" -ne 0 ] || [ -e "$slurmopt_beats/stop" ] || grep -qs '"asked": "' "$slurmopt_beats"/rank-*; }; then
    slurmopt_note "$slurmopt_beats/slurm"
    (trap '' TERM; slurmopt_record 20) > "$slurmopt_beats/slurm"
  fi
  if [ -z "$slurmopt_sweep" ] || [ "$1" -ne 0 ] ||
    ! read -r slurmopt_answer 2> /dev/null < "$slurmopt_beats/verdict"; then # of a point a rank alone may have said it
    slurmopt_python_says slurmopt.job.supervisor.verdict "$SLURMOPT_RUN_FOLDER" "$SLURMOPT_ATTEMPT" "$slurmopt_ranks" \
      "$1" "$slurmopt_policy" "$slurmopt_job" "${slurmopt_log_from:-0}" "${@:2}"
  fi
  slurmopt_over=yes
  trap '' TERM # from here on Slurm's word comes too late, and what runs below takes no notice of it either
  set -- $slurmopt_answer # who brings the run back, the nodes to exclude, the exit status, seconds until then
  if [ -n "$slurmopt_early" ] && [ "$1" = final ]; then set -- cancel "$2" "$3"; fi
  case "$1" in
    requeue) slurmopt_requeue "$2" "${4:-0}" ;;
    cancel) scancel "$slurmopt_job"; slurmopt_tell_owner; slurmopt_report; exit "$3" ;;
    final) slurmopt_tell_owner; slurmopt_report; exit "$3" ;;
  esac
  slurmopt_alone "$step_status"
}

slurmopt_yield() { # this node was cut off, and the run goes on elsewhere: nothing may disturb it
  if [ -d "$slurmopt_run/logs/attempt-$((SLURMOPT_ATTEMPT + 1))" ]; then
    echo "slurmopt: a newer attempt goes on with the run" >&2
    slurmopt_over=yes
    exit 0
  fi
}

slurmopt_hold_again() { # where the held folder is lost: its file system went away, and was mounted anew
  if [ -e "$slurmopt_held/." ] || [ ! -e "$slurmopt_place/." ]; then return; fi
  slurmopt_hold "$slurmopt_place"
  slurmopt_refuse_foreign "$slurmopt_place"
}

slurmopt_await_folder() { # started again while its logs cannot be written, the job would fail without a word
  local waited=0 most
  until (: >> "$slurmopt_run/events.jsonl") 2> /dev/null; do
    slurmopt_hold_again
    case "$slurmopt_first_signal" in TERM) most=0 ;; USR1) most=$((slurmopt_lead / 8)) ;; *) most=600 ;; esac
    if [ $((waited += 1)) -gt "$most" ]; then return; fi
    sleep 1
  done
}

slurmopt_alone() { # Python gave no verdict: what this shell knows is enough to come back, a few times
  local cause=unknown many
  echo "slurmopt: there is no verdict on this attempt: Python did not answer" >&2
  if [ "$slurmopt_first_signal" = TERM ]; then exit 143; fi # the next attempt or `slurmopt tend` finds out why
  many=$(grep -c '"by": "batch shell"' "$slurmopt_run/events.jsonl")
  if [ "$slurmopt_first_signal" = USR1 ]; then cause="time limit"; fi
  if [ "${many:-0}" -ge 3 ]; then exit "$1"; fi
  if [ "$1" -eq 0 ] && ! grep -qs '"outcome": "requeue"' "$slurmopt_beats"/rank-*; then exit 0; fi # it has finished
  slurmopt_event end "\"outcome\": \"killed\", \"exit_code\": $1, \"error\": \"there is no verdict: Python did not answer\", \
\"cause\": \"$cause\", \"next\": \"requeue\", \"reason\": \"the batch shell tries again\", \"by\": \"batch shell\"" ||
    [ "$SLURMOPT_ATTEMPT" -lt 3 ] || exit "$1" # a full disk: nobody could count
  slurmopt_requeue -
  exit "$1"
}

slurmopt_stay_away() { # Slurm would open the logs of another attempt there
  slurmopt_over=yes
  slurmopt_event requeue-refused "\"job\": \"$slurmopt_job\", \
\"reason\": \"something else is in the place of the run\", \"by\": \"batch shell\""
  slurmopt_tell_owner
  if [ -z "$slurmopt_local" ] && [ -n "$slurmopt_early" ]; then scancel "$slurmopt_job"; fi
  exit 69
}

slurmopt_tell_owner() { # by a command or a webhook, where that is asked for
  if [ -n "$slurmopt_sweep" ]; then
    # its last word is in the journal
    if [ "$slurmopt_answer" != "${slurmopt_answer#final - 0}" ]; then rm -rf "$slurmopt_beats"; fi
    slurmopt_look_last
  elif [ -n "$slurmopt_notify" ]; then
    (
      export SLURMOPT_HOOKS=$slurmopt_notify
      slurmopt_own_python slurmopt.job.supervisor.notify "$SLURMOPT_RUN_FOLDER" "$SLURMOPT_ATTEMPT"
    )
  fi
}

slurmopt_report() { # writes report.html once the run has ended; what becomes of that changes nothing
  if [ -n "$slurmopt_sweep" ]; then return; fi
  if [ -n "${slurmopt_pythonpath+is set}" ]; then export PYTHONPATH=$slurmopt_pythonpath; fi
  (cd / && SLURMOPT_HELD="$slurmopt_held $slurmopt_place" exec timeout -k 1 30 \
    "$slurmopt_python" "${slurmopt_start[@]}" slurmopt.report.at_end "$SLURMOPT_RUN_FOLDER")
}

slurmopt_requeue() { # an array task is A_a: the bare job id would requeue the whole array
  local said tries=600
  slurmopt_yield
  if slurmopt_is_swapped; then slurmopt_stay_away; fi
  if [ -z "$slurmopt_local" ]; then slurmopt_heed_scancel; fi
  slurmopt_event requeue "\"job\": \"$slurmopt_job\""
  if [ -n "$slurmopt_local" ]; then
    slurmopt_tell_owner
    exit 75 # the local backend starts the next attempt, after the pause that the journal tells
  fi
  until said=$(scontrol requeue "$slurmopt_job" 2>&1); do
    case "$?:$said" in
      *"pending execution"*)
        echo "slurmopt: the job is requeued already: by the training itself, by Slurm or by an administrator" >&2
        break ;;
      127:* | *disabled* | *ermission* | *"Invalid job"*)
        said=${said//\\/} said=${said//\"/} said=${said//[[:cntrl:]]/ }
        echo "slurmopt: Slurm refuses the requeue: $said" >&2
        slurmopt_event requeue-refused "\"job\": \"$slurmopt_job\", \"reason\": \"$said\""
        slurmopt_submit ;;
    esac
    if slurmopt_was_requeued; then break; fi
    echo "slurmopt: Slurm does not answer, trying again: $said" >&2
    if [ $((tries -= 1)) -le 0 ]; then exit 75; fi # `slurmopt tend` brings it back
    sleep 3
    slurmopt_yield
    slurmopt_heed_scancel
  done
  if [ "$1" != - ]; then slurmopt_exclude "${1/#none/}"; fi
  if [ "${2:-0}" -gt 0 ]; then slurmopt_hold_off "$2"; fi
  slurmopt_tell_owner
  exit 0
}

slurmopt_was_requeued() { # by its restarts: of several nodes, Slurm 26.05 may do it and answer with an error
  local restarts
  restarts=$(slurmopt_record 20) && restarts=${restarts#* Restarts=}
  [ "${restarts%% *}" -gt "${SLURM_RESTART_COUNT:-0}" ] 2> /dev/null
}

slurmopt_hold_off() { # SECONDS until the next attempt may start; Slurm has a pause of its own: the longer one counts
  local begin now
  begin=$(slurmopt_record 20 | sed -n 's/.* EligibleTime=\([^ ]*\) .*/\1/p')
  printf -v now '%(%s)T' -1
  if [ "$(date -d "${begin:--}" +%s 2> /dev/null || echo 0)" -ge $((now + $1)) ]; then return; fi
  scontrol update "JobId=$slurmopt_job" "StartTime=now+$1" || echo "slurmopt: Slurm does not let the job wait for $1 s" >&2
}

slurmopt_heed_scancel() { # scancel is final, also while this shell waits for Slurm's answer; a mere signal is not
  if slurmopt_slurm_wrote '[0-9] \(DUE to SIGNAL Terminated \)\?\*\*\*$' && # the middle since Slurm 26.05
    ! slurmopt_record 20 | grep -q 'JobState=RUNNING'; then
    slurmopt_event end "\"outcome\": \"killed\", \"exit_code\": 143, \"error\": \"cancelled before it was requeued\", \
\"cause\": \"cancelled\", \"next\": null, \"reason\": \"cancelled, so it is not restarted\""
    exit 143
  fi
}

slurmopt_exclude() { # NODES: only a job that waits takes it, and only if it can start without them: Slurm is asked first
  if [ -n "$1" ] && ! sbatch --test-only --exclude="$1" "$slurmopt_held/job.sbatch" > /dev/null 2>&1; then
    echo "slurmopt: the job needs the nodes $1, which should be left out" >&2
    return
  fi
  scontrol update "JobId=$slurmopt_job" "ExcNodeList=$1" || echo "slurmopt: Slurm did not leave out the nodes $1" >&2
}

slurmopt_submit() { # a new job goes on with the run once this one has ended
  slurmopt_tell_owner
  (slurmopt_own_python slurmopt tend --from-job "$slurmopt_job" "$SLURMOPT_RUN_FOLDER") && exit 0
  echo "slurmopt: go on with: slurmopt tend $SLURMOPT_RUN_FOLDER" >&2
  exit 75
}

slurmopt_begin() { # the words of the script: the folder that is held is checked, and the attempt gets its number
  slurmopt_refuse_foreign "$slurmopt_place"
  slurmopt_run=$slurmopt_held
  if [ -n "$slurmopt_sweep" ]; then slurmopt_choose_points "$@"; fi
  export SLURMOPT_CONFIG="$SLURMOPT_RUN_FOLDER/config.yaml"
  slurmopt_begin_attempt
}

slurmopt_allocated() { # the GPUs and CPUs that the job has here, as JSON fields; what nothing tells is left out
  local gpus=${SLURM_GPUS_ON_NODE-} cpus=${SLURM_JOB_CPUS_PER_NODE:-${SLURM_CPUS_ON_NODE-}} listed=${SLURM_JOB_GPUS-}
  if [ -n "$slurmopt_local" ]; then
    gpus= cpus=$(nproc 2> /dev/null) listed=${CUDA_VISIBLE_DEVICES-$(echo /dev/nvidia[0-9]*)}
    listed=${listed//-1/} listed=${listed/#\/dev\/nvidia\[*/} listed=${listed// /,}
    if [ -z "$listed" ]; then gpus=0; fi
  fi
  if [ -z "$gpus" ] && [ -n "$listed" ]; then set -- ${listed//,/ }; gpus=$#; fi
  case "$gpus" in '' | *[!0-9]* | ????????*) ;; *) printf ', "gpus": %d' "$((10#$gpus))" ;; esac
  case "$cpus" in '' | *[!0-9x\(\),]*) ;; *) printf ', "cpus": "%s"' "$cpus" ;; esac
}

slurmopt_begin_attempt() {
  local tries=300
  slurmopt_step= slurmopt_training= slurmopt_first_signal=${slurmopt_first_signal-}
  slurmopt_why= slurmopt_timers= slurmopt_beats=
  slurmopt_over= slurmopt_limit= slurmopt_early= slurmopt_was_late= slurmopt_abandoned= slurmopt_answer=
  slurmopt_job=local-$PPID
  if [ -z "$slurmopt_local" ] || [ -n "$slurmopt_sweep" ]; then # the local runner sets SLURM_ARRAY_*, too
    slurmopt_job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
    slurmopt_job=${slurmopt_job:-$SLURM_JOB_ID}
  fi
  slurmopt_log=$slurmopt_held/logs/job-$slurmopt_job.log
  if [ -z "$slurmopt_local$slurmopt_sweep" ]; then slurmopt_log=$slurmopt_held/logs/job-$SLURM_JOB_ID.log; fi
  SLURMOPT_ATTEMPT=0
  slurmopt_own_shell
  slurmopt_training=none # nothing to conclude until the attempt has its number
  # who makes it has that number; `mkdir -m` fails having made it, where the file system has no modes of its own
  until (umask "$slurmopt_umask"; exec mkdir "$slurmopt_run/logs/attempt-$SLURMOPT_ATTEMPT") 2> /dev/null; do
    if [ -d "$slurmopt_run/logs/attempt-$SLURMOPT_ATTEMPT" ]; then
      SLURMOPT_ATTEMPT=$((SLURMOPT_ATTEMPT + 1))
    elif [ $((tries -= 1)) -gt 0 ]; then # a file system that is read-only, full or away may come back
      sleep 1
      slurmopt_hold_again
      if [ -n "$slurmopt_sweep" ]; then slurmopt_make_folder; fi
    else
      echo "slurmopt: cannot write into $SLURMOPT_RUN_FOLDER" >&2
      exit 69
    fi
  done
  export SLURMOPT_ATTEMPT
  # a default ACL counts instead of the umask
  chmod "$slurmopt_mode" "$slurmopt_run/logs/attempt-$SLURMOPT_ATTEMPT" 2> /dev/null
  slurmopt_refuse_foreign "$SLURMOPT_RUN_FOLDER"
  slurmopt_training=
  if [ "$slurmopt_mode" = 750 ]; then chmod go-w "$slurmopt_log" 2> /dev/null; fi # slurmd made it as the umask has it
  slurmopt_beats=$slurmopt_run/heartbeat/attempt-$SLURMOPT_ATTEMPT
  mkdir -p -m "$slurmopt_mode" "$slurmopt_beats" 2> /dev/null || [ -d "$slurmopt_beats" ] ||
    slurmopt_fail "cannot write into $SLURMOPT_RUN_FOLDER"
  if [ -n "$slurmopt_first_signal" ]; then slurmopt_note "$slurmopt_beats/stop"; fi
  if [ "$slurmopt_ranks" -gt 1 ]; then # what the ranks know each other by
    (umask 077; set -C; od -An -v -N32 -w32 -tx1 /dev/urandom > "$slurmopt_beats/rendezvous") 2> /dev/null
  fi
  slurmopt_event attempt "\"job\": \"$slurmopt_job\", \"nodes\": \"${SLURM_JOB_NODELIST:-$(hostname)}\", \
\"log_from\": ${slurmopt_log_from:-0}$(slurmopt_allocated)"
  if [ -n "$slurmopt_first_signal" ]; then slurmopt_event signal "\"signal\": \"$slurmopt_first_signal\""; fi
  if [ "$SLURMOPT_ATTEMPT" -gt 0 ]; then
    slurmopt_python_says slurmopt.job.supervisor.previous_attempts "$SLURMOPT_RUN_FOLDER" "$SLURMOPT_ATTEMPT" \
      "$slurmopt_policy"
    if [ "${slurmopt_answer%% *}" = over ]; then # the run has ended, though Slurm brought it back
      slurmopt_training=never
      if [ -n "$slurmopt_sweep" ]; then
        slurmopt_over=yes
        rm -rf "$slurmopt_beats"
        slurmopt_look_last
      fi
      exit "${slurmopt_answer#over }"
    fi
    if [ -n "$slurmopt_may_hold" ] && [ -n "$slurmopt_time_limit" ] &&
      [ "${slurmopt_answer:-0}" -gt "$slurmopt_lead" ] 2> /dev/null; then # saving takes longer than was thought at launch
      slurmopt_lead=$((slurmopt_answer < slurmopt_time_limit / 2 ? slurmopt_answer : slurmopt_time_limit / 2))
      slurmopt_after $((slurmopt_time_limit - slurmopt_lead)) USR1
    fi
  fi
}
