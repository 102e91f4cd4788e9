/* Fail a job that asks for a container on a pod, where Pyxis cannot work. Without this plugin Slurm would run the job
 * outside of a container: slurmstepd ignores the options of plugins that it does not have.
 *
 * Slurm finds the option by the names of the plugin and the option, so both are Pyxis' own. */
#include <stddef.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1)

static int asked = 0;

static int note_option(int value, const char *argument, int remote)
{
    (void) value;
    (void) argument;
    asked = remote;
    return 0;
}

struct spank_option spank_options[] = {
    {"container-image", "IMAGE", "not on this node, which is a pod", 1, 0, note_option},
    SPANK_OPTIONS_TABLE_END,
};

int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
    (void) spank;
    (void) argc;
    (void) argv;
    if (!asked)
        return 0;
    slurm_error("this node is a pod, which has no containers for jobs: leave out --container-image, or choose another partition");
    return -1;
}
