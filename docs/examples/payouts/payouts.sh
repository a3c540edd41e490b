#!/usr/bin/env bash
# Pays a list with curl. Each row becomes one transaction under the row's own requestId, so it is safe to run the script
# again after any interruption: no row is paid twice. It needs bash, curl, awk and coreutils.
#   docs/examples/payouts/payouts.sh docs/examples/payouts/payouts.csv
set -euo pipefail
: "${API:?is not set: the emulator prints it}" "${TOKEN:?is not set: the emulator prints it}" "${SUBMITTER:?is not set: the emulator prints it}"
list=${1:?want one argument: the list, such as docs/examples/payouts/payouts.csv}

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# call ARGUMENTS...: writes the body of the answer to $answer, and prints the HTTP status; 000: there was no answer.
# curl repeats a call without an answer, and after 408, 429, 500, 502, 503 and 504. That is safe, since the requestId
# names the payout. The token is not among the arguments, which other users of the machine can read.
call() {
  : >"$answer"
  curl -sS -o "$answer" -w '%{http_code}' --retry 5 --retry-all-errors --max-time 30 \
    -H @<(printf 'Authorization: Bearer %s\n' "$TOKEN") -H 'Content-Type: application/json' "$@" || true
}

# member NAME: prints the first text of that name in the answer.
member() {
  awk -F "\"$1\":\"" 'NF > 1 { split($2, text, "\""); print text[1]; exit }' "$answer"
}

# The whole list is checked before anything is paid.
requests=() receivers=() amounts=()
names=$(head -n 1 "$list")
if [[ ${names%$'\r'} != requestId,to,wei ]]; then
  echo "payouts: $list: want the line requestId,to,wei first, not $names" >&2
  exit 2
fi
while IFS=, read -r request to wei || [[ $request ]]; do # the last line may lack its end
  wei=${wei%$'\r'}
  if ! [[ $request =~ ^[A-Za-z0-9._-]+$ && $to =~ ^0x[0-9a-fA-F]{40}$ && $wei =~ ^[0-9]+$ ]]; then
    echo "payouts: want requestId,to,wei, not $request,$to,$wei" >&2
    exit 2
  fi
  requests+=("$request") receivers+=("$to") amounts+=("$wei")
done < <(tail -n +2 "$list")
twice=$(printf '%s\n' "${requests[@]}" | sort | uniq -d)
if [[ $twice ]]; then # the two would be one payment
  echo "payouts: a requestId is there twice: $twice" >&2
  exit 2
fi

# All are accepted first, and carried out in this order. Posted again, a payout is the same transaction.
ids=() states=() details=()
for i in "${!requests[@]}"; do
  status=$(call "$API/api/v1/tx" -d '{"submitter": "'"$SUBMITTER"'", "requestId": "'"${requests[i]}"'",
    "payload": {"to": "'"${receivers[i]}"'", "value": "'"${amounts[i]}"'"}}')
  code=$(member code) ids[i]=''
  case $status/$code in
    200/* | 202/*) ids[i]=$(member txId) states[i]=OPEN details[i]='run this again' ;;
    400/?* | 422/?* | 409/REQUEST_ID_CONFLICT) states[i]=REFUSED details[i]="$status $code $(member detail)" ;;
    409/REQUEST_RECORDED) states[i]=RECORDED details[i]="on the chain already: do not pay: $(member detail)" ;;
    *) states[i]=UNKNOWN details[i]="run this again: $status $code $(member detail)" ;; # this or an earlier run may have paid
  esac
done

for i in "${!requests[@]}"; do
  while [[ ${ids[i]} ]]; do
    status=$(call "$API/api/v1/tx/${ids[i]}")
    case $status in
      200) states[i]=$(member state) ;;
      000 | 408 | 429 | 5*) ;; # asked again
      *) # such as 401: the token has expired
        details[i]="run this again: $status $(member code)"
        break
        ;;
    esac
    case ${states[i]} in
      CONFIRMED) details[i]=$(member txHash) && break ;;
      FAILED) details[i]="$(member subState) $(member lastError)" && break ;;
    esac
    sleep 1
  done
done

open=0
format='%-20s  %-42s  %-24s  %-9s  %s\n'
# shellcheck disable=SC2059 # the format is the one above
printf "$format" requestId to wei state transaction
for i in "${!requests[@]}"; do
  # shellcheck disable=SC2059
  printf "$format" "${requests[i]}" "${receivers[i]}" "${amounts[i]}" "${states[i]}" "${details[i]}"
  [[ ${states[i]} == CONFIRMED ]] || open=$((open + 1))
done
if ((open > 0)); then
  echo "payouts: $open of ${#requests[@]} are not CONFIRMED" >&2
  exit 1
fi
