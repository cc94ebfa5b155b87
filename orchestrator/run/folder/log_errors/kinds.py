"""What a line of a log is: an error of the program, a consequence of it, a closing line of another program, progress.

Sources: recorded output of torchrun, mpirun, srun and Python, and public reports of failures.
"""

from __future__ import annotations

import re
from enum import IntEnum


class LineKind(IntEnum):
    """The kinds of lines; of two errors the one of the lower kind explains more."""

    TRACEBACK = 0
    ERROR = 1
    SECOND = 2  # an error of a helper, or seen by a watchdog
    THROWN = 3  # by C++, which Python's own error may have caused
    CRASH = 4  # the process's end by a signal, or by MPI_Abort
    CHILD = 5  # that a process ended badly, in the words of its parent
    PLAIN = 6
    PROGRESS = 7  # the program went on
    CLOSING = 8  # written after errors as well as without any


def _any(*patterns: str) -> re.Pattern[str]:
    """Any of the patterns; '(?i)' before one of them holds for that one."""
    return re.compile("|".join(f"(?i:{text[4:]})" if text.startswith("(?i)") else text for text in patterns))


CLOSING = _any(
    r"^[\W_]*$",
    # trackers
    r"^(wandb|comet(_ml)?|COMET|mlflow|swanlab|aim|\[?neptune\]?|trackio|dvclive)\b(?!.*\bERROR\b)",
    r"View (run|experiment|project|job)\b.*\bat\b", r"(?i)\bclearml\b", r"^\W*https?://\S+\s*$", r"^TensorBoard",
    r"operations (synced|to synchronize)|Shutting down background jobs|Explore the metadata", r"^Done!?\W*$",
    # warnings, also PyTorch's and glog's
    r"\b\w*Warning: |^\s*warnings?\.warn|^\[?W\d{4} \d\d:\d\d|\bWARN(ING)?\b|NCCL INFO",
    r"destroy_process_group|resource_tracker|leaked \w+ objects|^Exception raised from ",
    r"Some NCCL operations have failed|To avoid data inconsistency|Sending process \d+ closing signal",
    r"CUDA kernel errors might be|For debugging consider passing|TORCH_USE_CUDA_DSA|HYDRA_FULL_ERROR",
    r"TORCH_?DYNAMO_VERBOSE|You can suppress this exception|TORCH_LOGS",
    # stacks
    r"^\s*(frame #\d+|#\d+ +0x|\[ *\d+\] |at )|^(Current thread|Thread) 0x|^\s*File \"|^Extension modules|^Stacktrace:",
    r"^\d+ +0x[0-9a-f]{6}|^=+ *backtrace ",
    r"^(Calls:|Execution halted|goroutine |note: run with|in expression starting at|\+? *<\w+ frames omitted)",
    # launchers, schedulers and wrappers after an error
    r"^(srun: )?(launch/slurm|Job step aborted|job aborted)|^slurmstepd: .*(CANCELLED|STEP)|Forcefully terminating",
    r"^= |BAD TERMINATION|YOUR APPLICATION TERMINATED|This typically refers|Please see the FAQ",
    r"^\[(proxy|mpiexec)\S*\] ",
    r"Primary job\s+terminated|Per user-direction|non-zero (exit )?(code|status)|thus causing|The first process to do",
    r"(?i)^\s*(process name|exit code|node|pid|local rank|return code): ", r"NOTE: invoking MPI_ABORT|with errorcode",
    r"You may or may not see output|exactly when Open MPI|Process received signal|End of error message",
    r"Signal code: |Failing at address|^\W*reported by process|^\W*on (communicator|a NULL comm)|MPI_ERRORS_ARE_FATAL",
    r"and (potentially )?your (MPI|PMIx) job|^(prterun|mpirun|mpiexec|orterun)\b.*(detected|noticed|has exited)",
    r"(Received|Bypassing) SIGTERM|Detected KeyboardInterrupt|attempting graceful shutdown|`Trainer\.fit` stopped",
    r"\(See above for error\)|^exit status \d+|failed \(exitcode: |no error file",
    r"PMIX ERROR|Setting OMP_NUM_THREADS|To enable traceback see|^INFO: |Sending .* to .*rank|^Killing subprocess",
)  # fmt: skip
# Lines before a traceback that say that it is not the program's own.
ASIDE = _any(
    r"^Exception ignored", r"^Error in (atexit|sys\.excepthook)", r"^Exception in thread \w", r"Logging error -"
)
CHILD = _any(
    r"ChildFailedError|CalledProcessError|^make(\[\d+\])?: \*\*\*|^srun: error: .*(tasks?|Exited|Killed|Terminated)",
    r"returned non-zero exit status|^ProcessExitedException|Command .* (failed|exited) with|exited on signal",
    r"exits with return code = ",
)
CRASH = _any(
    r"Fatal Python error|^(\S+: )?(.*\d )?(Segmentation fault|Bus error|Illegal instruction|Floating point exception)",
    r"^(.*\d )?(Aborted|Killed|Terminated)\b[^:]*$|core dumped|Signal: |Caught signal \d",
    r"MPI_ABORT was invoked|called MPI_Abort|^KeyboardInterrupt|^SystemExit",
)
THROWN = _any(r"terminate called|^\s*what\(\): ")
SECOND = _any(
    r"Watchdog caught|watchdog thread terminated|oom[-_ ]?kill|Out Of Memory|BrokenPipeError|^wandb: ERROR",
)
# Several of these after an error show that the program has gone on.
BAR = re.compile(r"\d+%\||[\d?](it|s)/(s|it)\b")
PROGRESS = re.compile(r"(?i)\b(step|epoch|iter(ation)?|batch|loss|it)\b[\s:=/\['\"]*\d|\d+%\||[\d?](it|s)/(s|it)\b")
NOT_A_NUMBER = r"(?!S?\s*[=:]?\s*[-+]?(\d*\.\d+|nan\b|inf\b|\d+\s*(%|$|[,;|)\]/])))"  # as in 'error: 0.31'
ERROR = _any(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(Error|Exception|Interrupt|Exit|Failure|Fault|Exhausted)\b\s*(\(|:|$)",
    rf"(?i)\b(error|fatal|panic|critical|exception)\b\]?\s*(:|!|\]){NOT_A_NUMBER}", r"^Error in ",
    rf"\b(ERROR|FATAL|CRITICAL)\b{NOT_A_NUMBER}", r"^F\d{4} ", r"^Exception in thread \"",
    r"panicked at|^Caused by: |Assertion .*fail",
    r"(?i)command not found|no such file or directory|permission denied|cannot open shared object|exec format error",
    r"(?i)no space left on device|disk quota exceeded|input/output error|stale file handle|cannot allocate memory",
    r"(?i)out of memory|can't open file|double free|stack smashing|invalid pointer|unrecognized arguments",
    r"MPI_ERR_\w+:|^forrtl: ",
)  # fmt: skip

DEVICE_FULL = re.compile(
    r"(?i)(cuda|hip|xpu|mps)( backend| driver)?( error)?:? out of memory|(CUDNN|CUBLAS)_STATUS_ALLOC_FAILED"
    r"|\bOutOfMemoryError: (CUDA|HIP|XPU|MPS|Allocation on)|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|cudaMalloc.*out of memory|hipErrorOutOfMemory|cupy\S*OutOfMemoryError"
    r"|RESOURCE_EXHAUSTED: .*(memory|allocat)|OOM when allocating|Cuda failure \d* ?'out of memory'"
)
# Messages for a lost rank, of programs that have no exit code for it; a server is no rank.
LOST_PEER = re.compile(
    r"(?i)connection (reset|closed|refused|was broken)|broken pipe|nccl(Remote|System)Error|socket timeout|timed out"
    r"|wait timeout|collective operation timeout|failed to recv, got 0 bytes|remote process exited"
)
OF_A_SERVER = re.compile(
    r"(?i)https?://|https?connection|\burllib|\brequests\.|huggingface|botocore|aiohttp|psycopg|sql|redis|mongo|smtp"
)


def kind_of(text: str) -> LineKind:
    """What a bare line is, outside a traceback."""
    for kind, pattern in ORDER:
        if pattern.search(text):
            return kind
    return LineKind.PLAIN


def kind_of_exception(reason: str, before: str) -> LineKind:
    """What a traceback is that ends in `reason` and follows the line `before`."""
    for kind, pattern in ((LineKind.CHILD, CHILD), (LineKind.CRASH, CRASH), (LineKind.SECOND, SECOND)):
        if pattern.search(reason):
            return kind
    return LineKind.SECOND if ASIDE.search(before) else LineKind.TRACEBACK


ORDER = (
    (LineKind.CHILD, CHILD),
    (LineKind.THROWN, THROWN),
    (LineKind.SECOND, SECOND),
    (LineKind.CRASH, CRASH),
    (LineKind.CLOSING, ASIDE),
    (LineKind.CLOSING, CLOSING),
    (LineKind.ERROR, ERROR),
    (LineKind.PROGRESS, PROGRESS),
)
