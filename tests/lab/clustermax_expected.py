"""The expected result of each check of ClusterMAX's audit, in the lab; docs/clustermax.md has the reasons."""

from __future__ import annotations

EXPECTED = {
    "pass": """
        access.slurmCommandsOk
        access.sshToComputeNodes
        bmc-ipmi
        containers.workerCheckOk
        gpus.gpuDirectRdmaPath.nvidiaPeermemLegacy
        networking.ncclAutoConfig
        networking.topologyConfigured
        security.guestKernel.newerInstalled
        security.januscape.status
        securityVersions.nvidiaDriver.status
        slurm.accounting.sacctAvailable
        software.cudaVisibleDevicesStatus
    """,
    "skipped": """
        arm_smmu_virtualization.status
        containers.enrootImportWorks
        hbm_memory_exposure.status
        healthChecks.dcgmSlurm
        kubelet_cpu_manager_policy.status
        nccl_ib_qps.status
        nccl_topo_file.status
        security.fragnesia.status
        securityVersions.cudaToolkit.status
        securityVersions.dcgm.status
        software.ncu.profilingEnabled
        software.perf.kptrRestrict
        software.perf.perfEventParanoid
        storage.rwxStatus
        ufm-profile
        vm_iommu.status
    """,
    "warning": """
        access.externalIdp.detected
        access.sudoAvailable
        access.userManagement
        containers.pyxisRuntimeWorks
        gpu_controls.vboost.allowed
        gpus.gpuDirectRdmaPath
        gpus.pcieAcs.enabled
        networking.hcaNamingValid
        nvlink-boundary
        pcie-passthrough
        securityVersions.connectxFirmware.status
        securityVersions.dcgmExporter.status
        securityVersions.docker.status
        securityVersions.dpuHostIsolation.status
        securityVersions.nvidiaContainerToolkit.status
        securityVersions.runc.status
        securityVersions.virtioNetBluefield.exposure
        securityVersions.virtioNetBluefield.status
        software.lmod.modulesStatus
    """,
    "fail": """
        containers.dockerOnWorkers
        containers.enroot
        containers.nvidiaContainerToolkit
        containers.singularity
        gpus.gdrcopy.installed
        healthChecks.dcgmInstalled
        healthChecks.monitoringStack.dcgmExporter
        healthChecks.nhcInstalled
        software.nccl.installed
        software.ncu.installed
        software.nvhpc.status
        software.perf.installed
    """,
}
# The kernel and the devices of the machine under the lab decide these: another result there is no error.
OF_THE_HOST = """
    arm_smmu_virtualization.status
    bmc-ipmi
    gpus.gpuDirectRdmaPath
    gpus.gpuDirectRdmaPath.nvidiaPeermemLegacy
    gpus.pcieAcs.enabled
    hbm_memory_exposure.status
    nccl_ib_qps.status
    networking.hcaNamingValid
    nvlink-boundary
    pcie-passthrough
    security.fragnesia.status
    security.guestKernel.newerInstalled
    security.januscape.status
    securityVersions.connectxFirmware.status
    securityVersions.dpuHostIsolation.status
    securityVersions.virtioNetBluefield.exposure
    securityVersions.virtioNetBluefield.status
    ufm-profile
    vm_iommu.status
"""


def expected() -> dict[str, str]:
    """Return the expected status of each check."""
    return {key: status for status, keys in EXPECTED.items() for key in keys.split()}
