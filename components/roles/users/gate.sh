#!/bin/bash
# uses: users/clash
# Whether the cluster's users can be made here.

users_gate() { refuse_user_clashes; }
