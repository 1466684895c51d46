"""The fixed part of rollback.sh: POSIX sh for dash, with coreutils and sed only.

All code is in functions, and the last line calls `main`: a truncated file does nothing.
"""

from __future__ import annotations

from console.recovery.rollback.script.proof import PROOF

_STOPS = r"""
# Tools work on bytes: the kernel may cut a name inside a letter, which sed's `.` would not match.
use_bytes() {
  OLD_LOCALE=${LC_ALL-}; HAD_LOCALE=${LC_ALL+yes}
  LC_ALL=C; export LC_ALL
}

# A process that outlives the script gets the locale with which the script was called.
callers_locale() { if [ -n "$HAD_LOCALE" ]; then LC_ALL=$OLD_LOCALE; else unset LC_ALL; fi; }

# Seconds since boot, a clock that nobody can set.
uptime_s() { read -r since_boot idle </proc/uptime; echo "${since_boot%%.*}"; }

say() { printf '%s  %-10s %s\n' "$(date +%H:%M:%S)" "$1" "$2"; }

# The part of /proc/PID/stat after the command, whose name may have spaces, parentheses, newlines.
stat_of() { tr '\n' ' ' 2>/dev/null <"/proc/$1/stat" | sed 's/.*) //'; }
start_of() { stat_of "$1" 2>/dev/null | cut -d ' ' -f 20; }
session_of() { stat_of "$1" 2>/dev/null | cut -d ' ' -f 4; }
parent_of() { stat_of "$1" 2>/dev/null | cut -d ' ' -f 2; }
user_of() { stat -c %u "/proc/$1" 2>/dev/null; }

# The id of the container that a process runs in.
container_of() { sed -n 's/.*\([0-9a-f]\{64\}\).*/\1/p' "/proc/$1/cgroup" 2>/dev/null | sort -u; }

alive() {
  [ -r "/proc/$1/stat" ] && [ "$(start_of "$1")" = "$2" ] || return 1
  case "$(stat_of "$1")" in Z*|X*) return 1 ;; esac
  return 0
}

# The leader may be gone while its group lives: the kernel keeps the number for the group.
group_lives() {
  if alive "$1" "$2"; then SEEN="$1 $2"; return 0; fi
  if [ -e "/proc/$1" ] && [ "$(start_of "$1")" != "$2" ]; then return 1; fi
  kill -s 0 -- "-$1" 2>/dev/null || return 1
  # Every daemon is in a session without a leader, and the number may be a daemon's by now. Where
  # the leader was not seen alive, a cookie or the leader's control group has to prove the group.
  if [ "${SEEN-}" != "$1 $2" ] && [ -z "$(started_by "$1" "$2")" ]; then return 1; fi
  # Members are younger than their leader; if one is older, the number is another group's by now.
  [ -n "$(sed -n 's/.*) //p' /proc/[0-9]*/stat 2>/dev/null |
    while read -r state a group session b c d e f g h i j k l m n o p start rest; do
      case "$state" in Z|X) continue ;; esac
      if [ "$group" != "$1" ] && [ "$session" != "$1" ]; then continue; fi
      if [ "$start" -ge "$2" ]; then echo yes; break; fi
    done)" ]
}

# Prints "yes" for each of the run's processes in this session or group.
started_by() {
  { [ -z "$COOKIE" ] || pids_with environ "/^OMNI_RUN=$COOKIE\$/F"
    sed -s -n "/\/omni[.]$1[.]$2\(\/\|\$\)/F" /proc/[0-9]*/cgroup 2>/dev/null | cut -d / -f 3
  } | while read -r pid; do
    case " $(stat_of "$pid" 2>/dev/null | cut -d ' ' -f 3,4) " in *" $1 "*) echo yes ;; esac
  done
}

end_group() {
  group_lives "$1" "$2" || return 0
  say "$4" "ending pid $1"
  kill -s TERM -- "-$1" 2>/dev/null || kill -s TERM "$1" 2>/dev/null
  left=$(($3 * 10))
  while group_lives "$1" "$2" && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
  group_lives "$1" "$2" || return 0
  kill -s KILL -- "-$1" 2>/dev/null || kill -s KILL "$1" 2>/dev/null
  left=100
  while group_lives "$1" "$2" && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
  group_lives "$1" "$2" && say "$4" "pid $1 outlived SIGKILL"
  return 0
}

# The recorded lines. A FIFO in the file's place would block, and only a long file's end is read.
live() { if [ -f "$LIVE" ] && [ -r "$LIVE" ]; then tail -c "$MOST_END" "$LIVE"; fi; }

# Prints PID START NAME of the recorded processes of one kind, without those of another boot.
recorded() {
  head='^{"pid":\([0-9]\{1,\}\),"start":\([0-9]\{1,\}\)'
  live | sed -n -e "/\"boot\":\"/{ /\"boot\":\"$BOOT/!d; }" \
    -e "s/$head,\"kind\":\"$1\",\"name\":\"\([^\"]*\)\".*/\1 \2 \3/p"
}

is_kept() { case "$KEPT" in *"|$1|"*) return 0 ;; esac; return 1; }

# The pids whose /proc/PID/FILE has a word for which this sed script prints the file name (F). Only
# GNU sed can; without it nothing is found. With -z, a NUL ends each name.
pids_with() {
  sed -s -z -n "$2" /proc/[0-9]*/"$1" 2>/dev/null | tr '\0' '\n' | cut -d / -f 3
}

spared() {
  at=$RESTORER
  while [ -n "$at" ] && [ "$at" -gt 1 ]; do echo "$at"; at=$(parent_of "$at"); done
  recorded ladder | cut -d ' ' -f 1
  baseline_pid
}

fence() {
  recorded runner | while read -r pid start name; do
    if alive "$pid" "$start"; then
      say fence "killing the runner, pid $pid"
      kill -s KILL "$pid" 2>/dev/null || say fence "not permitted to kill pid $pid"
    fi
  done
  recorded step | while read -r pid start name; do end_group "$pid" "$start" 3 fence; done
}

# Ends every process that has the run's cookie.
strays() {
  [ -n "$COOKIE" ] || return 0
  keep=" $(spared | tr '\n' ' ')"
  pids_with environ "/^OMNI_RUN=$COOKIE\$/F" | while read -r pid; do
    session=$(session_of "$pid")
    case "$keep" in *" $pid "*|*" $session "*) continue ;; esac
    # root sees inside containers, too: those are stopped later, with a grace period
    [ "$(container_of "$pid")" = "$(container_of $$)" ] || continue
    start=$(start_of "$pid")
    [ -n "$start" ] || continue
    say fence "ending stray pid $pid"
    kill -s TERM "$pid" 2>/dev/null
    left=30
    while alive "$pid" "$start" && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
    alive "$pid" "$start" && kill -s KILL "$pid" 2>/dev/null
  done
  return 0
}

RELAY='^console[.]\(services[.]relay\|runtime[.]proxy\)$'

# Whether a relay listens at the baseline's address. A host name may stand for any address.
is_at_address() {
  host=$(tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" |
    sed -n "/$RELAY/{n;s/:$PORT\$//p;q}")
  [ -n "$HOSTS" ] || return 0
  case "$HOSTS" in *"|$host|"*) return 0 ;; esac
  case "$host" in localhost|\[*) return 1 ;; *[!0-9.]*) return 0 ;; esac
  return 1
}

# Ends the relay of a cutover, which holds the baseline's address; its command line identifies it.
stop_relays() {
  pids_with cmdline "/$RELAY/{n;/:$PORT\$/F}" | while read -r pid; do
    [ -O "/proc/$pid" ] || continue  # another user's, which could not be ended anyway
    is_at_address "$pid" || continue
    start=$(start_of "$pid")
    if [ -n "$start" ]; then end_group "$pid" "$start" 2 stop; fi
  done
}

stop_processes() {
  stop_relays
  base=$(baseline_pid)
  recorded process | while read -r pid start name; do
    [ "$name" = "$NAME" ] || [ "$pid" = "$base" ] || end_group "$pid" "$start" "$GRACE_S" stop
  done
}

# Whether a container's label names this site and user (for root: any user), or there is no owner's
# label, as on containers of older releases.
is_owned() {
  form="{{index .Config.Labels \"$OWNER_LABEL\"}}"
  owner=$(timeout 15 docker inspect --type container -f "$form" "$1" 2>/dev/null) || return 1
  case "$owner" in ''|"$OWNER") return 0 ;; esac
  [ "$owner" = "${owner%%:*}:${OWNER#*:}" ] && [ "$(id -u)" = 0 ]
}

# The containers that this user's labels name on this site, and all that this run recorded.
targets() {
  for role in candidate oneoff; do
    timeout 15 docker ps -q --no-trunc --filter "label=$ROLE_LABEL=$role"
  done | while read -r one; do if is_owned "$one"; then echo "$one"; fi; done
  live | sed -n 's/^{"container":"\([A-Za-z0-9_.-]*\)",.*/\1/p'
}

# Id and name of each candidate container that runs.
running_targets() {
  form='{{.Id}} {{.State.Running}} {{.Name}}'
  targets | sort -u | while read -r one; do
    timeout 15 docker inspect --type container -f "$form" "$one" 2>/dev/null
  done | sort -u | while read -r id up name; do
    [ "$up" != true ] || is_kept "$id" || is_kept "${name#/}" || echo "$id ${name#/}"
  done
}

stop_containers() {
  [ -n "$ENGINE" ] || return 0
  if ! command -v docker >/dev/null 2>&1; then say stop "no docker command"; return 0; fi
  running_targets | {
    while read -r id name; do
      say stop "stopping container $name"
      { timeout $((GRACE_S + 20)) docker stop -t "$GRACE_S" "$id" >/dev/null 2>&1 ||
        timeout 20 docker kill "$id" >/dev/null 2>&1 ||
        say stop "container $name still runs"; } &
    done
    wait
  }
}

# Prints "yes" for each candidate that may still run: an answer may then come from a candidate.
still_there() {
  base=$(baseline_pid)
  recorded process | while read -r pid start name; do
    if [ "$name" = "$NAME" ] || [ "$pid" = "$base" ]; then continue; fi
    if group_lives "$pid" "$start"; then echo yes; fi
  done
  [ -n "$ENGINE" ] || return 0
  if timeout 15 docker ps -q >/dev/null 2>&1; then running_targets | sed 's/.*/yes/'
  else echo yes
  fi
}
"""

BODY = (
    _STOPS
    + PROOF
    + r"""
start_container() {
  for one in "$BASE_ID" "$BASE_NAME"; do
    [ -n "$one" ] || continue
    STARTED=$one
    was=$(life)
    # A paused container cannot be started, and still has its model loaded.
    case "$was" in "true true "*|"false true "*)
      if timeout 60 docker unpause "$one" >/dev/null 2>&1; then
        say start "unpaused $one"; return 0
      fi ;;
    esac
    if started "$one" || { start_network "$one" && started "$one"; }; then
      [ "$was" = "$(life)" ] || FRESH=yes
      say start "container $one"; return 0
    fi
    say start "docker start $one failed: $(why)"
  done
  if engine_back; then
    stop_containers; LEFT=$(still_there) || LEFT=yes; start_container; return
  fi
  STARTED=$BASE_NAME
  if (callers_locale; start_fallback); then FRESH=yes; say start "by compose"; return 0; fi
  say start "every way to start the baseline's container has failed"
  return 1
}

start_process() {
  if running=$(baseline_pid); then say start "pid $running runs already"; return 0; fi
  mkdir -p "${LOG%/*}" 2>/dev/null
  # `true`, because after `:` or `exec` a file that cannot be opened would end the whole shell.
  if [ -p "$LOG" ] || ! true 2>/dev/null >>"$LOG"; then LOG=/dev/null; fi
  { trap - TSTP PIPE INT QUIT TERM; callers_locale; spawn_baseline
  } </dev/null >>"$LOG" 2>&1 9>&- &
  SPAWNED=$!; FRESH=yes
  SPAWNED_START=$(start_of "$SPAWNED")
  boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
  mkdir -p "${RECORD%/*}" 2>/dev/null; [ ! -p "$RECORD" ] || RECORD=/dev/null
  printf '{"pid": %s, "start": %s, "boot_id": "%s", "sha": "%s"}\n' "$SPAWNED" \
    "${SPAWNED_START:-0}" "$boot" "$SHA" 2>/dev/null >"$RECORD" || say start "no record is written"
  say start "pid $SPAWNED"
}

# Ends a baseline that hangs, and starts it again.
start_again() {
  say start "restarting it once"
  FRESH=yes
  if [ "$KIND" = container ]; then
    timeout $((AGAIN_S + 60)) docker restart -t "$AGAIN_S" "$STARTED" >/dev/null
    return
  fi
  if running=$(baseline_pid); then
    end_group "$running" "$(start_of "$running")" "$AGAIN_S" start
  fi
  start_process
}

prove_baseline() {
  wait_ready || return
  stop_containers
  prove
}

# Sends a message to the run's standby or sentinel, and does not wait for one that does not read.
send_to() {
  [ -p "$1" ] || return 0
  timeout 2 sh -c 'printf "%s\n" "$2" 1<>"$1"' sh "$1" "$2" 2>/dev/null
  return 0
}

# Writes the last line of ladder.jsonl, from which resume and the next rollback know that this one
# is over. It starts no process, because that may be impossible.
note_done() {
  [ -f "$PROGRESS" ] || { [ ! -e "$PROGRESS" ] && [ -O "${PROGRESS%/*}" ]; } || return 0
  at=''; up=''
  { while read -r key at rest && [ "$key" != btime ]; do :; done </proc/stat
    read -r up rest </proc/uptime; } 2>/dev/null
  at=$((${at:-0} + ${up%%.*}))
  { printf '\n{"trigger": "script-%s-%s", "rung": "done", "state": "%s", "at": %s, "t": 0, ' \
      "$at" $$ "$1" "$at"
    printf '"detail": "%s", "serving": %s}\n' "$2" "$3"; } 2>/dev/null >>"$PROGRESS"
}

give_up() {
  note_done failed "rollback.sh did not bring the baseline back" false
  say done "FAILED: the baseline is not proven to serve. By hand:"
  printf '%s\n' "$BY_HAND"
  exit 7
}

# A shell that cannot fork ends at once, so `restore` runs in a child of this shell, which can still
# report. This function starts no process either.
on_exit() {
  trap - EXIT
  [ -z "$OVER" ] || return 0
  printf '%s\n' "$WHY By hand:" "$BY_HAND"
  if [ "$ASKED" != twice ] && [ "$TRY" -lt 3 ] && [ -r "$0" ]; then
    printf '%s\n' "Trying once more. If nothing follows, use the commands above."
    if read -r now idle </proc/uptime; then
      end=$((${now%%.*} + 2))
      while [ "${now%%.*}" -lt "$end" ] && read -r now idle </proc/uptime; do :; done
    fi
    exec /bin/sh "$0" "$((TRY + 1))"
  fi
  note_done failed "rollback.sh ended before it could bring the baseline back" false
  exit 7
}

# Only a second signal ends the rollback, as with the command: one left half done may be worst.
on_signal() {
  if [ -z "$ASKED" ]; then
    ASKED=once
    printf '\nthe rollback goes on; %s again leaves it unfinished\n' "$1"
    return
  fi
  ASKED=twice; WHY="FAILED: the rollback is left unfinished after a second signal."
  [ -z "$WORKER" ] || kill -s KILL "$WORKER" 2>/dev/null
  exit 7
}

main() {
  # No lost connection, closed terminal or file size limit may stop it. Some shells lack XFSZ.
  command trap '' HUP TSTP PIPE XFSZ 2>/dev/null
  WORKER=''; ASKED=''; OVER=''; WHY="FAILED: the shell ended early: out of processes or files?"
  case "${1-}" in [23]) TRY=$1 ;; *) TRY=1 ;; esac
  trap on_exit EXIT
  trap 'on_signal Ctrl-C' INT; trap 'on_signal Ctrl-\\' QUIT; trap 'on_signal SIGTERM' TERM
  use_bytes
  restore &
  WORKER=$!
  # A signal ends the wait, but not the process that is waited for.
  while wait "$WORKER"; code=$?; kill -s 0 "$WORKER" 2>/dev/null; do :; done
  case "$code" in 0|7) OVER=yes; exit "$code" ;; esac
  exit 7
}

restore() {
  trap - EXIT
  # Tools and subshells inherit ignored signals, but not caught ones.
  trap '' INT QUIT TERM
  read -r RESTORER idle </proc/self/stat
  BOOT=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
  SPAWNED=''; SPAWNED_START=''; STARTED=$BASE_ID; CLIENT=''; LEFT=''; FRESH=''; AWAY=''
  for one in curl python3 wget; do
    if command -v "$one" >/dev/null 2>&1; then CLIENT=$one; break; fi
  done
  # One rollback at a time, if flock exists; a stuck one delays this one by 5 seconds only.
  if command -v flock >/dev/null 2>&1 && { command exec 9<>"$LOCK"; } 2>/dev/null; then
    flock -w 5 9 || say fence "another rollback is running; going on without waiting for it"
  fi
  say fence "run ${RUN:-none}"
  fence
  stop_processes
  strays
  stop_containers
  LEFT=$(still_there) || LEFT=yes
  if [ -n "$LEFT" ]; then say stop "FAILED: a candidate may still run"; else say stop "done"; fi
  if [ "$KIND" = container ] && [ -z "$LEFT" ]; then find_container; fi
  if [ -n "$CLIENT" ] && [ "$(http_code "$HEALTH")" = 200 ] && is_ours; then
    say start "already serving"
  elif [ "$KIND" = process ]; then start_process
  else start_container || give_up
  fi
  if [ -z "$CLIENT" ]; then say ready "no curl, python3 or wget: cannot check it"; give_up; fi
  prove_baseline; result=$?
  if [ "$result" = 2 ] && [ -z "$FRESH" ] && start_again; then prove_baseline; result=$?; fi
  [ "$result" = 0 ] || give_up
  say serving "$NAME serves"
  note_done ok "rollback.sh brought the baseline back" true
  send_to "$SENTINEL" '{"do": "quit"}'
  send_to "$LADDER" l
  exit 0
}

main "$@"
"""
)
