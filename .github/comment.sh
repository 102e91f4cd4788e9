#!/bin/bash
# Write a preview's comment on a pull request, and replace this stack's old comment there.
#
# GH_TOKEN, GITHUB_REPOSITORY   set by GitHub's runner
# NUMBER                        the number of the pull request
# $1                            the comment; its first line is the mark that identifies the old one
set -euo pipefail

[ -s "$1" ] || { echo "there is no comment, because the preview did not finish" >&2; exit 0; }
mark=$(head -n 1 "$1")
comments="repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments"
# Search only comments of this token, because anyone can write the mark.
old=$(gh api --paginate "$comments" --jq '.[] | select(.user.login == "github-actions[bot]") | [.id, (.body | split("\n")[0])] | @tsv' |
    awk -F '\t' -v mark="$mark" '$2 == mark { print $1; exit }')
if [ -n "$old" ]; then
    gh api --silent -X PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$old" -F "body=@$1"
else
    gh api --silent -X POST "$comments" -F "body=@$1"
fi
