"""A fake nvidia-smi, which says that it is one: what it prints is made here, in the form of the real one's output."""

from collections.abc import Sequence

from tests.unit.shell import Shell

_GPU = """	<gpu id="0000{bus}">
		<product_name>{name}</product_name>
		<product_brand>a fake of the tests</product_brand>
		<display_mode>Enabled</display_mode>
		<display_active>{display}</display_active>
		<mig_mode>
			<current_mig>{mig}</current_mig>
			<pending_mig>{mig}</pending_mig>
		</mig_mode>
		<minor_number>{minor}</minor_number>
		<fb_memory_usage>
			<total>{memory} MiB</total>
			<used>0 MiB</used>
		</fb_memory_usage>
		<bar1_memory_usage>
			<total>1 MiB</total>
		</bar1_memory_usage>
{more}	</gpu>
"""
_LINK = """		<pci>
			<pci_gpu_link_info>
				<pcie_gen>
					<max_link_gen>5</max_link_gen>
					<current_link_gen>5</current_link_gen>
				</pcie_gen>
				<link_widths>
					<max_link_width>16x</max_link_width>
					<current_link_width>{width}x</current_link_width>
				</link_widths>
			</pci_gpu_link_info>
		</pci>
"""
_REMAPPED = """		<remapped_rows>
			<remapped_row_corr>0</remapped_row_corr>
			<remapped_row_unc>1</remapped_row_unc>
			<remapped_row_pending>Yes</remapped_row_pending>
			<remapped_row_failure>No</remapped_row_failure>
		</remapped_rows>
"""


def gpu(
    minor: int, name: str = "NVIDIA H200", *, bus: str = "", mig: str = "Disabled", display: str = "Disabled",
    memory: int = 143771, width: int = 0, remap: bool = False,
) -> str:  # fmt: skip
    """One GPU as `nvidia-smi -q -x` prints it; with its PCIe link if `width` is its lanes, and a row remap to come."""
    address = bus or f"0000:{minor + 16:02X}:00.0"
    more = (_LINK.format(width=width) if width else "") + (_REMAPPED if remap else "")
    return _GPU.format(minor=minor, name=name, bus=address, mig=mig, display=display, memory=memory, more=more)


def xml(gpus: Sequence[str], driver: str = "580.159.04") -> str:
    """The whole of `nvidia-smi -q -x`."""
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
    head += f"\t<timestamp>fake</timestamp>\n\t<driver_version>{driver}</driver_version>\n"
    return f"{head}\t<attached_gpus>{len(gpus)}</attached_gpus>\n{''.join(gpus)}</nvidia_smi_log>\n"


def nvlink(gpus: int, links: int = 18, down: int = 0) -> str:
    """`nvidia-smi nvlink -s`; of the last GPU, `down` links are inactive."""
    lines = []
    for number in range(gpus):
        lines.append(f"GPU {number}: NVIDIA H200 (UUID: GPU-fa4e0000-0000-0000-0000-00000000000{number})")
        for link in range(links):
            dead = number == gpus - 1 and link < down
            lines.append(f"\t Link {link}: {'<inactive>' if dead else '26.562 GB/s'}")
    return "\n".join(lines) + "\n"


def install(shell: Shell, gpus: Sequence[str], links: str = "") -> None:
    """Put the fake on PATH of a machine, and one device file for each GPU it shows into its /dev."""
    shell.write("fake/query.xml", xml(gpus))
    shell.write("fake/nvlink", links)
    shell.stub(
        "nvidia-smi",
        f'case "$*" in "-q -x") cat "{shell.root}/fake/query.xml" ;; "nvlink -s") cat "{shell.root}/fake/nvlink" ;;\n'
        '*) echo "this is a fake nvidia-smi, and knows nothing of $*" >&2; exit 2 ;; esac',
    )
    for other in ("nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        shell.write(f"dev/{other}", "")


def devices(shell: Shell, *minors: int) -> None:
    """Make device files."""
    for minor in minors:
        shell.write(f"dev/nvidia{minor}", "")


def on_the_bus(shell: Shell, address: str, kind: str = "0x030200", vendor: str = "0x10de") -> None:
    """Put a device on the PCI bus: a GPU, or with kind 0x068000 an NVSwitch."""
    shell.write(f"sys/bus/pci/devices/{address}/vendor", f"{vendor}\n")
    shell.write(f"sys/bus/pci/devices/{address}/class", f"{kind}\n")
