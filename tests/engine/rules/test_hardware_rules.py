"""What the hardware, driver, kernel and BMC rules say about single lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.model import Role
from engine.origin import normal_device
from engine.ruleset import Rule, Ruleset, load_ruleset
from engine.series import slowdown_rule

GPU_FAMILIES = {"xid", "sxid", "nvlink", "driver", "fabricmanager", "dcgm", "metric"}
FAMILIES = GPU_FAMILIES | {"pcie", "kernel", "memory", "thermal", "power", "bmc"}
APPLICATION_XIDS = (8, 11, 13, 25, 31, 32, 69, 109)
DEVICE_XIDS = (46, 48, 62, 64, 74, 79, 94, 95, 110, 119, 120, 136, 140, 143, 158, 171, 172)


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return load_ruleset()


def said(ruleset: Ruleset, line: str) -> list[tuple[Rule, dict[str, str]]]:
    """Every meaning that the hardware rules find in one line without its envelope."""
    found = []
    for matcher in ruleset.line_matchers:
        if matcher.spec.id.partition(".")[0] in FAMILIES:
            captures = matcher.match(line)
            if captures is not None:
                found.append((matcher.meaning(captures), captures))
    return found


def only(ruleset: Ruleset, line: str) -> tuple[Rule, dict[str, str]]:
    found = said(ruleset, line)
    assert len(found) == 1, [rule.id for rule, _ in found]
    return found[0]


def xid(ruleset: Ruleset, number: int, tail: str = "") -> Rule:
    return only(ruleset, f"NVRM: Xid (PCI:0000:61:00): {number}, {tail or 'pid=7, name=python3, Ch 00000008'}")[0]


def ours(ruleset: Ruleset) -> Iterator[Rule]:
    return (rule for rule in ruleset.rules if rule.family in FAMILIES)


def test_every_xid_from_1_to_172_has_a_row(ruleset: Ruleset) -> None:
    assert {str(number) for number in range(1, 173)} <= set(ruleset.tables["xid"].rows)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:61:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) ...",
        "NVRM: Xid (PCI:0000:61:00): 48, pid=4711, name=python3, An uncorrectable double bit error (DBE) ...",
        "NVRM: Xid (PCI:0000:61:00): 48, pid=4711, An uncorrectable double bit error (DBE) ...",
        "NVRM: Xid (PCI:0000:61:00): 48, An uncorrectable double bit error (DBE) ...",
        "NVRM: Xid (0000:61:00): 48, An uncorrectable double bit error (DBE) ...",
        "NVRM: Xid (PCI:00000000:61:00): 48, An uncorrectable double bit error (DBE) ...",
        "NVRM: Xid (PCI:0000:61:00 GPU-I:03 GPU-CI:00): 48, pid=4711, name=python3, An uncorrectable ...",
        "nvidia: NVRM: Xid (PCI:0000:61:00): 48, An uncorrectable double bit error (DBE) ...",
    ],
)
def test_one_xid_in_all_wordings_is_the_same_fault_of_the_same_device(ruleset: Ruleset, line: str) -> None:
    rule, captures = only(ruleset, line)
    assert (rule.id, normal_device(captures["device"])) == ("xid.48", "0000:61:00")


@pytest.mark.parametrize("number", APPLICATION_XIDS)
def test_an_application_xid_alone_blames_no_node(ruleset: Ruleset, number: int) -> None:
    rule = xid(ruleset, number)
    assert (rule.role, rule.domain, rule.sub_domain, rule.blames) == (Role.EITHER, "software", "user_code", "none")


@pytest.mark.parametrize("number", DEVICE_XIDS)
def test_a_device_xid_is_a_cause_on_its_node(ruleset: Ruleset, number: int) -> None:
    rule = xid(ruleset, number)
    assert (rule.role, rule.domain, rule.blames) == (Role.CAUSE, "hardware", "node")
    assert rule.recommend and rule.recommend.action == "restart_excluding"


@pytest.mark.parametrize(
    ("number", "role"),
    [
        (43, Role.SYMPTOM),
        (45, Role.TEARDOWN),
        (63, Role.CONFIRMATION),
        (92, Role.CONFIRMATION),
        (108, Role.SYMPTOM),
        (121, Role.CONTEXT),
        (137, Role.SYMPTOM),
        (154, Role.CONFIRMATION),
        (176, Role.CONTEXT),
    ],
)
def test_records_clean_up_and_corrected_errors_are_never_a_root(ruleset: Ruleset, number: int, role: Role) -> None:
    assert xid(ruleset, number).role is role


def test_an_unknown_xid_is_shown_and_decides_nothing(ruleset: Ruleset) -> None:
    rule = xid(ruleset, 299, "something of the future")
    assert (rule.id, rule.role) == ("xid.event", Role.CONTEXT)


def nvlink5(ruleset: Ruleset, xid_number: int, unit: str, severity: str, word: int, crossed: int = 0) -> Rule:
    line = (
        f"NVRM: Xid (PCI:0018:01:00): {xid_number}, {unit}  {severity}   XC{crossed} i0 Link 09 "
        f"(0x{word:08x} 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
    )
    return only(ruleset, line)[0]


@pytest.mark.parametrize(
    ("subcode", "rule_id", "role"),
    [
        (2, "xid.149", Role.CAUSE),
        (4, "xid.149", Role.CAUSE),
        (10, "xid.149", Role.CAUSE),
        (42, "xid.149", Role.CAUSE),
        (0, "xid.149", Role.EITHER),
        (16, "xid.149", Role.EITHER),
        (15, "xid.149-commanded", Role.SYMPTOM),
        (21, "xid.149-peer", Role.SYMPTOM),
        (37, "xid.149-peer", Role.SYMPTOM),
    ],
)
def test_the_sub_code_of_an_nvlink_event_tells_the_bad_end_from_the_far_one(
    ruleset: Ruleset, subcode: int, rule_id: str, role: Role
) -> None:
    for low_bits in (0x5C6, 0x011):  # the layouts of drivers before and since R575
        rule = nvlink5(ruleset, 149, "NETIR_LINK_EVT", "Fatal", subcode << 20 | low_bits)
        assert (rule.id, rule.role) == (rule_id, role)


def test_nvlink_bit_error_warnings_only_strengthen(ruleset: Ruleset) -> None:
    assert nvlink5(ruleset, 149, "NETIR_BER_EVENT", "Nonfatal", 0x00094226).role is Role.CONFIRMATION


@pytest.mark.parametrize("number", [144, 145, 146, 150])
def test_a_fatal_nvlink_word_is_a_cause_and_a_non_fatal_one_is_not(ruleset: Ruleset, number: int) -> None:
    fatal = nvlink5(ruleset, number, "RLW_REMAP", "Fatal", 0x4)
    assert (fatal.id, fatal.role, fatal.sub_domain, fatal.blames) == (f"xid.{number}", Role.CAUSE, "nvlink", "node")
    assert nvlink5(ruleset, number, "RLW_REMAP", "Nonfatal", 0x4).role is Role.CONFIRMATION


def test_an_application_ended_by_cross_containment_does_not_blame_its_own_gpu(ruleset: Ruleset) -> None:
    rule = nvlink5(ruleset, 145, "RLW_SRC_TRACK", "Nonfatal", 0x040948E2, crossed=1)
    assert (rule.id, rule.role, rule.blames) == ("xid.145-contained", Role.EITHER, "none")


def test_the_kernel_and_the_fabric_manager_name_one_switch_fault_alike(ruleset: Ruleset) -> None:
    kernel, one = only(ruleset, "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 45 LTSSM Fault Up")
    manager, other = only(
        ruleset,
        "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:07:00.0 physical id 2 port 45",
    )
    assert kernel.id == manager.id == "sxid.20034"
    assert kernel.role is Role.CAUSE and normal_device(one["device"]) == normal_device(other["device"])


@pytest.mark.parametrize("code", ["11012", "12028", "20001", "20009", "19084", "24001"])
def test_a_switch_error_that_is_not_fatal_is_never_a_root(ruleset: Ruleset, code: str) -> None:
    rule, _ = only(ruleset, f"nvidia-nvswitch3: SXid (PCI:0000:08:00.0): {code}, Non-fatal, Link 32 something (First)")
    assert rule.id == f"sxid.{code}" and rule.role not in (Role.CAUSE, Role.EITHER)


CORRECTED = [
    "pcieport 0000:57:01.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
    "nvidia 0000:c1:00.0: AER: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
    "pcieport 0000:57:01.0: AER: Corrected error message received from 0000:57:01.0",
    "pcieport 0000:57:01.0: AER: Multiple Corrected error received: 0000:57:01.0",
    "EDAC MC1: 1 CE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x20edba9)",
    "mce: [Hardware Error]: Machine check events logged",
    "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 8: 8c00004000010091",
    "{1}[Hardware Error]: event severity: corrected",
    "3a5 | 11/14/2026 | 03:20:59 | Memory DIMM_A1 | Correctable ECC | Asserted",
    "CPU60: Package temperature is above threshold, cpu clock is throttled (total events = 1)",
    "mlx5_core 0000:9a:00.0: mlx5_pcie_event:301:(pid 9): Detected insufficient power on the PCIe slot (27W).",
]


@pytest.mark.parametrize("line", CORRECTED)
def test_corrected_and_harmless_lines_are_never_a_root(ruleset: Ruleset, line: str) -> None:
    assert all(rule.role not in (Role.CAUSE, Role.EITHER) for rule, _ in said(ruleset, line))


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ("hardware/pcie", "nvidia 0000:c1:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"),
        ("hardware/pcie", "pcieport 0000:17:00.0: AER: Uncorrectable (Fatal) error message received from 0000:18:00.0"),
        ("hardware/pcie", "pcieport 0000:17:00.0: DPC: containment event, status:0x1f01 source:0x0000"),
        ("hardware/cpu", "mce: [Hardware Error]: CPU 61: Machine Check Exception: 5 Bank 3: be00000000800400"),
        ("hardware/host_memory", "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000001010091"),
        ("hardware/host_memory", "EDAC MC0: 1 UE memory read error on CPU_SrcID#1_MC#2_Chan#0_DIMM#1 (channel:1)"),
        (
            "hardware/host_memory",
            "Memory failure: 0x51b2e7: Sending SIGBUS to python3:41380 due to hardware memory corruption",
        ),
        ("hardware/cpu", "Kernel panic - not syncing: Fatal machine check"),
        ("platform/kernel", "Kernel panic - not syncing: Fatal exception in interrupt"),
        (
            "software/host_oom",
            "Memory cgroup out of memory: Killed process 884131 (pt_data_worker) total-vm:98211344kB",
        ),
        ("software/host_oom", "Out of memory: Kill process 1234 (python) score 912 or sacrifice child"),
        ("hardware/gpu", "NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus."),
        ("platform/driver", "Failed to initialize NVML: Driver/library version mismatch"),
    ],
)
def test_a_line_that_reports_a_fault_is_a_cause_of_its_domain(ruleset: Ruleset, expected: str, line: str) -> None:
    rules = [rule for rule, _ in said(ruleset, line)]
    assert [(r.role, f"{r.domain}/{r.sub_domain}") for r in rules] == [(Role.CAUSE, expected)]


def test_an_oom_kill_blames_nobody_and_names_the_job_it_hit(ruleset: Ruleset) -> None:
    rule, captures = only(
        ruleset,
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,"
        "oom_memcg=/slurm/uid_20031/job_4711,task_memcg=/slurm/uid_20031/job_4711/step_0/task_3,task=python3,pid=88,uid=20031",
    )
    assert (rule.blames, captures["job"], captures["name"], captures["pid"]) == ("none", "4711", "python3", "88")


def test_the_kernel_killing_a_daemon_is_not_the_jobs_end(ruleset: Ruleset) -> None:
    line = "Memory cgroup out of memory: Killed process 812 (node_exporter) total-vm:1821344kB, anon-rss:20144kB"
    assert [rule.role for rule, _ in said(ruleset, line)] == [Role.CONTEXT]


def test_a_hung_task_says_since_when_and_blames_nothing_alone(ruleset: Ruleset) -> None:
    rule, captures = only(ruleset, "INFO: task kworker/u256:3:1812 blocked for more than 122 seconds.")
    assert rule.role is Role.CONFIRMATION and captures["elapsed_s"] == "122"


@pytest.mark.parametrize(
    "rule_id",
    [
        "xid.79",
        "xid.143",
        "driver.rm-init-failed",
        "driver.api-mismatch",
        "fabricmanager.service-failed",
        "fabricmanager.version-mismatch",
    ],
)
def test_conditions_that_outlast_a_job_hold_until_the_node_booted(ruleset: Ruleset, rule_id: str) -> None:
    rule = next(r for r in ruleset.rules if r.id == rule_id)
    assert rule.persists and "kernel.boot" in rule.cleared_by


def test_what_only_slows_a_job_down_says_so(ruleset: Ruleset) -> None:
    slow = {r.id for r in ours(ruleset) if r.degrades}
    assert {"metric.thermal-slowdown", "metric.power-brake", "bmc.fan", "thermal.cpu-throttled"} <= slow


def test_every_cause_says_what_to_do_and_every_rule_what_it_does_not_prove(ruleset: Ruleset) -> None:
    assert not [r.id for r in ours(ruleset) if not r.guide or not r.does_not_prove]
    assert not [r.id for r in ours(ruleset) if r.role is Role.CAUSE and r.recommend is None]


def test_what_hardware_explains_exists(ruleset: Ruleset) -> None:
    """A rule id in `explains`, `needs` or `cleared_by` that nothing bears would never act."""
    known = {rule.id for rule in ruleset.rules} | {slowdown_rule().id}
    families = {rule.family for rule in ruleset.rules}
    for rule in ours(ruleset):
        for named in (*rule.explains, *rule.needs, *rule.cleared_by):
            if named.endswith("*"):
                assert named.partition(".")[0] in families, (rule.id, named)
            else:
                assert named in known, (rule.id, named)
