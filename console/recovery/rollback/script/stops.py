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
# It is read by the shell itself: this is asked some thirty times, and a tool costs a process.
stat_of() {
  fields=''
  { while read -r line; do fields="$fields $line"; done <"/proc/$1/stat"; } 2>/dev/null
  if [ -n "$fields" ]; then printf '%s\n' "${fields##*) }"; fi
}
start_of() { set -- $(stat_of "$1"); if [ $# -ge 20 ]; then echo "${20}"; fi; }
session_of() { set -- $(stat_of "$1"); if [ $# -ge 4 ]; then echo "$4"; fi; }
parent_of() { set -- $(stat_of "$1"); if [ $# -ge 2 ]; then echo "$2"; fi; }
user_of() { stat -c %u "/proc/$1" 2>/dev/null; }

# Whether a process has the ports of this script. Its namespaces are closed to other users, but not
# its tables of sockets: the kernel has one of each for a network, and numbers it.
shares_ports() {
  ports=$(stat -L -c %i "/proc/$1/net/tcp" 2>/dev/null) || return 1
  [ "$ports" = "$(stat -L -c %i "/proc/$$/net/tcp" 2>/dev/null)" ]
}

# The id of the container that a process runs in.
container_of() { sed -n 's/.*\([0-9a-f]\{64\}\).*/\1/p' "/proc/$1/cgroup" 2>/dev/null | sort -u; }

# One reading of a process tells all: a zombie may be reaped between two.
alive() {
  set -- "$2" $(stat_of "$1")
  case "${2-}" in ''|Z|X) return 1 ;; esac
  [ "${21-}" = "$1" ]
}

# Signals a process that still is the one which began at $3. Nothing is started between the look and
# the signal: its number cannot well become another's meanwhile.
signal_same() {
  fields=''
  { while read -r line; do fields="$fields $line"; done <"/proc/$2/stat"; } 2>/dev/null
  set -- "$1" "$2" "$3" ${fields##*) }
  case "${4-}" in ''|Z|X) return 1 ;; esac
  [ "${23-}" = "$3" ] && kill -s "$1" "$2" 2>/dev/null
}

# The leader may be gone while its group lives: the kernel keeps the number for the group.
group_lives() {
  if alive "$1" "$2"; then LED="$1 $2"; return 0; fi
  if [ -e "/proc/$1" ] && [ "$(start_of "$1")" != "$2" ]; then return 1; fi
  kill -s 0 -- "-$1" 2>/dev/null || return 1
  # Every daemon is in a session without a leader, and the number may be a daemon's by now. Where
  # the leader was not seen alive, a cookie or the leader's control group has to prove the group.
  if [ "${LED-}" != "$1 $2" ] && [ -z "$(started_by "$1" "$2")" ]; then return 1; fi
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

# Prints the pid that a record names, if it is of this boot and its process still runs.
pid_in() {
  [ -f "$1" ] && [ -r "$1" ] || return 1
  record=''
  { read -r record <"$1"; } 2>/dev/null
  case "$record" in *"$BOOT"*) ;; *) return 1 ;; esac
  behind_pid=${record##*\"pid\":}; behind_start=${record##*\"start\":}
  set -- ${behind_pid%%[!0-9 ]*} ${behind_start%%[!0-9 ]*}
  [ $# = 2 ] && alive "$1" "$2" && echo "$1"
}

# Prints PID SITE of every process that a site's records name as its baseline, and that still runs.
baselines() {
  for file in "$SERVICES"/*/baseline.*json; do
    if one=$(pid_in "$file"); then site=${file%/*}; echo "$one ${site##*/}"; fi
  done
}

# Whether pid $1 is the baseline of some site, or in the session or group that one leads. It is
# nobody's candidate, whatever a record says: it is named ($2: the stage), and left alone.
is_baseline() {
  ids=" $1 $(stat_of "$1" 2>/dev/null | cut -d ' ' -f 3,4) "
  site=$(baselines | while read -r one site; do
    case "$ids" in *" $one "*) echo "$site"; break ;; esac
  done)
  [ -n "$site" ] || return 1
  say "$2" "pid $1 is left alone: it is the recorded baseline of site $site"
}

signal_group() {
  group_lives "$2" "$3" || return 0
  kill -s "$1" -- "-$2" 2>/dev/null || signal_same "$1" "$2" "$3"
}

end_group() {
  group_lives "$1" "$2" || return 0
  if [ "${5-}" != "the baseline" ] && is_baseline "$1" "$4"; then return 0; fi
  say "$4" "ending pid $1${5:+: $5}"
  signal_group TERM "$1" "$2"
  left=$(($3 * 10))
  while group_lives "$1" "$2" && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
  signal_group KILL "$1" "$2"
  left=100
  while group_lives "$1" "$2" && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
  group_lives "$1" "$2" && say "$4" "pid $1 outlived SIGKILL"
  return 0
}

# Prints PID START of each process in the session or group of $1 that is not older than $2.
members_of() {
  inside="\($1 [^ ]*\|[^ ]* $1\)"; start='\([^ ]* \)\{15\}\([^ ]*\)'
  sed -n "s/^\([0-9]*\) .*) [^ZX] [^ ]* $inside $start .*/\1 \4/p" /proc/[0-9]*/stat 2>/dev/null |
    while read -r pid start; do [ "$start" -lt "$2" ] || echo "$pid $start"; done
}

# The numbers, in decimal, of the ports at which a process listens.
ports_of() {
  QUOTING_STYLE=literal ls -l "/proc/$1/fd" 2>/dev/null |
    sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p' | while read -r inode; do
    sed -n "s/^ *[0-9]*: [0-9A-F]*:\([0-9A-F]*\) [^ ]* 0A .* $inode .*/0x\1/p" \
      /proc/net/tcp /proc/net/tcp6
  done 2>/dev/null | sort -u | while read -r port; do printf '%d\n' "$port"; done
}

# What a process was started with that may name its port, one word a line.
told_to() {
  tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline"
  tr '\0' '\n' 2>/dev/null <"/proc/$1/environ" |
    sed -n '/^\(LLAMA_ARG_PORT\|OLLAMA_HOST\|PORT\|UVICORN_PORT\)=/p'
}

# The file that a process runs. An update puts another in its place while it runs.
file_of() { readlink "/proc/$1/exe" 2>/dev/null | sed 's/ (deleted)$//'; }

# The script or module that an interpreter runs, of the command line in this file.
script_in() {
  tr '\0' '\n' 2>/dev/null <"$1" | {
    read -r word
    case "${word##*/}" in python*|pypy*|perl*|ruby*|node*) ;; *) return 0 ;; esac
    while IFS= read -r word; do
      case "$word" in
        '') ;;
        -c) return 0 ;;  # what follows is its code
        -*) ;;
        *) printf '%s\n' "$word"; return 0 ;;
      esac
    done
  }
}

# Whether $1 may belong to the server $2: it is the same program, gives itself a title, or is what
# engines start for themselves. Two scripts of one interpreter are two programs.
is_worker() {
  file=$(file_of "$1")
  case "${file##*/}" in ''|gcs_server|raylet|orted|prted|prterun|mpirun) return 0 ;; esac
  script=$(script_in "/proc/$1/cmdline")
  case "$script" in */ray/*) return 0 ;; esac
  [ "$file" = "$(file_of "$2")" ] || return 1
  [ -z "$script" ] || [ "$script" = "$(script_in "/proc/$2/cmdline")" ]
}

# Whether a process was told to listen at this port, or is an engine that takes it without a word.
is_told() {
  if told_to "$1" | grep -q -x -e "\(.*[=:]\)\{0,1\}$2"; then return 0; fi
  usual=$(printf '%s\n' "$USUALS" | sed -n "s/^$2 //p")
  [ -n "$usual" ] && tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | head -n 3 |
    grep -q "^\(.*[/.]\)\{0,1\}$usual"
}

# Whether $1 is something of its own in the group of the server $2, which a script may have started
# beside it: another program, or one that listens at a port that it was told.
is_beside() {
  [ "$1" != "$2" ] || return 1
  case "$(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline")" in
    "ollama runner"*|*"/ollama runner"*) return 1 ;;  # it ends with `ollama serve`
  esac
  is_worker "$1" "$2" || return 0
  [ "$(told_to "$1")" != "$(told_to "$2")" ] || return 1
  for port in $(ports_of "$1"); do
    if is_told "$1" "$port"; then return 0; fi
  done
  return 1
}

# Ends a server that the console did not start, and what it has started, without what is beside it
# in its group. $3: seconds for its end.
end_server() {
  beside=' '
  # A script that still runs, and listens nowhere, starts all of its servers again.
  for pid in $([ -z "$(ports_of "$1")" ] || members_of "$1" "$2" | cut -d ' ' -f 1); do
    if is_beside "$pid" "$1"; then
      beside="$beside$pid "
      script=$(script_in "/proc/$pid/cmdline" | tr -dc '\40-\176' | cut -c 1-100)
      say start "pid $pid, $(program "$pid")${script:+ $script}, is in its group and is left alone"
    fi
  done
  if [ "$beside" = ' ' ]; then end_group "$1" "$2" "$3" start "the baseline"; return; fi
  say start "ending pid $1: the baseline"
  for signal in TERM KILL; do
    group_lives "$1" "$2" || return 0
    signal_server "$signal" "$1" "$2"
    left=$(($3 * 10))
    while group_lives "$1" "$2" && [ -n "$(of_server "$1" "$2")" ] && [ "$left" -gt 0 ]; do
      # what appears after the last look is killed, too
      if [ "$signal" = KILL ]; then signal_server KILL "$1" "$2"; fi
      sleep 0.1; left=$((left - 1))
    done
  done
}

signal_server() {
  of_server "$2" "$3" | while read -r pid start; do signal_same "$1" "$pid" "$start"; done
}

# Prints PID START of the members of a group that are not, and do not descend from, what is beside.
of_server() {
  members_of "$1" "$2" | while read -r pid start; do
    at=$pid
    while [ "${at:-0}" -gt 1 ]; do
      case "$beside" in *" $at "*) break ;; esac
      at=$(parent_of "$at")
    done
    [ "${at:-0}" -gt 1 ] || echo "$pid $start"
  done
}

# The recorded lines. A FIFO in the file's place would block, and only a long file's end is read.
live() { if [ -f "$LIVE" ] && [ -r "$LIVE" ]; then tail -c "$MAX_END" "$LIVE"; fi; }

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
    if alive "$pid" "$start" && ! is_baseline "$pid" fence; then
      say fence "killing the runner, pid $pid"
      signal_same KILL "$pid" "$start" || ! alive "$pid" "$start" ||
        say fence "not permitted to kill pid $pid"
    fi
  done
  recorded step | while read -r pid start name; do
    end_group "$pid" "$start" 3 fence "a step of this run"
  done
}

# Prints the value of a key in a file of JSON, as it is written there.
value_of() { sed -n "s/.*\"$2\": \"\{0,1\}\([^\",}]*\).*/\1/p" "$1" 2>/dev/null | sed 1q; }

# Prints PID START DIRECTORY of each runner of this user and site: of the one that the pointer
# names, and of each that may not have written it yet. One that closes a journal starts nothing.
runners() {
  [ -n "$SITE_JSON" ] || return 0
  printf '%s\n' "$POINTERS" | while IFS= read -r file; do
    [ -f "$file" ] && [ "$(stat -c %u "$file" 2>/dev/null)" = "$USER_ID" ] || continue
    case "$(value_of "$file" boot)" in ''|"$BOOT") ;; *) continue ;; esac
    [ "$(value_of "$file" site)" = "$SITE_JSON" ] || continue
    printf '%s %s %s\n' "$(value_of "$file" pid)" "$(value_of "$file" start)" \
      "$(value_of "$file" run_dir)"
  done
  pids_with cmdline '/^console[.]cli$/{n;/^runner$/{n;/^\//F}}' | while read -r pid; do
    [ "$(user_of "$pid")" = "$USER_ID" ] || continue
    start=$(start_of "$pid")
    words=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline")
    if printf '%s\n' "$words" | grep -q -x -e --close; then continue; fi
    place=$(printf '%s\n' "$words" | sed -n '/^runner$/{n;p;q}')
    [ "$(value_of "$place/run.json" site)" = "$SITE_JSON" ] || continue
    printf '%s %s %s\n' "$pid" "$start" "$place"
  done
}

# Ends the runner of a run that has begun and is not the one of this plan: it would take down what
# this script brings back. Where it has sealed a plan of its own, that one's script goes on instead.
fence_begun() {
  found=$(runners | sort -u); theirs=''
  while read -r pid start place; do
    if [ -z "$place" ] || ! alive "$pid" "$start" || is_baseline "$pid" fence; then continue; fi
    one=$(printf %s "${place##*/}" | tr -dc '\40-\176')
    say fence "run $one has begun on this site: killing its runner, pid $pid"
    signal_same KILL "$pid" "$start"
    left=30
    while alive "$pid" "$start" && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
    if alive "$pid" "$start"; then
      say fence "FAILED: pid $pid still runs"; BEGUN="run $one"
    elif [ "${place##*/}" != "$RUN" ] && [ -f "$place/rollback/rollback.sh" ]; then
      theirs=$place/rollback/rollback.sh
    fi
  done <<END
$found
END
  [ -n "$theirs" ] || return 0
  say fence "it has sealed a plan: its own rollback.sh goes on"
  exec /bin/sh "$theirs"
}

carries_cookie() {
  [ -n "$(sed -z -n "/^OMNI_RUN=$COOKIE\$/=" "/proc/$1/environ" 2>/dev/null)" ]
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
    # its number may be another's since its cookie was read
    [ -n "$start" ] && carries_cookie "$pid" || continue
    is_baseline "$pid" fence && continue
    say fence "ending stray pid $pid: it carries the run's cookie"
    signal_same TERM "$pid" "$start"
    left=30
    while alive "$pid" "$start" && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
    signal_same KILL "$pid" "$start"
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
    if [ -n "$start" ]; then
      end_group "$pid" "$start" 2 stop "the relay of a cutover at the baseline's address"
    fi
  done
}

stop_processes() {
  stop_relays
  base=$(baseline_pid)
  recorded process | while read -r pid start name; do
    [ "$name" = "$NAME" ] || [ "$pid" = "$base" ] ||
      end_group "$pid" "$start" "$GRACE_S" stop "$name, a candidate of this run"
  done
}

# Whether a container's label names this site and user (for root: any user), or there is no owner's
# label, as on containers of older releases. Labels that are those of its image say nothing: one
# made of a candidate (`docker commit`) has them, too.
is_owned() {
  image=$(timeout 15 docker inspect --type container -f '{{.Image}}' "$1" 2>/dev/null)
  form="{{index .Config.Labels \"$ROLE_LABEL\"}}"
  role=$(timeout 15 docker image inspect -f "$form" "${image:-none}" 2>/dev/null)
  if [ -n "$role" ] && [ "$role" != '<no value>' ]; then return 1; fi
  form="{{index .Config.Labels \"$RUN_LABEL\"}}"
  run=$(timeout 15 docker inspect --type container -f "$form" "$1" 2>/dev/null)
  case "$run" in ''|"$RUN"|*[!A-Za-z0-9._-]*) ;; *)
    # The runner of another run is alive: it is of a console with directories of its own.
    if [ -n "$(pids_with cmdline "/^runner\$/{n;/\/$run\$/F}")" ]; then return 1; fi ;;
  esac
  form="{{index .Config.Labels \"$OWNER_LABEL\"}}"
  owner=$(timeout 15 docker inspect --type container -f "$form" "$1" 2>/dev/null) || return 1
  case "$owner" in ''|"$OWNER") return 0 ;; esac
  [ "$owner" = "${owner%%:*}:${OWNER#*:}" ] && [ "$(id -u)" = 0 ]
}

# The containers that this user's labels name on this site, and all that this run recorded.
targets() {
  for role in candidate oneoff; do
    timeout 15 docker ps -q --no-trunc --filter "label=$ROLE_LABEL=$role" 2>/dev/null
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

# The pids of the processes of a container with this full id, which the kernel tells without the
# engine. A name, or a part of an id, may stand in the paths of anybody's control groups.
pids_inside() {
  case "$1" in *[!0-9a-f]*) return 0 ;; esac
  [ "${#1}" = 64 ] || return 0
  sed -s -n "/$1/F" /proc/[0-9]*/cgroup 2>/dev/null | cut -d / -f 3
}

# Kills the processes of a container without its engine, which may hang on a stop and on a kill and
# answer all else. Succeeds once none is left.
kill_inside() {
  left=50
  inside=$(pids_inside "$1")
  [ -n "$inside" ] || return 1
  for pid in $inside; do
    if kill -s 0 "$pid" 2>/dev/null; then break; fi
    pid=''
  done
  [ -n "$pid" ] || return 1
  while [ -n "$inside" ]; do
    kill -s KILL $inside 2>/dev/null
    left=$((left - 1)); [ "$left" -gt 0 ] || return 1
    sleep 0.1; inside=$(pids_inside "$1")
  done
}

# Stops a container by the engine, and does not wait for one that hangs where its processes are
# seen: they get a SIGTERM after two seconds, and a SIGKILL when their grace is over.
stop_container() {
  timeout $((GRACE_S + 8)) docker stop -t "$GRACE_S" "$1" >/dev/null 2>&1 &
  asking=$!; asked=$(start_of "$asking"); waited=0
  if [ -n "$(pids_inside "$1")" ]; then
    while alive "$asking" "$asked"; do
      inside=$(pids_inside "$1")
      if [ -z "$inside" ] || [ "$waited" -gt $((GRACE_S * 5 + 5)) ]; then break; fi
      if [ "$waited" = 10 ]; then kill -s TERM $inside 2>/dev/null; fi
      sleep 0.2; waited=$((waited + 1))
    done
    waited=0
    while alive "$asking" "$asked" && [ -z "$inside" ] && [ "$waited" -lt 5 ]; do
      sleep 0.2; waited=$((waited + 1))
    done
    if alive "$asking" "$asked"; then
      kill "$asking" 2>/dev/null
      if [ -z "$inside" ]; then return 0; fi
    fi
  fi
  if wait "$asking" 2>/dev/null; then return 0; fi
  kill_inside "$1" || ask_helper "$1" || timeout 5 docker kill "$1" >/dev/null 2>&1
}

ASK_HELPER='import socket,sys
s=socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect(sys.argv[1])
s.sendall(b"kill %s\n"%sys.argv[2].encode()); sys.exit(b"\"ok\": true" not in s.recv(1024))'

# Has root's helper kill a container whose processes this user may not signal.
ask_helper() {
  [ -w "$HELPER" ] && timeout 5 python3 -I -c "$ASK_HELPER" "$HELPER" "$1" 2>/dev/null || return 1
  sleep 0.5; [ -z "$(pids_inside "$1")" ]
}

as_root() {
  [ "$(id -u)" = 0 ] || echo '; root may end it: sudo omni-console rollback, or this script'
}

stop_containers() {
  [ -n "$ENGINE" ] || return 0
  if ! command -v docker >/dev/null 2>&1; then say stop "no docker command"; return 0; fi
  if ! knows_container && ! timeout 15 docker ps -q >/dev/null 2>&1; then
    if [ -z "$NOTED" ]; then
      say stop "no container engine answers; no candidate container is on record"
    fi
    NOTED=yes; return 0
  fi
  running_targets | {
    while read -r id name; do
      say stop "stopping container $name: a candidate of this run or site"
      { stop_container "$id" || say stop "container $name still runs$(as_root)"; } &
    done
    wait
  }
  timeout 15 docker ps -q >/dev/null 2>&1 || end_without_engine
}

# Ends the recorded candidates that still run, which an engine that hangs does not list.
end_without_engine() {
  live | sed -n 's/^{"container":"\([0-9a-f]*\)",.*/\1/p' | sort -u | {
    while read -r id; do
      if is_kept "$id" || [ -z "$(pids_inside "$id")" ]; then continue; fi
      say stop "ending container $id without the engine: a candidate of this run"
      { stop_container "$id" || say stop "container $id still runs$(as_root)"; } &
    done
    wait
  }
}

candidate_lives() { group_lives "$1" "$2" && ! is_baseline "$1" stop >/dev/null; }

# Prints who answers at a candidate's address and was started since the run began. It may have left
# its session, parents and environment before anybody could record it. Nothing shows that this run
# started it: it is left alone, and named to the end.
at_candidates() {
  began=$(recorded runner | cut -d ' ' -f 2 | sort -n | sed 1q)
  [ -n "$began" ] && [ -n "$ADDRESSES" ] || return 0
  keep=" $(spared | tr '\n' ' ')"
  printf '%s\n' "$ADDRESSES" | while read -r name port addresses; do
    for inode in $(PORT=$port; AT=$addresses; answering 3); do
      for pid in $(holders "$inode"); do
        case "$keep" in *" $pid "*) continue ;; esac
        start=$(start_of "$pid")
        if [ "${start:-0}" -lt "$began" ] || is_proxy "$pid"; then continue; fi
        [ "$(container_of "$pid")" = "$(container_of $$)" ] || continue
        is_baseline "$pid" stop >/dev/null || echo "pid $pid at $name's port $port"
      done
    done
  done | sort -u
}

# Prints each candidate that still runs: two engines are loaded then.
lives_on() {
  base=$(baseline_pid)
  recorded process | while read -r pid start name; do
    if [ "$name" = "$NAME" ] || [ "$pid" = "$base" ]; then continue; fi
    if candidate_lives "$pid" "$start"; then echo "pid $pid"; fi
  done
  live | sed -n 's/^{"container":"\([0-9a-f]*\)",.*/\1/p' | while read -r id; do
    is_kept "$id" || [ -z "$(pids_inside "$id")" ] || echo "container $id"
  done
  at_candidates
}

# Prints "yes" for each candidate that may still run: an answer may then come from a candidate.
still_there() {
  base=$(baseline_pid)
  recorded process | while read -r pid start name; do
    if [ "$name" = "$NAME" ] || [ "$pid" = "$base" ]; then continue; fi
    if candidate_lives "$pid" "$start"; then echo yes; fi
  done
  [ -n "$ENGINE" ] || return 0
  if timeout 15 docker ps -q >/dev/null 2>&1; then running_targets | sed 's/.*/yes/'
  elif knows_container; then echo yes
  fi
}

# Whether the plan or what the run has recorded has a container.
knows_container() {
  [ -n "$BOXES" ] || [ -n "$(live | sed -n 's/^{"container":"[^"].*/yes/p' | sed 1q)" ]
}
"""
