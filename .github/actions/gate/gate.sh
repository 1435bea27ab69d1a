#!/usr/bin/env bash
# Compares this folder with the merge base, in turns. Its exit code goes to the outputs, for the comment to come first.
set -uo pipefail

folder="$RUNNER_TEMP/profiling-gate-$$"
mkdir -p "$folder"
echo "folder=$folder" >>"$GITHUB_OUTPUT"

new_branch=false
if [[ "$BASE" =~ ^0{40,}$ ]]; then # a branch that was just pushed has no commit before
  new_branch=true
  BASE="origin/$DEFAULT_BRANCH"
fi

if ! merge_base="$(git merge-base "$BASE" HEAD)"; then
  echo "::error::$BASE and HEAD have no merge base here; give actions/checkout fetch-depth: 0"
  echo "exit-code=2" >>"$GITHUB_OUTPUT"
  exit 0
fi

if [ "$new_branch" = true ] && [ "$merge_base" = "$(git rev-parse HEAD)" ]; then
  echo "a new branch without a commit that $BASE lacks: nothing to compare" | tee "$folder/errors.txt"
  echo "exit-code=0" >>"$GITHUB_OUTPUT"
  exit 0
fi

flags=(--against "commit:$merge_base" --repeats "$REPEATS" --warm-up "$WARM_UP" --fail-on-regression "$PERCENT")
flags+=(--out "$folder/ab" --markdown "$folder/report.md" --json "$folder/result.json")
if [ -n "$STEPS" ]; then flags+=(--steps "$STEPS"); fi
if [ "$CAPTURE" = true ]; then flags+=(--capture); fi
program="$RUNNER_TEMP/profiling-gate-venv/bin/profiling-nanogpt"
"$program" ab "${flags[@]}" -- sh -c "$COMMAND" 2> >(tee "$folder/errors.txt" >&2)
echo "exit-code=$?" >>"$GITHUB_OUTPUT"
