"""The section `users`: user accounts, and checks for duplicates."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from components.roles.accounting.settings import Limit, account_key, gpu_hours_key, max_jobs_key, qos_names_key
from components.roles.job_reports.settings import is_receiver
from components.roles.user_keys.settings import GithubName, github_key
from components.settings.problems import ROOT, Report
from components.settings.section import Section, key
from components.settings.ssh_keys import UsersKey
from components.settings.types import Whole, refuse, word_set

# Users and groups of Debian's base-passwd, of packages on nodes, and of cloud images; "admin" is a group on Ubuntu.
# One set for both, because a user gets a group with the same name.
RESERVED_USERS = word_set(
    """root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody nogroup
    adm tty disk kmem dialout fax voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl
    plugdev staff users input kvm render sgx crontab messagebus sshd ssh statd polkitd tss netdev admin wheel
    docker lxd munge slurm tailscale mysql postgres avahi ntp dnsmasq systemd-network systemd-resolve
    systemd-timesync systemd-journal systemd-coredump systemd-oom
    adduser avahi-autoipd bind bluetooth ceph chrony clock colord containerd dcgm debian-tor dhcpcd ec2-user
    fwupd-refresh ganesha gdm geoclue google-sudoers gpio hplip i2c kernoops kubernetes landscape ldap libvirt
    libvirt-dnsmasq libvirt-qemu lightdm lpadmin nagios nginx nslcd nvidia-persistenced openldap opc pcap podman
    pollinate postdrop postfix power prometheus pulse pulse-access rdma redis rpc rpcuser rtkit sambashare saned scanner
    spi ssl-cert sssd stunnel4 syslog systemd tcpdump ubuntu debian unbound usbmux uuidd whoopsie wireshark
    zabbix"""
)


def account_name(value: str, breaks: str) -> str:
    """Return a name that users and groups may have. `breaks` says what a name of the system would break."""
    if value in RESERVED_USERS or value.startswith("systemd-"):
        refuse("is a name that Debian or a package on the nodes uses", breaks)
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", value):
        refuse("is not a name of lowercase letters, digits, '-' and '_' that starts with a letter")
    return value


def _user_name(value: str) -> str:
    return account_name(value, "the system account would get this user's uid, home and key")


def _id(value: int) -> int:
    if value == 65534:
        refuse(
            "is the number of the account nobody",
            "this user would own the files of every squashed root and unknown user",
        )
    if 60000 <= value <= 65535:
        refuse("is in 60000-65535, which Debian and systemd use for their own accounts")
    return value


def _receiver(value: str) -> str:
    if not is_receiver(value):
        refuse("is neither a mail address nor the name of a channel")
    return value


UserName = Annotated[str, Field(max_length=32), AfterValidator(_user_name)]
Id = Annotated[Whole, Field(ge=1000, le=4294967293), AfterValidator(_id)]


class User(Section):
    """A user account, the same on every node."""

    name: UserName = key(
        "log-in name; the home folder is on the share",
        wants="a user name of at most 32 characters",
        breaks="the nodes could not create the account",
        fix="write another name such as ada",
    )
    uid: Id = key(
        "user id (uid), the same on every node",
        wants="a number from 1000 up",
        breaks="the user's files on the share would belong to a system account or to no one",
        fix="write one from 1000 to 59999 that no account on the nodes uses",
    )
    gid: Id = key(
        "group id (gid), the same on every node; default: the uid",
        wants="a number from 1000 up",
        breaks="the user's files on the share would belong to a system group or to no one",
        fix="write one from 1000 to 59999 that no group on the nodes uses, or leave gid out to use the uid",
        default_text="the uid",
        default_factory=lambda data: data["uid"],
    )
    keys: tuple[UsersKey, ...] = key(
        "public SSH keys with which the user logs in, besides those in the user's own ~/.ssh/authorized_keys; "
        "[log in](using.md#log-in)",
        wants="a list of public SSH keys",
        breaks="the user could not log in with it",
        fix="write the line of a .pub file, such as [ssh-ed25519 AAAA... laptop]; 'ssh-keygen -t ed25519' creates one",
        default=(),
    )
    github: GithubName | None = github_key()
    groups: tuple[str, ...] = key(
        "groups of `tailrack:groups` that the user is in; 16 at most, because NFS passes on no more",
        wants="a list of names of tailrack:groups",
        breaks="the user could not open the group's folder",
        fix="write at most 16 names from that list, such as [vision]",
        max_length=16,
        default=(),
    )
    account: str | None = account_key()
    gpu_hours: Limit | None = gpu_hours_key("the user")
    max_jobs: Limit | None = max_jobs_key("the user")
    notify: tuple[Annotated[str, AfterValidator(_receiver)], ...] = key(
        "receivers of reports about the user's jobs without `--mail-user`: mail addresses and channels of "
        "`job_reports`. Batch jobs without `--mail-type` get `END,FAIL`",
        wants="a list of mail addresses and names of channels",
        breaks="the user would get no report",
        fix="write [ada@example.org], or the name of a channel of tailrack:job_reports",
        max_length=5,
        default=(),
    )
    qos: tuple[str, ...] = qos_names_key("QOS that the user's jobs may request, besides `normal`")


def check_users(users: Sequence[User], logins: Mapping[str, str], report: Report) -> None:
    """Report users that share a name, number or key, or have the name of a login account.

    logins   the machines that tailrack logs in to, by account
    """
    names: dict[str, str] = {}
    uids: dict[int, str] = {}
    gids: dict[int, str] = {}
    keys: dict[tuple[str, ...], str] = {}
    for user in users:
        path = report.at(user)
        place = path.removeprefix(ROOT)
        if names.setdefault(user.name, place) != place:
            problem = f"{report.value(path, user.name)} is also the name of {names[user.name]}"
            breaks = "one account would get the numbers of both"
            report.add(report.at(user, "name"), problem, breaks, "rename one of them")
        elif user.name in logins and user.name != "root":
            problem = (
                f"{report.value(path, user.name)} is the account that tailrack logs in with at {logins[user.name]}"
            )
            breaks = "its uid cannot change while it is logged in"
            report.add(report.at(user, "name"), problem, breaks, "rename the user")
        gid_of = gids.setdefault(user.gid, place)
        if uids.setdefault(user.uid, place) != place:
            problem = f"{report.value(path, user.uid)} is also the uid of {uids[user.uid]}"
            breaks, fix = "they would own each other's files", "change one of the uids"
            report.add(report.at(user, "uid"), problem, breaks, fix)
        elif gid_of != place:
            problem = f"{report.value(path, user.gid)} is also the gid of {gid_of}"
            breaks = "the second group could not be created, and both users would share group files"
            key_path = report.at(user, "gid" if "gid" in user.model_fields_set else "uid")
            report.add(key_path, problem, breaks, "change one of the gids")
        _check_keys(user, keys, report)


def _check_keys(user: User, keys: dict[tuple[str, ...], str], report: Report) -> None:
    """Report keys that another user, or this one, has too. `keys` gets the place of each key."""
    for index, text in enumerate(user.keys):
        path = report.at(user, "keys", index)
        place = path.removeprefix(ROOT)
        # Comments do not matter.
        if (other := keys.setdefault(tuple(text.split()[:2]), place)) != place:
            problem = f"{report.value(path, text)} is also {other}"
            breaks = "no one could tell whose login it is, and a removed key could still open an account"
            report.add(path, problem, breaks, "give each user another key, and write it once")
