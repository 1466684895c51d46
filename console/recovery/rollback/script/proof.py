"""The part of rollback.sh that asks the baseline, and tells whether it is what answers."""

from __future__ import annotations

PROOF = r"""
PY='import sys,urllib.request as u,urllib.error as e
o=u.build_opener(u.ProxyHandler({}))
d=sys.argv[3].encode() if len(sys.argv)>3 else None
try:
  r=o.open(u.Request(sys.argv[1],d,{"Content-Type":"application/json"}),timeout=float(sys.argv[2]))
  t=r.read().decode("utf-8","replace"); print(t if d else r.status)
except e.HTTPError as x: print(x.code)
except OSError: print("000")'

http_code() {
  case "$CLIENT" in
    curl) curl -s -o /dev/null -w '%{http_code}' --noproxy '*' --max-time 3 "$1" || : ;;
    python3) timeout 5 python3 -I -c "$PY" "$1" 3 ;;
    wget) wget -q -O /dev/null --no-proxy -t 1 -T 3 "$1" 2>/dev/null && echo 200 ;;
  esac
}

ask() {
  body="$BODY_HEAD$$-$(date +%s)$BODY_TAIL"
  case "$CLIENT" in
    curl) curl -s --noproxy '*' --max-time "$ASK_S" -H 'Content-Type: application/json' \
      -d "$body" "$ASK" ;;
    python3) timeout "$((ASK_S + 2))" python3 -I -c "$PY" "$ASK" "$ASK_S" "$body" ;;
    wget) wget -q -O - --no-proxy -t 1 -T "$ASK_S" --header 'Content-Type: application/json' \
      --post-data "$body" "$ASK" 2>/dev/null ;;
  esac
}

# One column of the sockets that listen on the baseline's port, at an address in hexadecimal:
# 1 is the user, 3 the inode.
sockets() {
  one='[^ ]\{1,\} \{1,\}'
  row="^ *[0-9]*: $2:$(printf '%04X' "$PORT") ${one}0A $one$one$one"
  row="$row\\([0-9]\\{1,\\}\\) \\{1,\\}\\([0-9]\\{1,\\}\\) \\{1,\\}\\([0-9]*\\) .*"
  sed -n "s/$row/\\$1/p" /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# The same of the sockets that answer: the kernel prefers one at the very address, then one at every
# address.
answering() {
  for address in $AT; do
    found=$(sockets "$1" "$address")
    if [ -n "$found" ]; then echo "$found"; return; fi
  done
}

# Whether another user's server answers on the baseline's port. Root's is nobody else's: the
# engine's proxy holds a port that a container publishes.
is_foreign() {
  users=$(answering 1)
  ours=" $(id -u) 0 "
  if [ -n "$users" ] && [ "$KIND" = container ]; then
    # an engine without root's rights holds the published port itself
    box=$(timeout 15 docker inspect --type container -f '{{.State.Pid}}' "$STARTED" 2>/dev/null)
    while [ "${box:-0}" -gt 1 ]; do
      ours="$ours$(sed -n 's/^Uid:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$box/status" 2>/dev/null) "
      box=$(parent_of "$box")
    done
  fi
  for user in $users; do
    case "$ours" in *" $user "*) ;; *) return 0 ;; esac
  done
  return 1
}

# Whether a process of a session, or one with the baseline's mark, listens on the baseline's port.
listens() {
  wanted=" $(answering 3 | tr '\n' ' ')"
  marked=" $(pids_with environ "/^$MARK\$/F" | tr '\n' ' ')"
  for at in /proc/[0-9]*; do
    case "$marked" in
      *" ${at#/proc/} "*) ;;
      *) [ "$(session_of "${at#/proc/}")" = "$1" ] || continue ;;
    esac
    for fd in "$at"/fd/*; do
      inode=$(readlink "$fd" 2>/dev/null); inode=${inode#socket:\[}
      case "$wanted" in *" ${inode%]} "*) return 0 ;; esac
    done
  done
  return 1
}

# Running, paused, restarting, pid and start of the baseline's container, as its engine has them.
life() {
  [ "$KIND" = container ] || return 0
  form='{{.State.Running}} {{.State.Paused}} {{.State.Restarting}} {{.State.Pid}}'
  timeout 15 docker inspect --type container -f "$form {{.State.StartedAt}}" "$STARTED" 2>/dev/null
}

# Whether the baseline runs, as far as known. A container that is paused or starts again and again
# does.
is_up() {
  if [ "$KIND" = process ]; then
    [ -z "$SPAWNED" ] || alive "$SPAWNED" "$SPAWNED_START"
  else
    case "$(life)" in "false false false "*) return 1 ;; esac
  fi
}

# Whether what answers is the baseline: beside a candidate that may still run it has to be known.
is_ours() {
  if is_foreign; then return 1; fi
  if [ "$KIND" = process ]; then
    is_up || return 1
    mine=${SPAWNED:-$(baseline_pid)}
    if [ -n "$mine" ] && [ -n "$(answering 3)" ]; then listens "$mine"; else [ -z "$LEFT" ]; fi
    return
  fi
  case "$(life)" in
    "true false false 0 "*) return 1 ;;
    "true false false "*) return 0 ;;
    '') [ -z "$LEFT" ] ;;
    *) return 1 ;;
  esac
}

"""
