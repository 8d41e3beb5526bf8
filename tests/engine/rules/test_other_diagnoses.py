"""Whole attempts with other devices, batch systems, switches and other jobs' objects: who is blamed."""

from __future__ import annotations

import pytest

from engine.ruleset import Ruleset, load_ruleset
from tests.engine.rules.test_cluster_diagnoses import WATCHDOG, event, items, pod, told, verdict


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return load_ruleset()


def test_an_uncorrectable_error_of_an_amd_gpu_is_the_root_and_the_reset_follows(ruleset: Ruleset) -> None:
    kernel = [
        (
            1201.0,
            "amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0 1 new uncorrectable hardware errors detected in umc block",
        ),
        (1202.0, "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"),
        (1210.0, "amdgpu 0000:c1:00.0: amdgpu: GPU reset succeeded, trying to resume"),
    ]
    app = [(1203.0, "[rank2]: HW Exception by GPU node-6 (Agent handle: 0x7f) reason :GPU Hang")]
    found = told(ruleset, syslog={"node-03": kernel}, app=[*app, *WATCHDOG])
    assert verdict(found) == ("hardware/gpu_memory", ("node-03",))
    assert found.root_cause and found.root_cause.devices == ("node-03/0000:c1:00",)


def test_corrected_errors_of_an_amd_gpu_accuse_nobody(ruleset: Ruleset) -> None:
    line = "amdgpu 0000:c1:00.0: amdgpu: 3 correctable hardware errors detected in umc block, no user action is needed."
    assert verdict(told(ruleset, syslog={"node-03": [(1190.0, line)]}, app=WATCHDOG))[0] == "unattributed/none"


def test_a_page_fault_of_an_amd_gpu_is_the_programs_and_no_node_is_blamed(ruleset: Ruleset) -> None:
    kernel = [
        (1201.0, "amdgpu 0000:83:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32780)")
    ]
    app = [
        (1201.5, "[rank1]: Memory access fault by GPU node-3 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.")
    ]
    assert verdict(told(ruleset, syslog={"node-02": kernel}, app=app)) == ("software/user_code", ())


def test_a_gaudi_that_its_driver_gave_up_is_blamed(ruleset: Ruleset) -> None:
    kernel = [(1201.0, "habanalabs hl2: Failed to communicate with Device CPU (CPU-CP timeout)")]
    app = [(1300.0, "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_COLLECTIVE collective call returned error")]
    assert verdict(told(ruleset, syslog={"node-04": kernel}, app=app)) == ("hardware/gpu", ("node-04",))


def test_a_port_of_a_switch_alone_explains_nothing(ruleset: Ruleset) -> None:
    port = [(1201.0, "%ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/14 is down (Link failure)")]
    assert verdict(told(ruleset, syslog={"leaf-07": port}, app=WATCHDOG)) == ("unattributed/none", ())


def test_a_switch_that_restarts_is_the_root_and_no_node_is_blamed(ruleset: Ruleset) -> None:
    found = told(ruleset, syslog={"leaf-07": [(1201.0, "%SYS-5-RELOAD: System restart requested")]}, app=WATCHDOG)
    assert verdict(found) == ("network/ethernet", ())


def test_memory_held_by_another_process_points_to_the_node(ruleset: Ruleset) -> None:
    out = (
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
        "of 79.11 GiB of which 1.02 GiB is free. Process 22110 has 40.20 GiB memory in use. "
        "Including non-PyTorch memory, this process has 37.80 GiB memory in use."
    )
    assert verdict(told(ruleset, app=[(60.0, out)], progress=50, end=70)) == ("platform/node_config", ("node-03",))
    own = out.replace("Process 22110 has 40.20 GiB memory in use. ", "")
    assert verdict(told(ruleset, app=[(60.0, own)], progress=50, end=70)) == ("software/gpu_oom", ())


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("=>> PBS: job killed: walltime 3612 exceeded limit 3600", "scheduler/time_limit"),
        ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "software/host_oom"),
        ("TERM_PREEMPT: job killed after preemption.", "scheduler/preemption"),
        ("TERM_OWNER: job killed by owner.", "scheduler/cancelled"),
    ],
)
def test_ends_in_the_words_of_other_batch_systems(ruleset: Ruleset, line: str, means: str) -> None:
    assert verdict(told(ruleset, app=[(1210.0, line)], end=1210)) == (means, ())


def test_what_befalls_another_jobs_pods_is_set_aside(ruleset: Ruleset) -> None:
    pods = items(pod("train-4711-0", "node-01"), pod("train-4711-1", "node-02"))
    other = event("Pod", "notebook-9", "Preempted", "Preempted by pod 12 on node node-01", 1201)
    own = event("Pod", "train-4711-1", "Preempted", "Preempted by pod 12 on node node-02", 1201)
    aside = told(ruleset, files={"pods.json": pods, "events.json": items(other)}, app=WATCHDOG)
    assert verdict(aside) == ("unattributed/none", ())
    assert any("notebook-9" in (one.not_root_because or "") for one in aside.candidates)
    met = told(ruleset, files={"pods.json": pods, "events.json": items(other, own)}, app=WATCHDOG)
    assert verdict(met) == ("scheduler/preemption", ())


def test_replicas_that_differ_point_to_the_rank_that_differs(ruleset: Ruleset) -> None:
    line = "cross-replica parameter checksum mismatch: rank 3 differs"
    assert verdict(told(ruleset, app=[(1201.0, line)], end=1230)) == ("hardware/gpu", ("node-04",))
