/*
 * slurmd starts this program instead of slurmstepd (slurmd -d); it executes slurmstepd.
 *
 * Slurm 24.05 to 25.11 runs TaskProlog with the program that -d names, in the task's mount namespace. With Pyxis that is
 * the container, where slurmstepd does not find its loader and libraries, so every task exits with status 127. This program
 * is linked statically and needs neither.
 */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    /* RUN_COMMAND_LAUNCHER_MODE in Slurm's src/common/run_command.h; do the same as run_command_launcher. */
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
