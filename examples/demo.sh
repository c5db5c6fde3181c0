#!/usr/bin/env bash
# The main job, end to end: `make demo` runs this. Each line that starts with "$" is what a user would type.
# KEEP=1 leaves the stack running; DEMO_HOME chooses its home (default: one that is removed at the end).
set -euo pipefail
cd "$(dirname "$0")/.."

job=examples/mnist-horovod-pytorch
home=${DEMO_HOME:-$(mktemp -d "${TMPDIR:-/tmp}/weft-demo-XXXXXX")}
work=$(mktemp -d "${TMPDIR:-/tmp}/weft-demo-data-XXXXXX")
export WEFT_PROFILE_FILE="$home/profile.toml"   # the user's own profile stays as it is
unset WEFT_URL WEFT_TOKEN
started=$SECONDS

bold() { if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi; }
# As one would type it: what the shell would take apart, such as a path with spaces, is quoted.
run()  { printf '$%s\n' "$(printf ' %q' "$@")"; "$@"; }

finish() {
  status=$?
  rm -rf "$work"
  if [ "${KEEP:-}" = 1 ] && [ $status = 0 ]; then
    bold "The stack is still running."
    echo "use it:   export WEFT_PROFILE_FILE=$(printf %q "$WEFT_PROFILE_FILE")"
    echo "end it:   weft down --home $(printf %q "$home")"
  else
    weft down --home "$home" >"$home/down.log" 2>&1 || cat "$home/down.log" >&2
    [ -n "${DEMO_HOME:-}" ] || rm -rf "$home"
  fi
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

bold "1. Start Weft: Postgres, Redis, S3, API and worker, on free ports"
run weft up --detach --home "$home" --port 0

bold "2. Write 1,797 handwritten digits as MNIST's four files, and put them into S3"
run python examples/data/digits.py "$work/mnist"
run weft data put "$work/mnist" default:mnist-data
run weft data create default:mnist-models

bold "3. Train on two learners with Horovod (the first time, Horovod is compiled: a few minutes)"
run weft train $job/manifest.yml --follow

bold "4. The job, its metrics, and the trained model from S3"
run weft list
run weft metrics @last
run weft download @last --trainedmodel --unpack -o "$work/model"

bold "5. Load the model and evaluate it on held-out digits"
# torch lives in the trainer's environment, not in Weft's own.
python_of_image=$(python -m weft_workers.environments python horovod)
run "$python_of_image" $job/evaluate.py "$work/model" "$work/mnist"
bold "Done in $((SECONDS - started)) s."
