"""People's accounts: the section `users`, its kinds of value, and what must not meet among users."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from components.roles.accounting.settings import Limit, account_key, gpu_hours_key, max_jobs_key, qos_names_key
from components.settings.draft import Draft
from components.settings.problems import ROOT, Report
from components.settings.section import Section, key
from components.settings.types import Whole, refuse, words

# Users and groups of Debian's base-passwd and of packages that nodes install or clouds ship; "admin" is a
# group on Ubuntu. A user takes a group of its own name, so both kinds are one set.
RESERVED_USERS = words(
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


def _user_name(value: str) -> str:
    if value in RESERVED_USERS or value.startswith("systemd-"):
        refuse(
            "is a name that Debian or a package on the nodes uses itself",
            "the system account would get this user's uid, home and key",
        )
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", value):
        refuse("is not a name of lowercase letters, digits, '-' and '_' that starts with a letter")
    return value


def _id(value: int) -> int:
    if value == 65534:
        refuse("is the number of nobody", "files of every squashed root and unknown user would be this one's")
    if 60000 <= value <= 65535:
        refuse("lies in 60000-65535, which Debian and systemd keep for accounts they make themselves")
    return value


UserName = Annotated[str, Field(max_length=32), AfterValidator(_user_name)]
Id = Annotated[Whole, Field(ge=1000, le=4294967293), AfterValidator(_id)]


class User(Section):
    """A person's account, the same on every node."""

    name: UserName = key(
        "log-in name; the home is on the share",
        wants="a user name of at most 32 characters",
        breaks="the account could not be made on the nodes",
        fix="write another name such as ada",
    )
    uid: Id = key(
        "user number, the same on every node",
        wants="a number from 1000 up",
        breaks="the user's files on the share would be a system account's, or nobody's",
        fix="write one from 1000 to 59999 that no account on the nodes has",
    )
    gid: Id = key(
        "group number, the same on every node; left out, the uid",
        wants="a number from 1000 up",
        breaks="the user's files on the share would be a system group's, or nobody's",
        fix="write one from 1000 to 59999 that no group on the nodes has, or leave gid out to have the uid",
        otherwise="the uid",
        default_factory=lambda data: data["uid"],
    )
    account: str | None = account_key()
    gpu_hours: Limit | None = gpu_hours_key("the user")
    max_jobs: Limit | None = max_jobs_key("the user")
    qos: tuple[str, ...] = qos_names_key("QOS that the user's jobs may ask for, besides `normal`")


def check_users(users: Sequence[Draft], logins: Mapping[str, str], report: Report) -> None:
    """Report users that share a name or number, or are an account that the program logs in with (`logins`: where)."""
    names: dict[str, str] = {}
    uids: dict[int, str] = {}
    gids: dict[int, str] = {}
    for user in users:
        place = user.path.removeprefix(ROOT)
        name, uid, gid_key = user.text("name"), user.whole("uid"), "gid" if "gid" in user.raw else "uid"
        if name is not None and names.setdefault(name, place) != place:
            what = f"{report.value(user.path, name)} is the name of {names[name]} too"
            breaks = "one account would get the numbers of both"
            report.add(user.at("name"), what, breaks, "give one of them another name")
        elif name is not None and name in logins and name != "root":
            what = f"{report.value(user.path, name)} is the account that the program logs in with at {logins[name]}"
            breaks = "its uid cannot change while it is logged in"
            report.add(user.at("name"), what, breaks, "give the user another name")
        gid = user.whole(gid_key)
        gid_of = place if gid is None else gids.setdefault(gid, place)
        if uid is not None and uids.setdefault(uid, place) != place:
            what = f"{report.value(user.path, uid)} is the uid of {uids[uid]} too"
            report.add(user.at("uid"), what, "the two would own each other's files", "give one of them another uid")
        elif gid_of != place:
            what = f"{report.value(user.path, gid)} is the gid of {gid_of} too"
            breaks = "the second group could not be made, and the two would share group files"
            report.add(user.at(gid_key), what, breaks, "give one of them another gid")
