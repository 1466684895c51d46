"""The part of rollback.sh that ends the processes and containers of a run."""

from __future__ import annotations

STOPS = r"""
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
