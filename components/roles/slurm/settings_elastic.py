"""The section `elastic` of a pool: machines that exist only while jobs need them."""

from components.settings.money import MOST_OF_SMALL
from components.settings.section import Section, key, number, yes_no
from components.settings.types import Number, Whole

# Slurm keeps these times in 16 bits of seconds.
MOST_MINUTES = 1080


class Elastic(Section):
    """A pool whose machines jobs bring: slurmctld knows placeholders, and `make elastic` rents what it asks for."""

    min: Whole = number(
        "machines that stay rented without a job",
        0,
        1000,
        breaks="idle machines would go, or stay, against your wish",
        default=0,
    )
    max: Whole | None = number(
        "the most machines that may be rented at once; default: all nodes of `sites`",
        1,
        1000,
        breaks="jobs could rent more machines than you want to pay for",
        default=None,
    )
    idle_minutes: Whole = number(
        "minutes without a job after which a machine goes back",
        1,
        MOST_MINUTES,
        breaks="machines would cost money without a job, or go between two jobs",
        default=20,
    )
    boot_minutes: Whole = number(
        "minutes in which a machine must run jobs; if it does not, it goes back, its job returns to the queue, and the "
        "next attempt waits longer",
        5,
        MOST_MINUTES,
        breaks="a machine that never starts would be paid for",
        default=30,
    )
    replace_sick: bool = yes_no(
        "return a machine that the health check or the deep check drained, once it has no job; the next job brings "
        "another. At most one every 30 minutes",
        False,
    )
    max_price_per_hour: Number | None = key(
        "the most that all rented machines together may cost per hour, in the stack's `currency`; needs the "
        "`price_per_hour` of each machine whose cloud does not say its price (`lambda` and `digitalocean` do, in USD)",
        wants="an amount greater than 0",
        breaks="jobs could rent more than you want to pay",
        fix="write an amount such as 12",
        gt=0,
        le=MOST_OF_SMALL,
        default=None,
    )
    cpus: Whole = key(
        "CPUs of each machine (`nproc`), which Slurm must know before the machine exists",
        wants="a whole number from 1 to 4096",
        breaks="Slurm would not know which jobs fit",
        fix="write the output of nproc on such a machine",
        ge=1,
        le=4096,
    )
    memory_gb: Number = key(
        "memory of each machine in GiB (`free --gibi`, total)",
        wants="a number from 1 to 65536",
        breaks="Slurm would not know which jobs fit",
        fix="write the total that `free --gibi` shows on such a machine",
        ge=1,
        le=65536,
    )
    threads_per_core: Whole = number(
        "CPUs of each core (`lscpu`, threads per core)",
        1,
        8,
        breaks="Slurm would share cores between jobs wrongly",
        default=1,
    )
