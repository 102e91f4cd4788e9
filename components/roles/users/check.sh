#!/bin/bash
# uses: users/clash
# Refuse a machine whose accounts conflict with the cluster's users.

users_check() { refuse_user_clashes; }
