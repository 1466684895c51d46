"""The fixed part of rollback.sh: POSIX sh for dash, with coreutils and sed only.

It consists of the stops, of the questions, of the proof with what tells strangers apart, and of
what is here: the baseline's start, and the order.

All code is in functions, and the last line calls `main`: a truncated file does nothing.
"""

from __future__ import annotations

from console.recovery.rollback.script.asks import ASKS
from console.recovery.rollback.script.proof import PROOF
from console.recovery.rollback.script.stops import STOPS
from console.recovery.rollback.script.strangers import STRANGERS

BODY = (
    STOPS
    + ASKS
    + PROOF
    + STRANGERS
    + r"""
start_container() {
  for one in "$BASE_ID" "$BASE_NAME"; do
    [ -n "$one" ] || continue
    if [ "$one" = "$BASE_NAME" ] && has_name_of_one_off; then continue; fi
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
  if one_off; then ALIVE=yes; return 1; fi
  if (callers_locale; start_fallback); then FRESH=yes; say start "by compose"; return 0; fi
  say start "every way to start the baseline's container has failed"
  return 1
}

# Whether somebody has the baseline's address, or runs its command line, although no record names it
# as the baseline: a second one would be loaded beside it, and could not answer there. Behind the
# engine's proxy may be what the baseline's start script is about to replace.
held() {
  # The engine itself refuses a published port that somebody holds.
  if [ "$KIND" = container ]; then [ "$(network "$STARTED")" = host ] || return 1
  elif has_proxy; then return 1
  fi
  if runs; then return 1; fi
  end=$(($(uptime_s) + LEAVES_S)); who=$(holder)
  while [ -n "$who" ] && [ "$(uptime_s)" -lt "$end" ]; do sleep 0.2; who=$(holder); done
  [ -n "$who" ] || return 1
  ALIVE=yes
  say start "$who: nothing is started beside it"
  say start "omni-console adopt takes it over if it is the baseline, or says why it cannot"
}

holder() {
  marked=" $([ -z "$MARK" ] || pids_with environ "/^$MARK\$/F" | tr '\n' ' ')"
  for pid in $(for inode in $(answering 3); do holders "$inode" | head -n 1; done); do
    case "$marked" in *" $pid "*) continue ;; esac
    echo "pid $pid, $(program "$pid"), holds its port"; return
  done
  if is_foreign; then echo "another user's server holds its port"; return; fi
  begun=" $(pids_with environ '/^OMNI_RUN=/F' | tr '\n' ' ')"
  for pid in $([ -z "$PROGRAM" ] || pids_with cmdline "1{/^$PROGRAM\$/F}"; model_servers); do
    case "$begun" in *" $pid "*) continue ;; esac
    case "$(user_of "$pid")" in 0|"$(id -u)") ;; *) continue ;; esac
    shares_ports "$pid" || continue
    if [ "$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline")" = "$ARGV" ]; then
      does="has the site file's command line"
    elif asks_for "$pid"; then :
    else continue
    fi
    echo "pid $pid, $(program "$pid"), $does, and does not listen at its address"; return
  done
}

# The pids of whatever may be a model server, by a word of its command line.
model_servers() {
  pids_with cmdline '/\(^\|\/\|[.]\)\(llama-server[^\/]*\|vllm\|sglang\|ollama\)$/F
    /^\(vllm[.]entrypoints\|sglang[.]launch_server\)/F; /[.]\(gguf\|safetensors\)$/F' | sort -u
}

# Whether a model server is told to listen at the baseline's port, or is told none and takes that by
# itself, and does not listen there: a start script may have become it, with other words.
asks_for() {
  [ -n "$AT" ] || return 1
  words=$(tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | sed -e 's/^--port=/--port\n/')
  told=$(echo "$words" | sed -n '/^--port$/{n;p}' | tail -n 1)
  [ -n "$told" ] || told=$(tr '\0' '\n' 2>/dev/null <"/proc/$1/environ" |
    sed -n 's/^\(LLAMA_ARG_PORT\|OLLAMA_HOST\)=\(.*:\)\{0,1\}//p')
  case "$told" in
    "$PORT") ;;
    '')
      if [ -z "$USUAL" ] || ! echo "$words" | head -n 3 | grep -q "^\(.*[/.]\)\{0,1\}$USUAL"; then
        [ -n "$SAME" ] && echo "$words" | head -n 3 | grep -q "^\(.*[/.]\)\{0,1\}$SAME" || return 1
        reads='^--*[a-z_-]*config\|[.]\(yaml\|yml\|json\|toml\|ini\|conf\|cfg\|env\)$'
        echo "$words" | sed 1d | grep -q -i "$reads" || return 1
        [ -r "/proc/$1/fd" ] && [ -z "$(ports_of "$1")" ] || return 1
        does="may be told by a file to listen at port $PORT"
        return
      fi ;;
    *) return 1 ;;
  esac
  does="is to listen at port $PORT"
  # of another user's process it is only seen that this user listens there
  user=$(user_of "$1")
  if ! [ -r "/proc/$1/fd" ] && sockets 1 '[0-9A-F]*' | grep -q -x "$user"; then return 1; fi
  for inode in $(sockets 3 '[0-9A-F]*'); do
    if holders "$inode" | grep -q -x "$1"; then return 1; fi
  done
}

start_process() {
  if running=$(baseline_pid); then say start "pid $running runs already"; return 0; fi
  mkdir -p "${LOG%/*}" 2>/dev/null
  # `true`, because after `:` or `exec` a file that cannot be opened would end the whole shell.
  if [ -p "$LOG" ] || ! true 2>/dev/null >>"$LOG"; then LOG=/dev/null; fi
  if [ -f "$LOG" ]; then LOG_AT=$(($(wc -c <"$LOG") + 1)); fi
  { trap - TSTP PIPE INT QUIT TERM; callers_locale; spawn_baseline
  } </dev/null >>"$LOG" 2>&1 9>&- &
  SPAWNED=$!; FRESH=yes
  SPAWNED_START=$(start_of "$SPAWNED")
  mkdir -p "${RECORD%/*}" 2>/dev/null; [ ! -p "$RECORD" ] || RECORD=/dev/null
  form='{"pid": %s, "start": %s, "boot_id": "%s", "sha": "%s", "log_begin": %s}\n'
  printf "$form" "$SPAWNED" "${SPAWNED_START:-0}" "$BOOT" "$SHA" "$((${LOG_AT:-1} - 1))" \
    2>/dev/null >"$RECORD" || say start "no record is written"
  say start "pid $SPAWNED"
}

start_unit() {
  case "$(unit_has ActiveState)" in
    active|activating|reloading) say start "unit $UNIT runs already"; return 0 ;;
  esac
  unit reset-failed >/dev/null
  if ! words=$(unit start --no-block); then
    say start "systemctl start $UNIT failed: $(why)"; return 1
  fi
  FRESH=yes
  say start "unit $UNIT"
}

BIND='import errno,socket as s,sys
def bind(family,address):
  one=s.socket(family)
  if family==s.AF_INET6: one.setsockopt(s.IPPROTO_IPV6,s.IPV6_V6ONLY,0)
  try: one.bind((address,int(sys.argv[1])))
  except OSError as x: return x.errno
codes=[bind(s.AF_INET,"0.0.0.0")]
try: codes.append(bind(s.AF_INET6,"::"))
except OSError: pass
sys.exit(3 if errno.EADDRINUSE in codes else 4 if codes[0] else 0)'

# Whether an engine that does not set SO_REUSEADDR could not listen on the baseline's port now. The
# kernel tables tell it where it cannot be tried: they lack sockets that do not listen yet.
in_use() {
  if command -v python3 >/dev/null 2>&1; then
    timeout 5 python3 -I -c "$BIND" "$PORT" >/dev/null 2>&1
    case $? in 0) return 1 ;; 3) return 0 ;; esac
  fi
  row="^ *[0-9]*: [0-9A-F]*:$(printf '%04X' "$PORT") "
  [ -n "$(sed -n "/$row/p" /proc/net/tcp /proc/net/tcp6 2>/dev/null)" ]
}

# Starts a process again that ended because its address was in use, once it is free: connections of
# its clients linger in the kernel for a minute, and then it can listen. Returns 1 for other ends.
address_lingers() {
  [ "$KIND" = process ] && [ -n "$FRESH" ] && [ -f "$LOG" ] && [ -z "$(answering 1)" ] || return 1
  said=$(tail -c "+$LOG_AT" "$LOG" | sed -n '/[Aa]ddress .*in use\|EADDRINUSE/{p;q}')
  [ -n "$said" ] || return 1
  if ! in_use; then
    # It may just have become free. A second time it is another one that is in use.
    if [ -z "$FREE" ]; then FREE=yes; start_process; return; fi
    say ready "its log says: $(printf %s "$said" | tr -dc '\40-\176' | cut -c 1-200)"
    say ready "port $PORT is free: that is said of another port or socket"
    return 1
  fi
  LINGERS=${LINGERS:-$(uptime_s)}
  say ready "its address is in use, though nobody listens there; it is started again when free"
  while [ $(($(uptime_s) - LINGERS)) -lt "$ADDRESS_S" ]; do
    sleep 0.5
    if ! in_use; then start_process; return; fi
  done
  return 1
}

# Whether its engine or systemd starts it again and again: each look finds it up or about to be, and
# waiting for it has no end.
ends_each_time() {
  form='{{.RestartCount}}{{if .State.Restarting}}, exit code {{.State.ExitCode}}{{end}}'
  form="$form"'{{if .State.OOMKilled}}, out of memory{{end}}'
  case "$KIND" in
    container) who='its container engine'
      start=$(timeout 15 docker inspect --type container -f "$form" "$STARTED" 2>/dev/null) ;;
    unit) who=systemd; start=$(unit_has InvocationID) ;;
    *) return 1 ;;
  esac
  case "$start" in *,*) how=", $(printf %s "${start#*, }" | tr -dc '\40-\176')" ;; esac
  case "${start%%,*}" in ''|"$newest") return 1 ;; esac
  newest=${start%%,*}; starts=$((starts + 1))
  in_vain=1
  # One that waits to be started once more has ended as often as its engine counts. What it lacked
  # may be there now: it is started anew once.
  case "$KIND$start" in container*', exit code '*)
    case "$newest" in *[!0-9]*) ;; *) [ "$newest" -lt "$MAX_STARTS" ] || in_vain='' ;; esac ;;
  esac
  if [ -z "$in_vain" ]; then in_vain=1; [ -n "$FRESH" ] || in_vain=2
  else [ "$starts" -gt "$MAX_STARTS" ] || return 1
  fi
  say ready "$who starts it again and again: the baseline ended$how"
}

# The first other port at which its health path is well, where nobody listens at its own.
listens_at() {
  [ -z "$(answering 1)" ] || return 1
  for pid in $(own_pids; [ "$KIND" != container ] || pids_in_host); do
    for port in $(ports_of "$pid"); do
      if [ "$(http_code "http://127.0.0.1:$port/${HEALTH#*://*/}")" = 200 ]; then
        echo "$port"; return
      fi
    done
  done
  return 1
}

# Waits up to $1 seconds for the unit to be down.
unit_ends() {
  end=$(($(uptime_s) + $1))
  while is_up; do
    if [ "$(uptime_s)" -ge "$end" ]; then return 1; fi
    sleep 0.2
  done
}

# Ends a baseline that hangs, and starts it again.
start_again() {
  if held || unreached "$CAME"; then return 1; fi
  say start "restarting it once"
  FRESH=yes
  if [ "$KIND" = unit ]; then
    unit stop --no-block >/dev/null
    unit_ends "$AGAIN_S" || { unit kill --signal=SIGKILL >/dev/null; unit_ends 10; }
    start_unit
    return
  fi
  if [ "$KIND" = container ]; then
    timeout $((AGAIN_S + 60)) docker restart -t "$AGAIN_S" "$STARTED" >/dev/null ||
      { kill_inside "$STARTED"; started "$STARTED"; }
    return
  fi
  if running=$(baseline_pid); then
    begun=$(start_of "$running")
    if [ -n "$(pids_with environ '/^OMNI_RUN=/F' | sed -n "/^$running\$/p")" ]; then
      end_group "$running" "$begun" "$AGAIN_S" start "the baseline"
    else end_server "$running" "$begun" "$AGAIN_S"
    fi
  fi
  start_process
}

prove_baseline() {
  CAME=$(segments)
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

# Writes what was learnt of the baseline to where the console's faces look. It starts a process only
# where the disk takes nothing.
note_seen() {
  [ -n "$SEEN" ] || return 0
  write_seen "$SEEN" "$@" && return
  # the disk is full or takes no writes: in memory, as the rollback keeps it
  [ -d "$SPARE" ] || mkdir -m 700 "$SPARE" 2>/dev/null
  write_seen "$SPARE" "$@" ||
    say done "how this ended cannot be kept: faces say what was known before"
}

# Returns 1 if the directory $1 does not take it.
write_seen() {
  [ -d "$1" ] && [ -O "$1" ] && [ ! -L "$1" ] || return 1
  file="$1/script.$2.json"; shift
  [ ! -e "$file" ] || [ -f "$file" ] || return 1
  { printf '{"kind": "%s", "word": "%s", "at": %s, "witness": "script", ' "$1" "$2" "$at"
    printf '"detail": "%s", "other": "%s", "target": %s}\n' "$3" "$OTHER" "$TARGET"
  } 2>/dev/null >"$file"
  [ -s "$file" ]
}

# Writes the last line of ladder.jsonl, from which resume and the next rollback know that this one
# is over. It starts no process, because that may be impossible.
note_done() {
  at=''; up=''
  { while read -r key at rest && [ "$key" != btime ]; do :; done </proc/stat
    read -r up rest </proc/uptime; } 2>/dev/null
  at=$((${at:-0} + ${up%%.*}))
  case "$1$WORD$OTHER" in
    ok*) note_seen proof serving "$2" ;;
    *serving?*) note_seen answers serving '' ;;  # another process does
    *?another*) note_seen failed "$WORD" '' ;;
    *) note_seen failed "$WORD" "$2" ;;
  esac
  [ -f "$PROGRESS" ] || { [ ! -e "$PROGRESS" ] && [ -O "${PROGRESS%/*}" ]; } || return 0
  { printf '\n{"trigger": "script-%s-%s", "rung": "done", "state": "%s", "at": %s, "t": 0, ' \
      "$at" $$ "$1" "$at"
    printf '"detail": "%s", "serving": %s}\n' "$2" "$3"; } 2>/dev/null >>"$PROGRESS"
}

give_up() {
  note_done failed "rollback.sh did not bring the baseline back" false
  say done "FAILED: the baseline is not proven to serve. By hand:"
  if [ -n "$ALIVE" ]; then BY_HAND=$BY_HAND_ALIVE
  elif runs && [ -n "${dead-}" ]; then BY_HAND=$BY_HAND_DEAD
  elif runs && [ "$WORD" = garbled ]; then BY_HAND=$BY_HAND_GARBLED
  elif runs; then BY_HAND=$BY_HAND_RUNS
  fi
  if [ -n "$LOG" ] && ! [ -e "$LOG" ]; then  # nothing has started it here
    BY_HAND=$(printf '%s\n' "$BY_HAND" | grep -v -x -F -e "  tail -n 50 $LOG")
  fi
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

# Notes that the site file is another one than when this was sealed, as after a promotion.
say_older() {
  [ -f "$SITE_FILE" ] && [ -r "$SITE_FILE" ] || return 0
  mark="1s/^$(printf '\357\273\277')//"
  if [ -f "$SITE_COPY" ] && [ -r "$SITE_COPY" ]; then
    [ "$(sed "$mark" "$SITE_FILE")" != "$(sed "$mark" "$SITE_COPY")" ] || return 0
  elif [ -n "$SITE_COPY" ] || ! [ "$SITE_FILE" -nt "$0" ]; then return 0
  fi
  OLDER=yes
  file=$(printf %s "$SITE_FILE" | tr -dc '\40-\176')
  say fence "the site file $file has changed since this was sealed: the baseline of then \
comes back; omni-console rollback brings back that of now"
}

main() {
  # No lost connection, closed terminal or file size limit may stop it. Some shells lack XFSZ.
  command trap '' HUP TSTP PIPE XFSZ 2>/dev/null
  WORKER=''; ASKED=''; OVER=''; WORD=down; OTHER=''
  WHY="FAILED: the shell ended early: out of processes or files?"
  case "${1-}" in [23]) TRY=$1 ;; *) TRY=1 ;; esac
  case " $* " in *" --if-interrupted "*)
    say done "without Python nobody knows whether a run was interrupted: sh $0 brings the baseline \
back"
    exit 7 ;;
  esac
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
  SPAWNED=''; SPAWNED_START=''; STARTED=$BASE_ID; CLIENT=''; LEFT=''; FRESH=''; AWAY=''; ALIVE=''
  LINGERS=''; FREE=''; LOG_AT=1; OLDER=''; BEGUN=''; NOTED=''
  find_client
  # One rollback at a time, if flock exists; a stuck one delays this one by 5 seconds only.
  if command -v flock >/dev/null 2>&1 && { command exec 9<>"$LOCK"; } 2>/dev/null; then
    flock -w 5 9 || say fence "another rollback is running; going on without waiting for it"
  fi
  say fence "run ${RUN:-none}"
  say_older
  fence
  fence_begun
  stop_processes
  strays
  stop_containers
  LEFT=$(still_there) || LEFT=yes
  if [ -n "$LEFT" ]; then say stop "a candidate may still run"; else say stop "done"; fi
  if [ "$KIND" = container ] && [ -z "$LEFT" ]; then find_container; fi
  if [ -n "$CLIENT" ] && [ "$(http_code "$HEALTH")" = 200 ] && is_ours; then
    OTHER=$(another_process answers); say start "${OTHER:-already serving}"
  elif held; then [ -n "$CLIENT" ] || WORD=unknown
    OTHER=$(another_process 'has its port')
    [ -z "$OTHER" ] || say start "$OTHER, which proves nothing of the baseline"
    give_up
  elif [ "$KIND" = process ]; then start_process
  elif [ "$KIND" = unit ]; then start_unit || give_up
  else start_container || give_up
  fi
  if [ -z "$CLIENT" ]; then
    WORD=unknown
    say ready "no curl, python3 or wget that works: cannot check it"; give_up
  fi
  prove_baseline; result=$?
  if another_is_there; then give_up; fi
  # What is garbled may be so since its start; what hangs has just been started in vain.
  if [ "$result" = 2 ] && [ -z "$FRESH" ] && works_for_others; then result=1; fi
  if { [ "$result" = 2 ] && [ -z "$FRESH" ]; } || [ "$result" = 3 ]; then
    if start_again; then prove_baseline; result=$?; fi
  fi
  if another_is_there; then give_up; fi
  [ "$result" = 0 ] || give_up
  beside=$(lives_on | tr '\n' ' ')
  beside=${beside:+${beside}still runs}; sure=$beside
  # what could not be asked for at first may be known by now
  if [ -n "$LEFT" ] && [ -z "$beside" ] && [ -n "$(still_there)" ]; then
    beside="a candidate may still run"
  fi
  if [ -n "$sure" ] && [ -n "$EXCLUSIVE" ]; then
    say stop "FAILED: $beside beside the baseline, which serves"
    note_done ok "the baseline serves, and a candidate may still run beside it" true
    exit 7
  fi
  fence_begun  # one that was about to begin could not see this script's lock at once
  if [ -n "$BEGUN" ]; then
    say serving "FAILED: $NAME serves, but $BEGUN goes on and may take it down"
    note_done ok "the baseline serves, and a run that began meanwhile could not be ended" true
    exit 7
  fi
  say_renamed
  now="$NAME serves${OLDER:+, as the site file said when this was sealed}"
  say serving "$now${beside:+; $beside beside it}"
  note_done ok "rollback.sh brought the baseline back" true
  send_to "$SENTINEL" '{"do": "quit"}'
  send_to "$LADDER" l
  exit 0
}

main "$@"
"""
)
