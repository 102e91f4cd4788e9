#!/bin/bash
# Set variables of a job. TAILRACK_DEFAULTS lists the values from here, so that a step that inherits them from a batch
# script on another node gets this node's values. Variables that the user set or unset stay so.
inherited=$TAILRACK_DEFAULTS now=

# Set variable $1 to $2, unless the user set or unset it.
default() {
    eval "value=\${$1-} is_set=\${$1+yes}"
    case " $inherited " in
    *" $1=$value "*) ;; # the inherited value is from here
    *" $1="*) now="$now $1=$2"; return ;; # the user changed or unset it
    *) [ -z "$is_set" ] || return ;;
    esac
    echo "export $1=$2"
    now="$now $1=$2"
}

# Set the network of NCCL and MPI: the interface $1, its name for Open MPI $2, and its interfaces on all nodes $3.
default_network() {
    default TAILRACK_INTERFACE "$1"
    # `=` means exactly this name; otherwise NCCL takes it as a prefix.
    default NCCL_SOCKET_IFNAME "=$1"
    default GLOO_SOCKET_IFNAME "$1"
    default FI_TCP_IFACE "$1"
    default OMPI_MCA_btl_tcp_if_include "$2"
    # For mpirun's daemons: Open MPI 4, and Open MPI 5, which takes only names, passes this node's list to all nodes, and
    # fails if a node has none of them.
    default OMPI_MCA_oob_tcp_if_include "$2"
    default PRTE_MCA_prte_if_include "$3"
}

# Unset inherited values that are for another node and not for this one, except $1.
unset_others() {
    set -f
    for given in $inherited; do
        name=${given%%=*}
        case $name in *[!A-Za-z0-9_]* | [0-9]* | "" | "${1-}") continue ;; esac
        case " $now " in *" $name="*) continue ;; esac
        eval "value=\${$name-}"
        [ "$name=$value" != "$given" ] || echo "unset $name"
    done
}
