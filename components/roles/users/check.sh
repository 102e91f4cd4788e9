#!/bin/bash
# uses: users/clash
# Whether the cluster's users can be made here.

users_check() { refuse_user_clashes; }
