"""Jobs of a cluster with Kueue that fail as the tests want it."""

from __future__ import annotations

from tests.connectors.kueue.cluster import NOW, admitted, condition, pod, workload
from tests.fakes.kubernetes import FakeKubernetes, Line

TRACE = ["Traceback (most recent call last):", '  File "/app/train.py", line 12, in <module>', "    main()",
         "KeyError: 'input_ids'"]  # fmt: skip


def fail(kubernetes: FakeKubernetes, name: str = "t5", end: float = NOW + 700, log: bool = True) -> None:
    kubernetes.put(pod(name, 0, "gpu-a", exit_code=1, created=end - 650))
    if log:
        write_log(kubernetes, name, end)
    kubernetes.put(workload(name, *admitted(end - 660), condition("Finished", True, "Failed", end)))


def write_log(kubernetes: FakeKubernetes, name: str, end: float) -> None:
    lines = [Line(int((end - 5) * 10**9) + n, text) for n, text in enumerate(TRACE)]
    kubernetes.write("research", f"{name}-worker-0", "pytorch", lines)
