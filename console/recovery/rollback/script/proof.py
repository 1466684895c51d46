"""The part of rollback.sh that waits for the baseline and proves that it is what answers."""

from __future__ import annotations

PROOF = r"""
# Prints column $1 of the sockets that listen on the baseline's port at address $2 (hexadecimal).
# Column 1 is the user, column 3 the inode.
sockets() {
  one='[^ ]\{1,\} \{1,\}'
  row="^ *[0-9]*: $2:$(printf '%04X' "$PORT") ${one}0A $one$one$one"
  row="$row\\([0-9]\\{1,\\}\\) \\{1,\\}\\([0-9]\\{1,\\}\\) \\{1,\\}\\([0-9]*\\) .*"
  sed -n "s/$row/\\$1/p" /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# The same for the sockets that answer: the kernel prefers one bound to the very address to one
# bound to every address.
answering() {
  reached=''
  for address in $AT; do
    # A name may mean several addresses, which a dash parts: a client may come to each of them.
    if [ "$address" = - ]; then reached=''; fi
    if [ "$address" = - ] || [ -n "$reached" ]; then continue; fi
    reached=$(sockets "$1" "$address")
    if [ -n "$reached" ]; then echo "$reached"; fi
  done
}

# Whether root's engine holds the baseline's port for a container, as the command line of its proxy
# shows. Only proxies that are not older than the start time $1 count.
has_proxy() {
  for pid in $(pids_with cmdline "/^-host-port\$/{n;/^$PORT\$/F}"); do
    if is_proxy "$pid" && [ "$(user_of "$pid")" = 0 ]; then
      began=$(start_of "$pid")
      if [ "${began:-0}" -ge "${1:-0}" ]; then return 0; fi
    fi
  done
  return 1
}

# Whether one of these pids, or a descendant (`sudo` gives it its own session), is a client of an
# engine. Only then may the engine's proxy hold the port for them; else it may publish somebody
# else's container there.
has_client() {
  clients='/^\(docker\|docker-compose\|nerdctl\|podman\)$/F'
  for client in $(sed -s -n "$clients" /proc/[0-9]*/comm 2>/dev/null | cut -d / -f 3); do
    while [ "${client:-0}" -gt 1 ]; do
      case " $(echo "$1" | tr '\n' ' ')" in *" $client "*) return 0 ;; esac
      client=$(parent_of "$client")
    done
  done
  return 1
}

is_proxy() {
  case "$(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline")" in *docker-proxy\ *) ;; *) return 1 ;; esac
}

# Whether that proxy may belong to the baseline although no client of an engine runs: the start
# script is alive, older than the proxy, and may be between two clients.
may_be_published() {
  [ "$KIND" = process ] && is_up || return 1
  oldest=${SPAWNED:-$(baseline_pid)}
  [ -n "$oldest" ] && has_proxy "$(start_of "$oldest")"
}

# A record that was put aside for one of another site file counts as well.
baseline_pid() {
  if [ "$KIND" = unit ]; then unit_pid; return; fi
  for kept in "$RECORD" "${RECORD%.json}.$SHA"*.json; do
    if pid_in "$kept"; then return; fi
  done
  marked_pid
}

# Runs systemctl for the baseline's unit, which never waits for what it asks for.
unit() {
  if [ "$UNIT_FLAG" = --user ]; then
    XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}; export XDG_RUNTIME_DIR
  fi
  timeout "$CALL_S" systemctl "$UNIT_FLAG" --no-ask-password "$@" "$UNIT" 2>&1
}

# A property of the unit: ActiveState, MainPID, ControlGroup or InvocationID.
unit_has() { unit show --property="$1" | sed -n "s/^$1=//p"; }

unit_pid() {
  main=$(unit_has MainPID)
  [ "${main:-0}" -gt 0 ] 2>/dev/null && echo "$main"
}

# The pids in the unit's control group, and in the groups below it.
unit_pids() {
  [ "$KIND" = unit ] || return 0
  group=$(unit_has ControlGroup | sed 's/[^A-Za-z0-9_@:-]/[&]/g')
  [ "${#group}" -gt 1 ] || return 0
  sed -s -n "\,^[0-9]*:[^:]*:$group\(/\|\$\),F" /proc/[0-9]*/cgroup 2>/dev/null | cut -d / -f 3
}

# Finds a baseline without a record by its mark; its children have that too, but lead no session.
# Those of a server whose parent has died hold its port.
marked_pid() {
  [ -n "$MARK" ] || return 1
  found=''
  for pid in $(pids_with environ "/^$MARK\$/F"); do
    [ -O "/proc/$pid" ] || continue
    case "$(stat_of "$pid")" in Z*|X*) continue ;; esac
    first=$(session_of "$pid")
    if [ "$first" = "$pid" ]; then found=$pid; break; fi
    case "$(stat_of "$first")" in ''|Z*|X*) ;; *) continue ;; esac
    if [ -z "$found" ] && [ "${first:-0}" -gt 0 ] &&
      ls -l "/proc/$pid/fd" 2>/dev/null | grep -q 'socket:'; then found=$pid; fi
  done
  [ -n "$found" ] && echo "$found"
}

# The pids of the baseline's session or group, and of all processes with its mark. One that was
# taken over leads no session, and perhaps no group.
own_pids() {
  mine=${SPAWNED:-$(baseline_pid)}
  [ -n "$mine" ] || return 0
  echo "$mine"
  group='\([^ ]* \)\{0,1\}'
  sed -n "s/^\([0-9]*\) .*) [^ ]* [^ ]* $group$mine .*/\1/p" /proc/[0-9]*/stat 2>/dev/null
  if [ -n "$MARK" ]; then pids_with environ "/^$MARK\$/F"; fi
  unit_pids
}

# The users whose sockets may be the baseline's. A process or a container in the host's network may
# have changed its user. Otherwise the engine holds the port, as root or as a rootless engine.
users_of_baseline() {
  id -u
  if [ "$KIND" != container ]; then
    mine=$(own_pids)
    for pid in $mine; do user_of "$pid"; done
    if has_client "$mine" && has_proxy; then echo 0; fi
    return
  fi
  for pid in $(pids_in_host); do user_of "$pid"; in_host=yes; done
  if [ -n "${in_host:-}" ]; then return; fi
  echo 0
  form='{{.State.Pid}}'
  box=$(timeout 15 docker inspect --type container -f "$form" "$STARTED" 2>/dev/null)
  case "$box" in *[!0-9]*) box=0 ;; esac
  while [ "${box:-0}" -gt 1 ]; do user_of "$box"; box=$(parent_of "$box"); done
}

# The pids of the baseline's container if it is in the host's network: only they may answer.
pids_in_host() {
  form='{{.HostConfig.NetworkMode}} {{.Id}}'
  found=$(timeout 15 docker inspect --type container -f "$form" "$STARTED" 2>/dev/null)
  case "$found" in "host "?*) ;; *) return 0 ;; esac
  sed -s -n "/${found#host }/F" /proc/[0-9]*/cgroup 2>/dev/null | cut -d / -f 3
}

# Whether the baseline's running container is published on this machine, but not at its URL.
is_elsewhere() {
  [ -n "$AT" ] || return 1
  form='{{if ne (print .HostConfig.NetworkMode) "host"}}'
  form="$form"'{{range $port, $at := .HostConfig.PortBindings}}{{$port}}/asked {{end}}'
  form="$form"'{{range $port, $at := .NetworkSettings.Ports}}{{range $at}}'
  form="$form"'{{$port}}/{{.HostIp}}/{{.HostPort}} {{end}}{{end}}{{end}}'
  ports=$(timeout 15 docker inspect --type container -f "$form" "$STARTED" 2>/dev/null)
  case "$ports" in */asked*) ;; *) return 1 ;; esac
  for one in $ports; do
    case "$one" in */tcp/*"/$PORT") ;; *) continue ;; esac
    at=${one#*/tcp/}; at=${at%/*}
    case "$at" in '') at=0.0.0.0 ;; *:*) at="[$at]" ;; esac
    case "${HOSTS:-|$at|}" in *"|$at|"*) return 1 ;; esac
  done
  return 0
}

# Whether another user's server answers on the baseline's port.
is_foreign() {
  ours=''
  for user in $(answering 1); do
    if [ "$user" = "$(id -u)" ]; then continue; fi
    ours="${ours:- $(users_of_baseline | tr '\n' ' ')}"
    case "$ours" in *" $user "*) ;; *) return 0 ;; esac
  done
  return 1
}

# The pids that hold the socket $1, as far as this user may see them.
holders() {
  QUOTING_STYLE=literal ls -l /proc/[0-9]*/fd 2>/dev/null |
    sed -n -e '/^\/proc\/[0-9]*\/fd:$/{h;d}' -e "/-> socket:\[$1\]\$/{g;p}" | cut -d / -f 3
}

# Whether each socket that answers at the baseline's address is held by one of these pids, or by the
# engine's proxy for them: several may share an address. If no process that holds one can be seen,
# the check of the sockets' users decides, unless a candidate may still run. If no pids are given,
# only a proxy is known to be wrong.
listens() {
  for inode in $(answering 3); do holds "$inode" "$1" || return 1; done
}

holds() {
  seen='' alike='' other=''
  for holder in $(holders "$1"); do
    case " $(echo "$2" | tr '\n' ' ')" in *" $holder "*) return 0 ;; esac
    if is_proxy "$holder"; then
      if has_client "$2"; then return 0; fi
      seen=yes
    elif [ -n "$2" ]; then
      seen=yes
    elif resembles "$holder"; then
      alike=yes
    else
      other=yes
    fi
  done
  [ -z "$seen" ] && { [ -n "$alike" ] || [ -z "$other" ]; } && [ -z "$LEFT" ]
}

started() { words=$(timeout 60 docker start "$1" 2>&1); }

# Why the start failed: the output of docker in one line.
why() { printf %s "$words" | tr '\n' ' ' | tr -dc '\40-\176' | cut -c 1-200; }

network() {
  form='{{.HostConfig.NetworkMode}}'
  timeout 15 docker inspect --type container -f "$form" "$1" 2>/dev/null
}

# Starts the container whose network this one joins; this one can start only while that one runs.
start_network() {
  mode=$(network "$1")
  case "$mode" in container:*) ;; *) return 1 ;; esac
  timeout 60 docker start "${mode#container:}" >/dev/null 2>&1 || return 1
  say start "container ${mode#container:}, whose network it joins, started"
}

# Selects the container: the one with the sealed id, or if that is gone, the one with its name.
find_container() {
  for STARTED in "$BASE_ID" "$BASE_NAME"; do
    if [ "$STARTED" = "$BASE_NAME" ] && has_name_of_one_off; then STARTED=''; fi
    [ -z "$(life)" ] || return 0
  done
}

# Says so where the container that was found by its id has another name by now.
say_renamed() {
  [ -n "$NAMED" ] || return 0
  now=$(timeout 15 docker inspect --type container -f '{{.Name}}' "$STARTED" 2>/dev/null |
    tr -dc '\40-\176'); now=${now#/}
  [ -n "$now" ] && [ "$now" != "$NAMED" ] || return 0
  say start "its container is named $now now, and no longer $NAMED: write that name into the site \
file, or docker rename $now $NAMED"
}

# Running, paused, restarting, pid and start of the baseline's container, as the engine tells; for
# a unit what differs between two of its starts.
life() {
  if [ "$KIND" = unit ]; then unit_has InvocationID; fi
  [ "$KIND" = container ] || return 0
  form='{{.State.Running}} {{.State.Paused}} {{.State.Restarting}} {{.State.Pid}}'
  timeout 15 docker inspect --type container -f "$form {{.State.StartedAt}}" "$STARTED" 2>/dev/null
}

# Whether the baseline runs, as far as known. A paused or restarting container counts as running.
is_up() {
  if [ "$KIND" = process ]; then
    [ -z "$SPAWNED" ] || alive "$SPAWNED" "$SPAWNED_START"
  elif [ "$KIND" = unit ]; then
    case "$(unit_has ActiveState)" in inactive|failed) return 1 ;; esac
  else
    case "$(life)" in "false false false "*) return 1 ;; esac
  fi
}

# Whether the baseline is seen to run.
runs() {
  if [ "$KIND" = process ]; then baseline_pid >/dev/null; return; fi
  if [ "$KIND" = unit ]; then is_up; return; fi
  case "$(life)" in ''|"false false false "*) return 1 ;; esac
}

# Whether what answers is the baseline. While a candidate may still run, this has to be certain.
is_ours() {
  if is_foreign; then return 1; fi
  if [ "$KIND" != container ]; then
    is_up || return 1
    if [ -n "$(answering 3)" ]; then listens "$(own_pids)"; else [ -z "$LEFT" ]; fi
    return
  fi
  case "$(life)" in
    "true false false 0 "*) return 1 ;;
    "true false false "*)
      own=$(pids_in_host)
      if [ -n "$own" ]; then listens "$own"; else ! is_elsewhere; fi
      return ;;
    # The engine has no such container, or compose has made it under another name.
    '') [ -z "$LEFT" ] && [ -n "$FRESH" ] ;;
    *) return 1 ;;
  esac
}

# Returns 2 if a server from before this rollback accepts connections but never answers.
wait_ready() {
  now=$(uptime_s); since=$now; sent=-1; allowed=$now; end=$((now + READY_S))
  looks=0; WORD=down; ALIVE=''; spent=''; worked=''; starts=0; newest=''; how=''
  while :; do
    code=$(http_code "$HEALTH")
    if [ "$code" = 200 ] && is_ours; then say ready "HTTP 200"; return 0; fi
    if is_foreign && ! may_be_published; then
      say ready "another user's server has the baseline's port"; return 1
    fi
    if [ "$code" = 200 ] && [ "$KIND" = container ] && is_elsewhere; then
      say ready "something else answers: the container is not published at this port"; return 1
    fi
    now=$(uptime_s)
    case "$FRESH$code" in
      yes*|''|503|200|[34]??) since=$now ;;
      100) sent=$now ;;
      000) if [ -z "$(answering 1)" ]; then since=$now; fi ;;
    esac
    if says_tls; then return 1; fi
    if [ $((now - since)) -ge "$HUNG_S" ]; then
      say ready "$(what_came) for $HUNG_S s$(path_says)"
      if answers_all_the_same; then return 1; fi
      if [ "$sent" -lt "$since" ]; then return 2; fi
      is_slow ready; return 1
    fi
    if [ $((looks % 10)) -eq 0 ]; then look_at_work; fi
    looks=$((looks + 1))
    if [ $((looks % 5)) -eq 0 ] && ! is_up; then
      if address_lingers; then end=$(($(uptime_s) + READY_S)); continue; fi
      who=$(stranger)
      say ready "the baseline ended${who:+; something else answers there$who}"; return 1
    fi
    if [ $((looks % 5)) -eq 0 ] && ends_each_time; then return "$in_vain"; fi
    # A router answers 404 until what is behind it has loaded.
    case "$FRESH$code" in
      yes401|yes403|yes407|yes3??|[34]??) if [ $((now - allowed)) -ge "$REFUSING_S" ]; then
        WORD=refusing; ALIVE=yes
        say ready "the health path refuses (HTTP $code): $IS_LEFT"
        answers_all_the_same
        return 1
      fi ;;
      *) allowed=$now ;;
    esac
    if [ "$now" -ge "$end" ]; then
      is_late; return
    fi
    sleep 0.2
  done
}

# What its health path says, where it says anything.
path_says() { case "$code" in ''|000|100) ;; *) echo ": HTTP $code" ;; esac; }

# What it has heard from its health path instead of an answer.
what_came() {
  if [ "$sent" -ge "$since" ]; then echo 'no whole answer'; return; fi
  case "$code" in 000) echo 'no answer' ;; *) echo 'an error' ;; esac
}

# Says at stage $1 that what sends a part of an answer is alive, whatever it is slow for.
is_slow() {
  WORD=unknown; ALIVE=yes
  say "$1" "$SENDS: $IS_LEFT"
}

# Says what is known of one that is not ready in time. Returns 2 if nothing is seen of a load.
is_late() {
  late="not ready after $READY_S s"; loads=''
  case "$code" in
    200) say ready "$late, something else answers there$(stranger)"; return 1 ;;
    [34]??)
      WORD=refusing; ALIVE=yes
      say ready "$late$(path_says), which refuses: $IS_LEFT"
      answers_all_the_same; return 1 ;;
  esac
  if [ "$code" = 000 ] && at=$(listens_at); then
    say ready "$late: it answers at port $at, and the url says port $PORT"; return 1
  fi
  say ready "$late$(path_says)"
  if [ -z "$code" ]; then cannot_ask; return 1; fi
  runs || return 1
  if still_loads; then loads=yes; fi
  if [ -n "$(answering 1)" ] && answers_all_the_same; then return 1; fi
  if [ -z "$loads" ]; then
    [ "$code" = 100 ] || return 2
    is_slow ready; return 1
  fi
  WORD=loading
  say ready "$LOADS"; return 1
}

# Whether it answers, or refuses, a completion although its health path is not well: that may be
# another engine's, or say that a queue is full.
answers_all_the_same() {
  seconds=$HUNG_S; dead=''; refuses=''
  case "${loads-}$code" in yes*|000|100) seconds=$QUICK_S ;; esac
  if [ "$ASK_S" -lt "$seconds" ]; then seconds=$ASK_S; fi
  hear "$TOKENS" "$seconds"
  if [ "$status" = none ]; then cannot_ask
  elif is_answer && [ -z "$(garbage)" ]; then
    is_ours || return 1
    WORD=unknown; ALIVE=yes
    say completion "$ALL_THE_SAME $IS_LEFT"
  elif [ "$status" = 100 ] && is_ours; then is_slow completion
  elif is_refusal && is_ours; then
    WORD=refusing; ALIVE=yes
    say completion "it refuses (HTTP $status)$refuses: $IS_LEFT"
  else return 1
  fi
}

# Nothing is known of a server that the client cannot ask.
cannot_ask() {
  WORD=unknown; ALIVE=yes
  say completion "$CLIENT fails, and cannot ask it: nothing is known of it"
}

# The pids of the baseline: its own, or those in its container.
pids_at_work() {
  if [ "$KIND" = container ]; then
    pids_inside "$(timeout 15 docker inspect --type container -f '{{.Id}}' "$STARTED" 2>/dev/null)"
  else own_pids
  fi | sort -u
}

# Prints for how many hundredths of a second its processes have computed, and how many KiB they hold
# and have read and written; nothing where none is seen.
work_done() {
  computed=0; moved=0; seen=''
  for pid in $(pids_at_work); do
    set -- $(stat_of "$pid"); [ $# -ge 22 ] || continue
    seen=yes; computed=$((computed + ${12} + ${13})); moved=$((moved + ${22} * 4))
    for bytes in $(sed -n 's/^\(rchar\|wchar\|read_bytes\): //p' "/proc/$pid/io" 2>/dev/null); do
      moved=$((moved + bytes / 1024))
    done
  done
  [ -z "$seen" ] || echo "$computed $moved"
}

# Notes when its processes work: they compute, or hold, read or write more than a moment ago.
look_at_work() {
  before=$spent; since_work=${looked-}; spent=$(work_done); looked=$(uptime_s)
  [ -n "$before" ] && [ -n "$spent" ] && [ "$looked" -gt "$since_work" ] || return 0
  took=$((looked - since_work))
  if [ $((${spent% *} - ${before% *})) -ge $((took * 5)) ] ||
    [ $((${spent#* } - ${before#* })) -ge $((took * 128)) ]; then worked=$looked; fi
}

# Whether its processes were seen to work lately. Where nobody sees them, what it says counts.
still_loads() {
  if [ -z "$spent" ]; then [ "$code" = 503 ]; return; fi
  within=$HUNG_S
  if [ $((READY_S / 2)) -lt "$within" ]; then within=$((READY_S / 2)); fi
  [ -n "$worked" ] && [ $(($(uptime_s) - worked)) -lt "$within" ]
}

# Prints something if the answer in $flat, or what came to the server's log behind byte $1, says
# that its engine is dead: then it answers no later request either.
engine_dead() {
  { printf '%s\n' "$flat"; [ ! -f "$LOG" ] || tail -c "+$(($1 + 1))" "$LOG"; } 2>/dev/null |
    sed -n -E -e "s/$ENGINE_LIVES//Ig" -e "/$ENGINE_DEAD/I{s/.*/dead/p;q}"
}

# Asks for at most $1 tokens; sets the answer and its status. What is busy, or has a full queue,
# while its health path is well, is asked again for as long as a completion may take.
ask_in_time() {
  since=$(uptime_s)
  while :; do
    log_at=0
    if [ -f "$LOG" ]; then log_at=$(wc -c <"$LOG"); fi
    hear "$1" "$ASK_S"
    overloaded=''; dead=''
    case "$status $flat" in
      200\ *'"choices"'*) ;;
      5??\ *|200\ *'"error"'*) dead=$(engine_dead "$log_at") ;;
    esac
    case "$dead$status" in 502|503|504|529) ;; *) return ;; esac
    if [ "$(http_code "$HEALTH")" != 200 ]; then return; fi
    overloaded=yes
    if [ $(($(uptime_s) - since)) -ge "$ASK_S" ]; then return; fi
    sleep 1
  done
}

# Returns 1 if it is not the baseline that answers, or if it refuses; 2 if no token came; 3 if what
# came is no answer.
prove() {
  before=$(life)
  if [ -n "$EXPECT_LEFT_OUT" ]; then say completion "expect is not looked for by this script"; fi
  for tokens_asked in "$TOKENS" "$MORE_TOKENS"; do
    came=$(segments)
    ask_in_time "$tokens_asked"
    if [ -n "$flat" ] && ! is_ours; then
      say completion "something else answers at the baseline's address$(stranger)"
      return 1
    fi
    if unreached "$came"; then return 1; fi
    if [ "$status" = none ]; then cannot_ask; return 1; fi
    if [ -n "$overloaded" ]; then
      WORD=refusing; ALIVE=yes
      say completion "it is busy or overloaded (HTTP $status): $IS_LEFT"
      return 1
    fi
    refuses=''; why=''
    if [ "$status" = 100 ]; then is_slow completion; return 1; fi
    if is_refusal; then refused=yes; else refused=''; fi
    case "$status" in 408|425|429) sleep 1 ;; *) [ -z "$refused" ] || break ;; esac
    case "$dead$status" in 000|5??|dead*) ;; *) why=$(garbage) ;; esac
    if is_answer && [ -z "$why" ]; then
      say completion "${tokens:-an answer, not counted in} tokens; this script asks for no stream"
      after=$(life)
      [ -z "$before" ] || [ -z "$after" ] || [ "$before" = "$after" ] && return 0
      say completion "the baseline was restarted during its proof"
      return 1
    fi
    none='no token in the answer'
    if [ -n "$dead" ]; then none='its engine is dead'; fi
    case "$status" in 000) none='no answer in time'; status='' ;; esac
    say completion "${why:+garbled: }${why:-$none}${status:+ (HTTP $status)}"
  done
  WORD=down
  if [ -n "$refused" ]; then WORD=refusing; ALIVE=yes
    say completion "it refuses (HTTP $status)$refuses: $IS_LEFT"; return 1
  fi
  if [ -n "$why" ]; then WORD=garbled; return 3; fi
  case "$dead$status" in 5??) case "$(http_code "$HEALTH")" in 100|200|[34]??)
    WORD=refusing; ALIVE=yes
    say completion "it fails this request (HTTP $status): $IS_LEFT"
    return 1 ;;
  esac ;; esac
  return 2
}

# Whether a baseline that gave no answer may be at work for others: clients hold connections to its
# port, and its processes compute or send answers. A restart would cut them.
works_for_others() {
  row="^ *[0-9]*: [0-9A-F]*:$(printf '%04X' "$PORT") [^ ]* 01 "
  [ -n "$(sed -n "/$row/p" /proc/net/tcp /proc/net/tcp6 2>/dev/null)" ] || return 1
  computed=$(ticks); sleep 1
  does=computes
  if [ $(($(ticks) - computed)) -lt 5 ]; then streams || return 1; does='sends them answers'; fi
  WORD=unknown; ALIVE=yes
  say completion "clients are connected, and it $does: it was left as it is"
}

# Whether clients take what its port sends, again and again. What a monitor asks comes less often.
streams() {
  command -v ss >/dev/null 2>&1 || return 1
  grew=0; before=$(taken)
  for look in 1 2 3 4 5 6 7 8; do
    sleep 0.25; now=$(taken)
    [ -z "$now" ] || [ "$now" = "$before" ] || grew=$((grew + 1))
    before=$now
  done
  [ "$grew" -ge 4 ]
}

# The bytes that each client has acknowledged.
taken() {
  timeout 5 ss -tinH state established "sport = :$PORT" 2>/dev/null |
    sed -n 's/.* bytes_acked:\([0-9]*\).*/\1/p'
}

# The hundredths of a second for which its processes have computed.
ticks() {
  total=$(work_done); total=${total% *}
  echo "${total:-0}"
}

# Whether the engine was away (it may be restarting) and has come back in time. One that refuses
# this user was not away.
engine_back() {
  command -v docker >/dev/null 2>&1 || return 1
  said=$(timeout 15 docker ps -q 2>&1) && return 1
  case "$said" in *"ermission denied"*) return 1 ;; esac
  if [ -z "$AWAY" ]; then
    say start "the engine does not answer; asking again for up to $ENGINE_S s. By hand meanwhile:"
    printf '%s\n' "$BY_HAND"
  fi
  AWAY=${AWAY:-$(uptime_s)}
  while [ $(($(uptime_s) - AWAY)) -lt "$ENGINE_S" ]; do
    sleep 0.5
    if timeout 15 docker ps -q >/dev/null 2>&1; then return 0; fi
  done
  return 1
}

"""
