"""What the policies stand on in an engine: a vLLM that lacks it, or does what they do not know, is refused."""

from __future__ import annotations

from typing import Any

from policies.core import PolicyError

# What other versions of vLLM call the same thing, newest first.
ADMISSION_LIMITS = ("max_num_active_reqs", "max_num_running_reqs")
OTHER_QUEUES = ("kv_holding_waiting", "skipped_waiting")

REMEDY = "the policies know vLLM 0.24 to 0.33; install one of these"

# Names that the plugin stands on.
SCHEDULER_NAMES = (
    "running",
    "waiting",
    "requests",
    "kv_cache_manager",
    "kv_cache_config",
    "finished_req_ids",
    "max_num_scheduled_tokens",
)
SCHEDULER_METHODS = ("schedule", "update_from_output", "add_request", "_preempt_request", "_free_request")
POOL_NAMES = ("get_num_free_blocks", "num_gpu_blocks")
REQUEST_NAMES = (
    "_output_token_ids",
    "is_prefill_chunk",
    "max_tokens",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_preemptions",
    "num_prompt_tokens",
    "sampling_params",
)


def check_names(scheduler: Any, request_type: type, version: str) -> None:
    """PolicyError where this version of vLLM lacks a name that the plugin stands on."""
    known = f"vLLM {version} has no"
    for name in (*SCHEDULER_NAMES, *SCHEDULER_METHODS):
        if not hasattr(scheduler, name):
            raise PolicyError(f"{known} Scheduler.{name}: {REMEDY}")
    if not any(hasattr(scheduler, name) for name in ADMISSION_LIMITS):
        raise PolicyError(f"{known} Scheduler.{' or Scheduler.'.join(ADMISSION_LIMITS)}: {REMEDY}")
    pool = getattr(scheduler.kv_cache_manager, "block_pool", None)
    for name in POOL_NAMES:
        if not hasattr(pool, name):
            raise PolicyError(f"{known} KVCacheManager.block_pool.{name}: {REMEDY}")
    # A request's attributes are set when it is made.
    set_names = request_type.__init__.__code__.co_names  # type: ignore[misc] # of the class, not of an instance
    for name in REQUEST_NAMES:
        if name not in set_names:
            raise PolicyError(f"{known} Request.{name}: {REMEDY}")


def check_queue(queue: type, request_queue: type, version: str) -> None:
    """PolicyError where this version of vLLM asks its waiting queue for something that ours does not have."""
    for name in sorted(getattr(request_queue, "__abstractmethods__", ())):
        if not hasattr(queue, name):
            raise PolicyError(f"vLLM {version} has RequestQueue.{name}: {REMEDY}")


def check_settings(scheduler: Any) -> None:
    """PolicyError where the engine is set to do what the policies do not know."""
    config, settings = scheduler.vllm_config, scheduler.vllm_config.scheduler_config
    interval = getattr(settings, "prefill_schedule_interval", 1)
    if interval != 1:
        raise PolicyError(f"prefill_schedule_interval is {interval}: with a policy of ours it must be 1")
    if not getattr(settings, "scheduler_reserve_full_isl", True):
        raise PolicyError("scheduler_reserve_full_isl is off: a whole prompt must fit when it is admitted; leave it on")
    groups = len(scheduler.kv_cache_config.kv_cache_groups)
    for is_on, what in (
        (config.speculative_config is not None, "speculative decoding"),
        (config.kv_transfer_config is not None, "a KV connector"),
        (getattr(config, "ec_transfer_config", None) is not None, "an encoder-cache connector"),
        (config.parallel_config.pipeline_parallel_size > 1, "pipeline parallelism"),
        (config.parallel_config.data_parallel_size > 1, "data parallelism"),
        (groups != 1, f"{groups} groups of KV caches (a hybrid model)"),
        (settings.policy != "fcfs", f"--scheduling-policy {settings.policy}"),
    ):
        if is_on:
            raise PolicyError(f"the policies do not know {what}: start the engine without it")


def admission_limit(scheduler: Any) -> str:
    """The name of the attribute that bounds how many requests may run."""
    return next(name for name in ADMISSION_LIMITS if hasattr(scheduler, name))


def other_queue(scheduler: Any) -> str:
    """The name of the queue that this version keeps beside `waiting`, empty where it keeps none."""
    return next((name for name in OTHER_QUEUES if hasattr(scheduler, name)), "")
