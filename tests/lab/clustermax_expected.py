"""The expected result of each check of ClusterMAX's audit, in the lab; docs/clustermax.md has the reasons."""

from __future__ import annotations

EXPECTED = {
    "pass": """
        access.slurmCommandsOk
        bmc-ipmi
        containers.workerCheckOk
        gpus.gpuDirectRdmaPath.nvidiaPeermemLegacy
        networking.ncclAutoConfig
        networking.topologyConfigured
        security.januscape.status
        securityVersions.nvidiaDriver.status
        slurm.accounting.sacctAvailable
        software.cudaVisibleDevicesStatus
        storage_config.status
    """,
    "skipped": """
        arm_smmu_virtualization.status
        containers.enrootImportWorks
        hbm_memory_exposure.status
        healthChecks.dcgmSlurm
        hugepage_allocation.status
        k8s_scheduling.status
        kubelet_cpu_manager_policy.status
        kubernetes-nodes-proxy
        nccl_ib_qps.status
        nccl_topo_file.status
        qemu-virtio-serial
        security.guestKernel.ubuntuCveStatus
        security.ubuntuNobleKernelMinimum.status
        securityVersions.amdDriver.status
        securityVersions.cudaToolkit.status
        securityVersions.dcgm.status
        software.ncu.profilingEnabled
        software.perf.kptrRestrict
        software.perf.perfEventParanoid
        static_hugepages.status
        storage.rwxStatus
        tenant_pod_defaults.checks.gdrcopyDevice.status
        tenant_pod_defaults.checks.memlock.status
        tenant_pod_defaults.checks.rdmaDevices.status
        tenant_pod_defaults.checks.shm.status
        tenant_pod_defaults.checks.tunedPodAdmission.status
        tenant_pod_defaults.status
        thp_madvise.status
        ufm-profile
        vm_iommu.status
    """,
    "warning": """
        access.externalIdp.detected
        access.sshToComputeNodes
        access.sudoAvailable
        access.userManagement
        containers.pyxisRuntimeWorks
        gpu_controls.vboost.allowed
        gpus.gpuDirectRdmaPath
        gpus.pcieAcs.enabled
        healthChecks.monitoringStack.dcgmExporter
        networking.hcaNamingValid
        nvlink-boundary
        observability-isolation
        pcie-passthrough
        security.badEpoll.status
        security.fragnesia.status
        security.guestKernel.newerInstalled
        security.pwnescape.status
        securityVersions.connectxFirmware.status
        securityVersions.dcgmExporter.status
        securityVersions.docker.status
        securityVersions.dpuHostIsolation.status
        securityVersions.nvidiaContainerToolkit.status
        securityVersions.runc.status
        securityVersions.virtioNetBluefield.exposure
        securityVersions.virtioNetBluefield.status
        software.lmod.modulesStatus
        vmscape
    """,
    "fail": """
        containers.dockerOnWorkers
        containers.enroot
        containers.nvidiaContainerToolkit
        containers.singularity
        gpus.gdrcopy.installed
        healthChecks.dcgmInstalled
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
    qemu-virtio-serial
    security.badEpoll.status
    security.fragnesia.status
    security.guestKernel.newerInstalled
    security.guestKernel.ubuntuCveStatus
    security.januscape.status
    security.pwnescape.status
    security.ubuntuNobleKernelMinimum.status
    securityVersions.connectxFirmware.status
    securityVersions.dpuHostIsolation.status
    securityVersions.virtioNetBluefield.exposure
    securityVersions.virtioNetBluefield.status
    static_hugepages.status
    thp_madvise.status
    ufm-profile
    vm_iommu.status
    vmscape
"""


def expected() -> dict[str, str]:
    """Return the expected status of each check."""
    return {key: status for status, keys in EXPECTED.items() for key in keys.split()}
