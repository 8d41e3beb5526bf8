"""What the software rules make of single lines and tracebacks: meaning, role, captures, and what they leave alone."""

# ruff: noqa: E501  (log lines are quoted as they are)
from __future__ import annotations

import io
from urllib.parse import urlsplit

import pytest

from engine.model import Role, Source, Stream
from engine.ruleset import Ruleset, load_ruleset
from engine.scan import Hit, Scanner, StreamScan

FAMILIES = (
    "nccl", "pytorch", "cuda", "python", "progress", "numerical", "deepspeed", "megatron", "nemo", "lightning",
    "accelerate", "jax", "ray", "vllm", "sglang", "trtllm", "mpi",
)  # fmt: skip
MAY_BE_ROOT = (Role.CAUSE, Role.EITHER)
MAIN = "/work/llm/train.py:88 in main"
MODEL = "/work/llm/model.py:41 in forward"
LOADER = "/opt/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py:52 in fetch"
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"
FROM = "\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return load_ruleset()


@pytest.fixture(scope="module")
def scanner(ruleset: Ruleset) -> Scanner:
    return Scanner(ruleset)


def scanned(scanner: Scanner, text: str) -> StreamScan:
    content = text.encode()
    return scanner.scan(
        Stream(name="applog/job.out", source=Source.APPLOG, open=lambda: io.BytesIO(content), size=len(content))
    )


def traceback(last: str, *frames: str) -> str:
    lines = ["Traceback (most recent call last):"]
    for frame in frames or (MAIN,):
        place, _, function = frame.partition(" in ")
        path, _, number = place.rpartition(":")
        lines += [f'  File "{path}", line {number}, in {function}', "    y = f(x)"]
    return "\n".join([*lines, last]) + "\n"


def roots(scan: StreamScan) -> list[Hit]:
    return [hit for hit in scan.hits if hit.rule.role in MAY_BE_ROOT]


def meaning(scan: StreamScan) -> set[str]:
    """Domain and sub-domain of everything that might be a root."""
    return {f"{hit.rule.domain}/{hit.rule.sub_domain}" for hit in roots(scan)}


LOST_PEER = [
    "[rank5]:[E1114 03:31:08.5 ProcessGroupNCCL.cpp:629] [Rank 5] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=88123, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600081 milliseconds "
    "before timing out.",
    "[rank6]:[E1114 03:31:08.5 ProcessGroupNCCL.cpp:1785] [Rank 6] Collective WorkNCCL(SeqNum=412, OpType=ALLREDUCE, "
    "NumelIn=8, NumelOut=1, Timeout(ms)=600000) raised the following async exception: NCCL error: remote process exited "
    "or there was a network error, NCCL version 2.21.5",
    "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: NCCL error: "
    "unhandled system error, NCCL version 2.21.5",
    "[PG ID 0 PG GUID 0(default_pg) Rank 6] Received a dump signal due to a collective timeout from  rank 7 and we will "
    "try our best to dump the debug info. Last enqueued NCCL work: 12, last completed NCCL work: 12.This is most likely "
    "caused by incorrect usages of collectives, e.g., wrong sizes used across ranks",
    "[PG 0 Rank 1] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress",
    "gpu-17:41:42 [3] transport/net_ib.cc:2358 NCCL WARN NET/IB: Got completion from peer 10.4.7.19<41822> with status=12 "
    "opcode=0 len=0 vendor err 129 (Send) hca mlx5_3",
    "gpu-17:41:42 [3] transport/net_ib/p2p.cc:688 NCCL WARN NET/IB: Got completion from peer 10.4.7.19<41822> with "
    "status=IBV_WC_WR_FLUSH_ERR(5) opcode=IBV_WC_RDMA_WRITE(1) vendor_err=249",
    "gpu-17:41:42 [3] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer gpu-33<48152>",
    "gpu-17:41:42 [3] misc/socket.cc:49 NCCL WARN socketProgressOpt: Call to recv from 10.4.7.19<48152> failed : Broken pipe",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "RuntimeError: NCCL communicator was aborted on rank 3. Original reason for failure was: watchdog timeout",
    "[rank3]:[W1114 03:31:10.2 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=77, addr=[gpu-4]:51234, "
    "remote=[gpu-1]:29500): Failed to recv, got 0 bytes",
    "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 31/32 clients joined.",
    "[E1114 02:59:59.5 socket.cpp:1028] [c10d] The client socket has timed out after 600000ms while trying to connect to "
    "(gpu-1, 29500).",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.4.7.19]:51922",
    "RuntimeError: Ranks 3, 7 failed to pass monitoredBarrier in 1800000 ms",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "Root Cause (first observed failure):",
    "  traceback : Signal 9 (SIGKILL) received by PID 41380",
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
    "W1114 03:31:07.9 41370 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 41381 closing signal SIGTERM",
    "[rank: 1] Child process with PID 9487 terminated with code -9. Forcefully terminating all other processes",
    "F1114 03:31:10.0 157988 client.h:77] Terminating process because the JAX distributed service detected fatal errors.",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "[gpu-21:41377:0:41377] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_3:1/IB (synd 0x15 vend 0x81)",
    "mpirun noticed that process rank 171 with PID 41380 on node gpu-021 exited on signal 9 (Killed).",
    "Killed",
]  # fmt: skip


@pytest.mark.parametrize("line", LOST_PEER, ids=lambda line: line[:60])
def test_what_ranks_say_when_a_peer_is_gone_is_kept_but_can_never_be_a_root(scanner: Scanner, line: str) -> None:
    scan = scanned(scanner, line + "\n")
    assert scan.hits, "the line should be kept as a symptom"
    assert not roots(scan)


HARMLESS = [
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "Search for `cudaErrorAssert' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more.",
    "Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/ for more information.",
    "INFO: lower --max-num-seqs when CUDA out of memory errors appear",
    "gpu-17:41:42 [3] NCCL INFO NET/IB : No device found.",
    "node-4:90:120 [0] NCCL WARN NET/Plugin: Failed to open libnccl-tuner.so, tuner disabled",
    "gpu-17:41:42 [3] NCCL INFO socketStartConnect: connect to 10.4.7.19<48152> returned Connection refused, retrying",
    "g-31:77:901 [2] NCCL INFO [Service thread] Connection closed by localRank 3",
    "[W1103 02:00:41.1 socket.cpp:697] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 111 - Connection refused).",
    "[W1103 02:00:41.1 socket.cpp:697] [c10d] The IPv6 network addresses of (n1, 29500) cannot be retrieved (gai error: -97 - x).",
    "[rank0]:[W1114 03:31:08.9 ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() was not called before "
    "program exit, which can leak resources.",
    "  check_for_nan_in_loss_and_grad .................. True",
    "args: exit_on_nan=True abort_on_error=False error_on_unknown=False min_loss_scale=1.0",
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    "step 3100 | loss nan | grad_norm inf | skipped",
    "2026-11-03 02:00:01 WARNING dataset: KeyError: 'caption' in sample 8812, skipping",
    "2026-11-03 02:00:01 WARNING loader: OSError: [Errno 5] Input/output error, retrying (1/5)",
    "2026-11-03 02:00:01 INFO dataset: skipping record 12 (PIL.UnidentifiedImageError: cannot identify image file)",
    "2026-11-03 02:00:01 WARNING up: requests.exceptions.ConnectionError: Max retries exceeded, will retry in 30 s",
    "WARNING: CUDA out of memory. Tried to allocate 2.00 GiB, retrying with batch size 8",
    "WARNING: PytorchStreamReader failed reading zip archive, falling back to step 2000",
    "wandb: Network error (ReadTimeout), entering retry loop.",
    "INFO: Unable to initialize backend 'tpu': UNAVAILABLE: No TPU Platform available.",
    "WARNING: could not find the metadata file /ckpt/run1/latest_checkpointed_iteration.txt",
    "bash: line 1: module: command not found",
    "Some weights of LlamaForSequenceClassification were not initialized from the model checkpoint at /models/llama",
    '    raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")',
    "    loss = step(model, batch)",
]  # fmt: skip


@pytest.mark.parametrize("line", HARMLESS, ids=lambda line: line[:60])
def test_advice_settings_and_handled_errors_are_no_roots_and_no_progress(scanner: Scanner, line: str) -> None:
    scan = scanned(scanner, line + "\n")
    assert not roots(scan)
    if "step 3100" not in line:
        assert not scan.marks


EXCEPTIONS = {
    "software/dependency": [
        "ModuleNotFoundError: No module named 'flash_attn'",
        "ImportError: /opt/fa/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E",
        "ImportError: /lib/libc.so.6: version `GLIBC_2.34' not found (required by /opt/x.so)",
        "OSError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
        "AttributeError: module 'numpy' has no attribute 'float'.",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96, got 88",
        "RuntimeError: Error building extension 'cpu_adam'",
    ],
    "software/checkpoint": [
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        "_pickle.UnpicklingError: pickle data was truncated",
        "RuntimeError: Missing key in checkpoint state_dict: model.layers.4.q_norm.weight.",
        "RuntimeError: Error(s) in loading state_dict for GPTModel:",
        "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step-12000/.metadata'",
        "AssertionError: num_layers value from checkpoint (48) is not equal to the input argument value (40).",
    ],
    "software/data": [
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 64: invalid start byte",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f2a>",
        "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.",
        "ValueError: mmap length is greater than file size",
        "RuntimeError: stack expects each tensor to be equal size, but got [3, 224, 224] at entry 0 and [1, 2, 2] at entry 5",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/c4/c4-train.00032.json.gz'",
    ],
    "software/configuration": [
        "omegaconf.errors.ConfigAttributeError: Key 'optimiser' is not in struct",
        "AssertionError: train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 256 != 4 * 8",
        "ValueError: num_attention_heads (40) must be divisible by tensor parallel size (16)",
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for TrainConfig",
        "PermissionError: [Errno 13] Permission denied: '/scratch/ckpt'",
        "OSError: [Errno 98] Address already in use",
        "OSError: Can't load tokenizer for '/models/llama'.",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo",
        "RuntimeError: CUDA error: invalid device ordinal",
    ],
    "software/numerical": [
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped.",
        "AssertionError: Rank 3: found NaN in local forward loss calculation. Device: 3, node: n7",
    ],
    "software/user_code": [
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x768 and 1024x4096)",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "TypeError: forward() got an unexpected keyword argument 'num_items_in_batch'",
        "KeyError: 'attention_mask'",
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
        "acme.train.errors.TokenBudgetExceeded: 12 shards left",
    ],
    "software/gpu_oom": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.00 GiB. GPU 5 has a total capacity of 63.98 GiB",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
    ],
    "software/host_oom": [
        "MemoryError",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
        "to allocate 137438953472 bytes. Error code 12 (Cannot allocate memory)",
        "RuntimeError: DataLoader worker (pid 52211) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory.",
        "RuntimeError: unable to write to file </torch_811_2034>: No space left on device (28)",
        "RuntimeError: DataLoader worker (pid 52211) is killed by signal: Killed. ",
    ],
    "software/collective_mismatch": [
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 3 is running collective: CollectiveFingerPrint("
        "SequenceNumber=18, OpType=ALLREDUCE, TensorShape=[4]), but Rank 0 is running collective: CollectiveFingerPrint()",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4",
    ],
    "storage/capacity": [
        "OSError: [Errno 28] No space left on device: '/ckpt/step_2000/rank0.pt'",
        "OSError: [Errno 122] Disk quota exceeded",
    ],
    "storage/shared_filesystem": [
        "OSError: [Errno 5] Input/output error: '/lustre/train/0001.tar'",
        "OSError: [Errno 116] Stale file handle",
        "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/data/shard-0007.tar'",
    ],
    "storage/object_store": [
        "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation",
    ],
    "network/dns": ["socket.gaierror: [Errno -3] Temporary failure in name resolution"],
    "network/remote_service": [
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example.org', port=443): Max retries exceeded",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cache.",
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url",
    ],
    "platform/cuda_compat": [
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ],
    "platform/fabric_manager": [
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized",
    ],
    "hardware/gpu_memory": ["torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "error"), [(w, e) for w, errors in EXCEPTIONS.items() for e in errors], ids=lambda v: v[:50]
)
def test_exception_tells_domain_and_sub_domain(scanner: Scanner, wanted: str, error: str) -> None:
    assert meaning(scanned(scanner, traceback(error, MAIN, MODEL))) == {wanted}


@pytest.mark.parametrize(
    "error",
    [
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error, NCCL version 2.21.5",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "KeyboardInterrupt",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 41370 got signal: 15",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGABRT: 6>.",
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle )`",
    ],
)
def test_exceptions_that_only_echo_something_else_are_no_roots(scanner: Scanner, error: str) -> None:
    scan = scanned(scanner, traceback(error))
    assert scan.hits
    assert not roots(scan)


@pytest.mark.parametrize(
    ("error", "frames", "wanted"),
    [
        ("KeyError: 'labels'", (MAIN, MODEL), "software/user_code"),
        ("KeyError: 'labels'", (MAIN, LOADER), "software/data"),
        ("KeyError: 'clip_7712'", (MAIN, "/work/mm/data/pack.py:51 in __next__"), "software/data"),
        ("KeyError: 'MASTER_ADDR'", (MAIN, "<frozen os>:680 in __getitem__"), "software/configuration"),
        (
            "AssertionError",
            (MAIN, "/opt/megatron/training/arguments.py:512 in validate_args"),
            "software/configuration",
        ),
        ("_pickle.UnpicklingError: pickle data was truncated", (MAIN, LOADER), "software/data"),
    ],
)
def test_frames_decide_where_the_message_alone_does_not(
    scanner: Scanner, error: str, frames: tuple[str, ...], wanted: str
) -> None:
    assert meaning(scanned(scanner, traceback(error, *frames))) == {wanted}


def test_exception_while_objects_are_cleaned_up_is_teardown(scanner: Scanner) -> None:
    text = traceback(
        "AttributeError: 'NoneType' object has no attribute 'poll'",
        "/opt/torch/utils/data/dataloader.py:1479 in __del__",
        "/usr/lib/python3.11/multiprocessing/popen_fork.py:40 in wait",
    )
    assert [hit.rule.role for hit in scanned(scanner, text).hits] == [Role.TEARDOWN]
    assert not roots(scanned(scanner, "Exception ignored in: <x>\n" + text))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            traceback("KeyError: 'a'", MAIN, MODEL)
            + HANDLING
            + traceback("torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3."),
            {"software/user_code"},
        ),
        (
            traceback("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a "
                      "network error, NCCL version 2.21.5")
            + HANDLING
            + traceback("AttributeError: 'NoneType' object has no attribute 'close'"),
            set(),
        ),
        (
            traceback("OSError: [Errno 5] Input/output error: '/lustre/x'")
            + FROM
            + traceback("RuntimeError: failed to load sample 12"),
            {"storage/shared_filesystem"},
        ),
        (
            traceback("KeyError: 'gelu2'") + HANDLING + traceback("ValueError: unknown activation 'gelu2'"),
            {"software/configuration"},
        ),
    ],
    ids=["barrier in a handler", "clean-up after a lost peer", "vague wrapper", "raised on purpose"],
)  # fmt: skip
def test_of_chained_exceptions_the_one_that_tells_what_went_wrong_counts(
    scanner: Scanner, text: str, wanted: set[str]
) -> None:
    assert meaning(scanned(scanner, text)) == wanted


def test_two_processes_in_one_file_are_two_tracebacks(scanner: Scanner) -> None:
    lost = traceback("torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.")
    for text in (traceback("KeyError: 'a'") + lost, lost + traceback("KeyError: 'a'")):
        scan = scanned(scanner, text)
        assert meaning(scan) == {"software/user_code"}
        assert {hit.rule.id for hit in scan.hits} >= {"python.code-error", "nccl.communicator-aborted"}


def test_a_consequence_in_the_words_of_several_families_is_shown_under_each(scanner: Scanner) -> None:
    lost = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error"
    shown = {hit.rule.family for hit in scanned(scanner, f"[rank3]: {lost}\n").hits}
    assert shown == {"nccl", "pytorch"}
    assert {hit.rule.family for hit in scanned(scanner, traceback(lost)).hits} == {"nccl", "pytorch", "python"}


@pytest.mark.parametrize(
    "prefix",
    [
        "", "12: ", "[rank3]: ", "[default3]:[rank3]: ", "[1,3]<stderr>:", "(train_fn pid=811, ip=10.0.0.3) ",
        "2026-11-03T04:12:09.123456789Z stderr F ", "2026-11-03 04:12:09.123 | ERROR    | __main__:run:12 - ",
        "2026-11-03 04:12:09,123 ERROR ", "[2026-11-03 04:12:09,123] [ERROR] [engine.py:12:train] ",
        "(Worker_TP2 pid=91) ERROR 11-03 04:12:09 [multiproc_executor.py:671] ",
        "[NeMo E 2026-11-03 04:12:09 nemo_logging:405] ", "trainer-1  | ",
    ],
)  # fmt: skip
def test_traceback_is_read_whole_behind_any_prefix(scanner: Scanner, prefix: str) -> None:
    text = traceback("KeyError: 'labels'", MAIN, LOADER)
    hits = roots(scanned(scanner, "".join(prefix + line for line in text.splitlines(keepends=True))))
    assert [(hit.rule.sub_domain, hit.bare) for hit in hits] == [("data", False)]


CAPTURES = [
    (LOST_PEER[0], {"seq": "88123", "op": "ALLREDUCE", "elapsed_ms": "600081"}),
    (LOST_PEER[3], {"rank": "6", "peer": "7", "last_enqueued": "12", "last_completed": "12"}),
    (LOST_PEER[4], {"rank": "1", "elapsed_s": "600"}),
    (LOST_PEER[5], {"peer": "10.4.7.19<41822>", "status": "12", "hca": "mlx5_3"}),
    (LOST_PEER[6], {"peer": "10.4.7.19<41822>", "status": "5"}),
    (LOST_PEER[7], {"peer": "gpu-33<48152>"}),
    (LOST_PEER[11], {"peer": "gpu-1"}),
    (LOST_PEER[15], {"absent": "3, 7", "elapsed_ms": "1800000"}),
    (
        "node-03:18:22 [4] transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_4:1 Got async event : port error",
        {"device": "mlx5_4:1"},
    ),
    (
        "Rank 171, node gpu-021, device 3, iteration #813: Possible persistent error!",
        {"rank": "171", "node": "gpu-021"},
    ),
]


@pytest.mark.parametrize(("line", "wanted"), CAPTURES, ids=lambda v: str(v)[:50])
def test_captures_name_peer_sequence_and_elapsed_time(scanner: Scanner, line: str, wanted: dict[str, str]) -> None:
    captures = [hit.captures for hit in scanned(scanner, line + "\n").hits]
    assert any(wanted.items() <= found.items() for found in captures), captures


def test_cuda_error_in_the_watchdog_s_line_is_not_hidden_by_the_wrapper(scanner: Scanner) -> None:
    line = (
        "[rank9]:[E1103 04:12:09.1 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank 9] Process group "
        "watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n"
    )
    assert [hit.rule.id for hit in scanned(scanner, line).hits] == ["cuda.illegal-address"]


PROGRESS = [
    (
        " [2026-11-14 03:20:55] iteration     2813/   50000 | consumed samples:      2880512 | elapsed time per "
        "iteration (ms): 9123.1 | lm loss: 2.113472E+00 |",
        {"step": "2813", "step_ms": "9123.1"},
    ),
    (
        "Training epoch 0, iteration 812/9999 | lr: 0.0003 | global_step: 812 | train_step_timing in s: 4.817",
        {"step": "812", "step_s": "4.817"},
    ),
    (
        "[titan] 2026-11-03 02:14:10,118 - root - INFO - step: 412  loss:  2.8113  memory: 61.20GiB  tps: 3,512  mfu: 40%",
        {"step": "412", "rate": "3,512"},
    ),
    (
        "[2026-11-03 02:14:10,118] [INFO] [logging.py:128:log_dist] [Rank 0] step=1230, skipped=0, lr=[1]",
        {"step": "1230"},
    ),
    ("2026-11-03 02:14:10,118 INFO trainer step 120/300 loss 2.1143", {"step": "120"}),
    ("{'loss': 1.2214, 'grad_norm': 0.8812, 'learning_rate': 1.9e-05, 'epoch': 0.41}", {"loss": "1.2214"}),
    ("  3%|▎         | 1271/40000 [1:41:02<51:20:11,  4.77s/it]", {"step": "1271", "step_s": "4.77"}),
    ("Epoch 0:  31%|███       | 1203/3851 [20:11<44:26,  0.99it/s, v_num=x1k2]", {"step": "1203", "rate": "0.99"}),
    ("completed step: 1201, seconds: 3.114, TFLOP/s/device: 188.2, loss: 2.911", {"step": "1201", "step_s": "3.114"}),
    (
        "Engine 000: Avg prompt throughput: 812.1 tokens/s, Avg generation throughput: 301.8 tokens/s, Running: 12 reqs",
        {"rate": "301.8"},
    ),
    ("  successfully saved checkpoint from iteration    2000 to /lustre/exp/ckpt", {"step": "2000"}),
]


@pytest.mark.parametrize(("line", "wanted"), PROGRESS, ids=lambda v: str(v)[:40])
def test_progress_lines_give_step_and_time(scanner: Scanner, line: str, wanted: dict[str, str]) -> None:
    (mark,) = scanned(scanner, line + "\n").marks
    assert wanted.items() <= mark.captures.items()


@pytest.mark.parametrize(
    "line",
    [
        *LOST_PEER,
        "ERROR trainer: loss is NaN at step 812, aborting run",
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs",
        "Loading checkpoint shards:  50%|█████     | 2/4 [00:11<00:11,  5.60s/it]",
        "saving checkpoint at iteration    2000 to /lustre/exp/ckpt in torch_dist format",
    ],
    ids=lambda line: line[:60],
)
def test_failure_idleness_and_loading_are_no_proof_of_life(scanner: Scanner, line: str) -> None:
    assert not scanned(scanner, line + "\n").marks


def test_every_cause_says_what_to_do_and_cites_a_public_source(ruleset: Ruleset) -> None:
    for rule in ruleset.rules:
        if rule.family not in FAMILIES or rule.role is not Role.CAUSE:
            continue
        assert rule.recommend is not None, rule.id
        assert rule.references, rule.id
        for address in rule.references:
            assert urlsplit(address).scheme == "https", (rule.id, address)


def test_retrying_is_not_advised_for_faults_of_the_program(ruleset: Ruleset) -> None:
    for rule in ruleset.rules:
        if rule.family in FAMILIES and rule.role is Role.CAUSE and rule.domain == "software" and rule.recommend:
            assert rule.recommend.action == "stop", rule.id


def test_software_blames_no_node_and_nccl_alone_never_asserts_a_cause(ruleset: Ruleset) -> None:
    for rule in ruleset.rules:
        if rule.domain == "software":
            assert rule.blames == "none", rule.id
    causes = {rule.id for rule in ruleset.rules if rule.family == "nccl" and rule.role is Role.CAUSE}
    told = {"nccl.duplicate-gpu", "nccl.version-mismatch", "nccl.bootstrap-mismatch", "nccl.shm-full"}
    compared = {"nccl.address-out-of-reach", "nccl.own-address"}  # never one line of NCCL: addresses of all ranks
    assert causes == told | compared
    specs = {matcher.spec.id: matcher.spec for matcher in ruleset.matchers}
    assert all(specs[rule].source == (Source.FLIGHT_RECORDER,) for rule in compared)


def test_patterns_stay_quiet_in_an_ordinary_training_log(scanner: Scanner) -> None:
    ordinary = "".join(
        f"[rank0]:  [2026-11-03 0{i // 3600}:{i // 60 % 60:02}:{i % 60:02}] iteration {i:8}/ 50000 | consumed samples: {i * 64:12}"
        f" | elapsed time per iteration (ms): 1011.2 | lm loss: 2.11E+00 | loss scale: 1.0 | grad norm: 0.8 |\n"
        f"{i}: gpu-1:11:12 [0] NCCL INFO Channel 0{i % 8}/08 : 0[0] -> 1[1] via P2P/CUMEM\n"
        for i in range(1, 2000)
    )
    scan = scanned(scanner, ordinary)
    assert scan.hits == []
    assert len({mark.captures["step"] for mark in scan.marks}) > 100
