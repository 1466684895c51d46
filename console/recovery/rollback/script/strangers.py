"""The part of rollback.sh that tells the baseline from whoever else answers in its place."""

from __future__ import annotations

STRANGERS = r"""
PY_TLS='import sys,ssl,socket,urllib.parse as p
u=p.urlsplit(sys.argv[1])
c=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.check_hostname=False; c.verify_mode=ssl.CERT_NONE
c.wrap_socket(socket.create_connection((u.hostname,u.port),3),server_hostname=u.hostname)'

# Whether a process that no record knows may be the baseline, started by hand: it, or what has
# started it, has a name of the baseline's program, module or script.
resembles() {
  [ -n "$NAMES" ] || return 0
  above=$1
  while [ "${above:-0}" -gt 1 ]; do
    words=$(names_of "$above" "$1")
    if printf '%s\n' "$words" | grep -qxF -e "$NAMES"; then return 0; fi
    above=$(parent_of "$above")
  done
  return 1
}

# The names at the head of a command line: of a program, and of a script or module behind the flags
# of its interpreter. With that of the program file of the process if it is the second one.
names_of() {
  {
    tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | sed 5q
    if [ "$1" = "$2" ]; then readlink "/proc/$1/exe" 2>/dev/null | sed 's/ (deleted)$//'; fi
  } | names_in
}

names_in() {
  LC_ALL=C tr A-Z a-z | LC_ALL=C sed -n -e 's/^[^=]*=//' -e 's#/*$##' -e 's#.*/##' \
    -e p -e 's/^\([a-z][a-z0-9_]*\)[:.].*/\1/p'
}

# The first word of a process' command line.
program() {
  tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline" | tr -dc '\40-\176' | cut -d ' ' -f 1
}

# Who else than the baseline is seen to hold a socket of its address, in words.
stranger() {
  if [ "$KIND" = container ]; then own=$(pids_in_host); else own=$(own_pids); fi
  for inode in $(answering 3); do
    holds "$inode" "$own" && continue
    for pid in $(holders "$inode" | head -n 1); do
      printf ': pid %s, %s' "$pid" "$(program "$pid")"
    done
  done
}

# Whether what gives a plain request no HTTP answers by TLS; asked now and then, and before the wait
# ends.
says_tls() {
  case "$code" in 000|100|'') ;; *) return 1 ;; esac
  [ $((looks % 50)) -eq 20 ] || [ $((now - since)) -ge "$HUNG_S" ] || [ "$now" -ge "$end" ] ||
    return 1
  speaks_tls "https://${HEALTH#http://}" || return 1
  WORD=refusing; ALIVE=yes
  say ready "$TLS: it is alive and was left as it is"
}

# Whether what listens at a URL shakes hands by TLS, whatever its certificate says.
speaks_tls() (
  limit=5; trap - TERM  # with it busybox's `timeout` ends a client
  case "$CLIENT" in
    curl)
      shaken=$(timeout "$limit" curl -q -k -s -o /dev/null -w '%{time_appconnect}' --noproxy '*' \
        -m 3 "$1")
      case "$shaken" in ''|0|0[.,]000000) return 1 ;; esac ;;
    python3) timeout "$limit" python3 -I -c "$PY_TLS" "$1" 2>/dev/null ;;
    wget)
      wget_for 3 -O /dev/null --no-check-certificate "$1" >/dev/null
      case $? in 0|8) ;; *) return 1 ;; esac ;;
  esac
)

# Which process of the baseline's program listens at its address, with other flags than the site
# file's and without a record, in words that end with what it does ($1): nothing that it says is a
# word of the baseline.
another_process() {
  [ "$KIND" = process ] && [ -z "$SPAWNED" ] && ! baseline_pid >/dev/null || return 0
  for pid in $(for inode in $(answering 3); do holders "$inode"; done); do
    start=$(start_of "$pid")
    if [ -z "$start" ] || ! has_other_flags "$pid" || is_started_as_told "$pid"; then continue; fi
    echo "another process (pid $pid, since $(begun_at "$start")) with other flags $1"
    return
  done
}

# Whether another process has the baseline's address, well or not: that is said, and it is left
# alone.
another_is_there() {
  does=answers
  if [ "$result" != 0 ] && [ -z "${status-}" ]; then does='has its port'; fi
  OTHER=$(another_process "$does")
  [ -n "$OTHER" ] || return 1
  ALIVE=yes; fault=''
  if [ "$result" = 0 ]; then WORD=serving
  elif [ "$WORD" = garbled ]; then fault=" (garbled: $why)"; fi
  say serving "$OTHER$fault, which proves nothing of the baseline: it was left alone, and nothing \
was started beside it; omni-console adopt takes it over, or says why it cannot"
}

# Whether a process runs the baseline's program and tells it other things than the site file does,
# in whatever order and spelling. Not where that cannot be told: WANTED are the words behind the
# program there, and who has given itself a title has none.
has_other_flags() {
  [ -n "$NAMES" ] || return 1
  unmet=$WANTED; behind=''; head=0
  while IFS= read -r word; do
    [ -n "$word" ] || continue
    if [ -n "$behind" ]; then
      case "$word" in -*=*) meet "${word%%=*}" || return 0; word=${word#*=} ;; esac
      [ -z "$word" ] || meet "$word" || return 0
      continue
    fi
    head=$((head + 1))
    [ "$head" -le 5 ] || return 1
    if printf '%s\n' "$word" | names_in | grep -qxF -e "$NAMES"; then behind=yes; fi
  done <<EOF
$(words_of "$1")
EOF
  [ -n "$behind" ] && [ "$(words_of "$1" | wc -l)" -gt 1 ] && [ -n "$unmet" ]
}

# The words of a command line, one a line.
words_of() { tr '\n\0' ' \n' 2>/dev/null <"/proc/$1/cmdline" | sed '/^$/d'; }

# Takes a word out of $unmet; returns 1 if it is not there. A file is known by the end of its path.
meet() {
  others=''; met=''
  while IFS= read -r one; do
    [ -n "$one" ] || continue
    if [ -z "$met" ] && is_same "$one" "$1"; then met=yes; continue; fi
    others="$others$one
"
  done <<EOF
$unmet
EOF
  unmet=$others
  [ -n "$met" ]
}

is_same() {
  [ "$1" != "$2" ] || return 0
  part=$1 whole=$2
  if [ "${#1}" -gt "${#2}" ]; then part=$2 whole=$1; fi
  case "$whole" in *"/${part#./}") ;; *) return 1 ;; esac
}

# Whether a process, or what has started it, has the command line of the site file.
is_started_as_told() {
  above=$1
  while [ -n "$ARGV" ] && [ "${above:-0}" -gt 1 ]; do
    if [ "$(tr '\0' '\n' 2>/dev/null <"/proc/$above/cmdline")" = "$ARGV" ]; then return 0; fi
    above=$(parent_of "$above")
  done
  return 1
}

# The time of day of a start in ticks since boot, with the date if it is not of today.
begun_at() {
  ticks_s=$(getconf CLK_TCK 2>/dev/null)
  age=$(($(uptime_s) - $1 / ${ticks_s:-100})); form='%H:%M:%S'
  if [ "$age" -ge 43200 ]; then form='%Y-%m-%d %H:%M'; fi
  date -d "@$(($(date +%s) - age))" "+$form" 2>/dev/null || echo "$age s ago"
}

# The TCP segments that the network of a container has received that its engine publishes nowhere;
# empty for any other, and where nothing in it listens on TCP.
segments() {
  [ "$KIND" = container ] && [ -n "$AT" ] || return 0
  form='{{.State.Pid}} {{.Id}} {{.HostConfig.NetworkMode}} {{len .HostConfig.PortBindings}}'
  set -- $(timeout 15 docker inspect --type container -f "$form" "$STARTED" 2>/dev/null)
  case "${3:-host} ${4:-1}" in host\ *|container:*|*[!0]) return 0 ;; esac
  [ -n "$(sed -n "/$2/p" "/proc/$1/cgroup" 2>/dev/null)" ] || return 0
  [ -n "$(sed -n '/ 0A /p' "/proc/$1/net/tcp" "/proc/$1/net/tcp6" 2>/dev/null)" ] || return 0
  sed -n 's/^Tcp:\( [^ ]*\)\{9\} \([0-9]*\) .*/\2/p' "/proc/$1/net/snmp" 2>/dev/null
}

# Whether nothing has reached such a container since $1 segments had: whoever answers, or nobody,
# says nothing of it, and no restart changes that.
unreached() {
  [ -n "$1" ] && [ "$(segments)" = "$1" ] || return 1
  WORD=unknown; ALIVE=yes
  say completion "$UNREACHED; $IS_LEFT"
}

# Whether `docker compose run --name` has made a container of the baseline's name, which is not the
# baseline.
has_name_of_one_off() {
  [ -n "$BASE_NAME" ] && [ -n "$SERVICE$BASE_ID" ] || return 1
  form='{{.Id}} {{index .Config.Labels "com.docker.compose.oneoff"}}'
  shown=$(timeout 15 docker inspect --type container -f "$form" "$BASE_NAME" 2>/dev/null)
  [ "${shown##* }" = True ] && [ "${shown%% *}" != "$BASE_ID" ]
}

# Names a container of `docker compose run` that has the baseline's port. It has the labels of the
# service and is not its container; compose is to start nothing beside it.
one_off() {
  [ -n "$SERVICE" ] || return 1
  label=com.docker.compose
  form='{{.Name}} {{range $port, $at := .NetworkSettings.Ports}}{{range $at}}'
  form="$form"'{{$port}}/{{.HostIp}}/{{.HostPort}} {{end}}{{end}}'
  for box in $(timeout 15 docker ps -q --no-trunc --filter "label=$label.oneoff=True" \
    --filter "label=$label.service=$SERVICE" ${PROJECT:+--filter "label=$label.project=$PROJECT"} \
    2>/dev/null); do
    shown=$(timeout 15 docker inspect --type container -f "$form" "$box" 2>/dev/null)
    for at in ${shown#* }; do
      case "$at" in */tcp/*"/$PORT") ;; *) continue ;; esac
      box=$(printf %s "${shown%% *}" | tr -dc '\40-\176'); box=${box#/}
      say start "container $box has its port: it is of docker compose run, not the service's \
container, and is left alone; docker stop $box ends it"
      return
    done
  done
  return 1
}

"""
