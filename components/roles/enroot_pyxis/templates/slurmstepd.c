/*
 * What slurmd starts for each step in slurmstepd's place (slurmd -d), and what it is replaced by at once.
 *
 * Slurm from 24.05 up to 25.11 starts its TaskProlog by way of the program that was named here, in the task's own mount
 * namespace. That is Pyxis' container by then, where slurmstepd finds neither its loader nor its libraries, and every task
 * ends with status 127. This one needs none: it is linked statically.
 */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    /* RUN_COMMAND_LAUNCHER_MODE of Slurm's src/common/run_command.h, and what run_command_launcher does. */
    if (argc > 3 && !strcmp(argv[1], "slurm_script_launcher")) {
        closefrom(3);
        setpgid(0, 0);
        if (setresgid(getegid(), getegid(), -1) || setresuid(geteuid(), geteuid(), -1))
            return 127;
        execv(argv[2], argv + 3);
        return 127;
    }
    execv("/usr/sbin/slurmstepd", argv);
    return 127;
}
