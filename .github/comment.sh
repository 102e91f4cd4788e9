#!/bin/bash
# Put a preview's comment on a pull request, in the place of the one that this stack has there.
#
# GH_TOKEN, GITHUB_REPOSITORY   as GitHub's runner has them
# NUMBER                        of the pull request
# $1                            the comment; its first line is the mark by which the old one is found
set -euo pipefail

[ -s "$1" ] || { echo "there is no comment: the preview did not come to its end" >&2; exit 0; }
mark=$(head -n 1 "$1")
comments="repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments"
# The token's own comments alone: anybody could write the mark.
old=$(gh api --paginate "$comments" --jq '.[] | select(.user.login == "github-actions[bot]") | [.id, (.body | split("\n")[0])] | @tsv' |
    awk -F '\t' -v mark="$mark" '$2 == mark { print $1; exit }')
if [ -n "$old" ]; then
    gh api --silent -X PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$old" -F "body=@$1"
else
    gh api --silent -X POST "$comments" -F "body=@$1"
fi
