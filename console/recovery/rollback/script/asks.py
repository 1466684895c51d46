"""The part of rollback.sh that asks the server, by the client there is, and judges its reply."""

from __future__ import annotations

ASKS = r"""
PY='import sys,urllib.request as u,urllib.error as e,http.client as h
class Stay(u.HTTPRedirectHandler):
  def redirect_request(*_): pass
o=u.build_opener(u.ProxyHandler({}),Stay)
d=sys.argv[3].encode() if len(sys.argv)>3 else None
q=u.Request(sys.argv[1],d,{"Content-Type":"application/json"}); r=None
try:
  try: r=o.open(q,timeout=float(sys.argv[2]))
  except e.HTTPError as x: r=x
  print(r.getcode(),flush=True); t=r.read(); d and sys.stdout.buffer.write(t)
except OSError as x: sys.exit(124 if r and isinstance(x,TimeoutError) else 9)
except h.HTTPException: sys.exit(9 if r else 8)'

# Which client there is that works. Nothing is ended for the silence that a broken one hears.
find_client() {
  for CLIENT in curl python3 wget; do
    command -v "$CLIENT" >/dev/null 2>&1 || continue
    if [ "$CLIENT" = wget ]; then case "$(trap - TERM; timeout 2 wget --help 2>&1)" in
      *--no-proxy*) ;;
      *'-T SEC'*) WGET='-Y off -T' ;;
      *) WGET='-Y off' ;;  # `timeout` has a deadline
    esac; fi
    case "$(http_code http://127.0.0.1:1/)" in ''|100) ;; *) return ;; esac
  done
  CLIENT=''
}

# GNU's; find_client knows those of busybox.
WGET='--no-proxy -t 1 -T'

# Runs wget with the seconds $1 for each read.
wget_for() {
  flags=$WGET
  case "$flags" in *-T) flags="$flags $1" ;; esac
  shift
  HOME=/proc WGETRC='' timeout "$limit" wget -q -S $flags "$@" 2>&1
}

# A client's own limits may hold for each read only, so `timeout` limits the whole call. No user's
# settings may change the proof: wget reads HOME, and accepts only a regular file as WGETRC. Prints
# the status of the health path, of which the head is enough: 100 where only a part of that came in
# time, and 000 for nothing. Prints nothing where the client itself fails.
http_code() {
  limit=$((HEALTH_S + 1)); trap - TERM  # with it busybox's `timeout` ends a client
  case "$CLIENT" in
    curl) reply=$(timeout "$limit" curl -q -s -D - -o /dev/null --noproxy '*' \
      -m "$HEALTH_S" -w "$CURL_SAYS" "$1") ;;
    python3) reply=$(timeout "$limit" python3 -I -c "$PY" "$1" "$HEALTH_S" 2>/dev/null) ;;
    wget) reply=$(wget_for "$HEALTH_S" -O /dev/null "$1") ;;
  esac
  status_at_end $?
}
CURL_SAYS='\nHTTP %{http_code} %{time_starttransfer}'

# The status that the client has met first, as its reply shows: wget follows a redirection. With
# curl 100 for bytes without a status. Prints nothing for none.
first_status() {
  case "$CLIENT" in
    curl) case "${reply##*HTTP }" in
      "$reply"|'000 0'[.,]000000) ;; 000*) echo 100 ;; *) printf '%.3s\n' "${reply##*HTTP }" ;;
    esac ;;
    python3) printf '%s\n' "$reply" | sed -n -e 's/^[0-9]\{3\}$/&/p' -e 1q ;;
    wget) printf '%s\n' "$reply" | sed -n 's/.*HTTP[^ ]* \([0-9]\{3\}\).*/\1/p' | sed 1q ;;
  esac
}

# The same if the client has ended with $1: 100 for what is no HTTP. One with a deadline for each
# read that `timeout` ends was kept by a server that sends byte by byte. busybox ends alike for a
# status and for what breaks off, so that one of 2xx counts only where it ended well.
status_at_end() {
  code=$(first_status)
  case "$CLIENT$1" in
    curl0|python30|wget0) ;;
    curl1|python38) code=100 ;;
    curl28) case "$reply" in *"$(printf '\r\n\r')"*) ;; *) code=${code:+100} ;; esac ;;
    python3124|python3137|python3143|wget124|wget137|wget143)
      case "$CLIENT$WGET" in python3*|*-T) code=${code:-100} ;; esac ;;
    *) case "$code" in 2??|100) code='' ;; esac ;;
  esac
  printf '%s\n' "${code:-$(silence "$1")}"
}

# What it means that a client has ended with $1, and has met no status: nothing came of the server,
# or the client is broken.
silence() {
  case "$CLIENT$1" in
    *124|*137|*143|curl7|curl18|curl28|curl52|curl55|curl56|python39|wget4) echo 000 ;;
    wget1) case "$reply" in
      *"can't connect"*|*" timed out"*|*"error getting"*|*"closed prematurely"*|*"read error"*)
        echo 000 ;;
    esac ;;
  esac
}

# Prints the reply to a question of at most $1 tokens, and a line with its status: 100 for one of
# which only a part came in time, and none where the client itself fails.
ask() {
  body="$BODY_HEAD$$-$(date +%s)$BODY_MIDDLE$1$BODY_TAIL"
  type='Content-Type: application/json'
  limit=$((ASK_S + 2)); trap - TERM
  case "$CLIENT" in
    curl) reply=$(timeout "$limit" curl -q -s -D - --noproxy '*' --max-time "$ASK_S" \
      -H "$type" -w "$CURL_SAYS" -d "$body" "$ASK") ;;
    python3) reply=$(timeout "$limit" python3 -I -c "$PY" "$ASK" "$ASK_S" "$body" 2>/dev/null) ;;
    wget) reply=$(wget_for "$ASK_S" -O - --header "$type" --post-data "$body" "$ASK") ;;
  esac
  ended=$?; code=$(status_at_end "$ended")
  case "$ended $code" in 0\ *) ;; *" 2"??) code=100 ;; esac
  printf '%s\nHTTP %s\n' "$reply" "${code:-none}"
}

# What a question of at most $1 tokens, with $2 seconds for it, has come to: the reply in one line,
# its status, and how many tokens it counts.
hear() {
  flat=$(ASK_S=$2; ask "$1" | tr '\n' ' ')
  status=$(printf %s "$flat" | sed -n 's/.*HTTP[^ "]* \([0-9]\{3\}\|none\) .*/\1/p')
  tokens=$(printf %s "$flat" | sed -n 's/.*"completion_tokens"[^0-9]*\([0-9]\{1,\}\).*/\1/p')
}

# Prints a text of the answer by its key, as JSON has it.
text_of() { printf %s "$flat" | sed -n 's/.*"'"$1"'" *: *"\(\(\\.\|[^"\\]\)*\)".*/\1/p'; }

# What a text is that says one thing again and again. One that ended by itself may do so: it may be
# a row of digits or symbols, and only the console itself counts them.
repetition() {
  case "$flat" in *'"finish_reason":"stop"'*|*'"finish_reason": "stop"'*) return ;; esac
  if [ -z "$(printf %s "$bare" | sed -e 's/^\([[:punct:]]\)\1\{3,\}$//' \
    -e 's/^\([[:alnum:]]\)\1\{5,\}$//')" ]; then
    echo "one character repeated, $short"
  elif [ -z "$(printf %s "$bare" | sed 's/^[[:punct:]]\{8,\}$//')" ]; then
    echo "no letters or digits, $short"
  elif [ -z "$(printf %s "$text" | sed 's/^ *\([^ ]\{1,\}\)\( \{1,\}\1\)\{5,\} *$//')" ]; then
    echo "one word repeated, $short"
  fi
}

# Why the answer in $flat is none: what a broken engine makes of one. Prints nothing if it is one,
# or if that cannot be told here: the console itself looks closer.
garbage() {
  case "$flat" in *'"choices"'*'"message"'*) ;; *) return ;; esac
  case "$flat" in *'"tool_calls"'*'"function"'*|*'"refusal": "'*) return ;; esac
  text=$(text_of content)
  if [ -z "$text" ]; then text=$(text_of reasoning_content); fi
  if [ -z "$text" ]; then text=$(text_of reasoning); fi
  bare=$(printf %s "$text" | sed -e 's/\\[nrtfb]//g' -e 's/\\u[fF][fF][fF][dD]//g' \
    -e 's/\\u00[01][0-9a-fA-F]//g' -e "s/$(printf '\357\277\275')//g" | tr -d ' \t')
  if [ -z "$bare" ]; then echo "nothing but white space or replacement characters"; return; fi
  short=$(printf %s "$bare" | tr -dc '\40-\176' | cut -c 1-40)
  again=$(repetition)
  if [ -n "$again" ]; then echo "$again"; return; fi
  [ -n "$EXPECT" ] && [ -n "$(text_of content)" ] || return
  printf %s "$(text_of content)" | timeout 5 grep -E $EXPECT_CASE -q -e "$EXPECT" ||
    { [ $? != 1 ] || echo "it does not match expect, $short"; }
}

# Whether the reply in $flat is a chat completion. Not every server counts its tokens.
is_answer() {
  case "$status" in ''|200) ;; *) return 1 ;; esac
  if [ "${tokens:-0}" -gt 0 ]; then return 0; fi
  case "$flat" in *'"choices"'*'"message"'*) ;; *) return 1 ;; esac
  case "$flat" in *'"tool_calls"'*'"function"'*|*'"refusal": "'*) return 0 ;; esac
  [ -n "$(text_of content)$(text_of reasoning_content)$(text_of reasoning)" ]
}

# Whether it is alive and answers something else: no restart would change that.
is_refusal() {
  case "$dead$status $flat" in
    [34]??\ *|501*|500*emplate*|500*inja*) return 0 ;;
    200\ *'"choices"'*'"message"'*) return 1 ;;
    2??\ *) refuses=', with no chat completion' ;;
    *) return 1 ;;
  esac
}

"""
