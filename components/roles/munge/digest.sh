#!/bin/bash
# Print the digest of the munge key on stdin. The head node and its nodes compare keys by it.

key_digest() { sha256sum | cut -d ' ' -f 1; }
