"""Risks that an estimate of a job shows, as codes and figures."""

from collections.abc import Iterator

from service.domain.catalog.hardware import CPU, Gpu
from service.domain.catalog.precision import bytes_per_value
from service.domain.codes import WarningCode
from service.domain.jobs.config import USUAL_CONFIDENCE, Config, InferenceConfig, TrainingConfig
from service.domain.jobs.job import Job, input_length, output_length, reads_fixed_tokens
from service.domain.jobs.job_on_gpu import only_stores
from service.domain.jobs.stacks import UNKNOWN
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.models.counts import multiplied_parameters
from service.domain.models.described import UNNAMED_SAMPLE
from service.domain.physics.cluster import Cluster
from service.domain.physics.inference_roofline import steps_with_drafts
from service.domain.physics.input_pipeline import feed_of, preparation_seconds
from service.domain.physics.parallelism import Layout, crosses_slow_links
from service.domain.statement import Statement, statement

SLOW_INTERCONNECTS = ("pcie", "none")
"""Links within a node over which tensor parallelism is slow."""

USUAL_SECONDS_TO_FIRST_TOKEN = 2.0
"""Longest time to the first token of a server of Llama 2 70B in MLPerf Inference v4.0 (published on 2024-03-27)."""


def estimate_warnings(job_estimate: JobEstimate, cluster: Cluster) -> Iterator[Statement[WarningCode]]:
    """Yields the risks of an estimate: memory, slow links, a precision without its own units, no similar run."""
    estimate, gpu = job_estimate.estimate, cluster.gpu
    unsure = not estimate.memory.fits_surely or estimate.memory.fit_probability < USUAL_CONFIDENCE
    if unsure and not job_estimate.measured:
        yield statement(
            WarningCode.GPU_MEMORY, memory=estimate.memory, of_cpus=gpu.kind == CPU, faster=job_estimate.faster
        )
    if not estimate.host.fits:
        yield statement(WarningCode.HOST_MEMORY, host=estimate.host)
    tensor = estimate.layout.tensor
    crosses_nodes = bool(crosses_slow_links(tensor, cluster.linked_gpus))
    if tensor > 1 and (crosses_nodes or cluster.interconnect in SLOW_INTERCONNECTS):
        yield statement(WarningCode.TENSOR_OVER_SLOW_LINKS, tensor=tensor, crosses_nodes=crosses_nodes)
    serving = job_estimate.job.serving
    disaggregated = serving is not None and serving.disaggregated
    if (cluster.crosses_network or disaggregated) and not cluster.network_known:
        gbps = cluster.network_gbps
        linked = cluster.linked_gpus if cluster.linked_gpus > cluster.gpus_per_node and not disaggregated else None
        crossing = () if disaggregated else _across_nodes(estimate.layout, cluster)
        yield statement(
            WarningCode.NETWORK_UNKNOWN, gbps=gbps, disaggregated=disaggregated, linked=linked, crossing=crossing
        )
    yield from _step_warnings(job_estimate)
    yield from _length_warnings(job_estimate)
    yield from _load_warnings(job_estimate)
    yield from _draft_warnings(job_estimate)
    yield from _feed_warnings(job_estimate, cluster)
    yield from _image_warnings(job_estimate, cluster)
    yield from _encoder_warnings(job_estimate.job)
    yield from _precision_warnings(job_estimate, gpu)
    yield from _attention_warnings(job_estimate, gpu)
    yield from _model_warnings(job_estimate.job)
    yield from _software_warnings(job_estimate.job)
    if estimate.extrapolates:
        named = job_estimate.job.software != UNKNOWN or bool(job_estimate.job.unrecognised_software)
        yield statement(WarningCode.EXTRAPOLATES, properties=estimate.extrapolates, stack_named=named)


def _model_warnings(job: Job) -> Iterator[Statement[WarningCode]]:
    """Yields dimensions of a language model, and values of another network, that its description lacks."""
    if job.dimensions_of is not None:
        yield statement(WarningCode.DIMENSIONS_ASSUMED, model=job.dimensions_of)
    elif job.model.sample == UNNAMED_SAMPLE and job.model.activation_values_per_sample is None:
        yield statement(WarningCode.VALUES_ASSUMED, model=job.model.name)


def _precision_warnings(job_estimate: JobEstimate, gpu: Gpu) -> Iterator[Statement[WarningCode]]:
    """Yields a precision that the GPU runs at a reduced rate, and a format in which it only stores weights."""
    precision, asked = job_estimate.precision, job_estimate.job.precisions
    # Narrower formats only store weights.
    if not gpu.runs(precision) and bytes_per_value(precision) >= 1 and precision in gpu.rates:
        yield statement(WarningCode.PRECISION_REDUCED, gpu=gpu.name, precision=precision)
    # All GPUs multiply 4-bit integers and NormalFloat at 16 bits, and trainers all integers, which needs no warning.
    if asked and precision not in asked and not only_stores(job_estimate.job.task, asked[0]):
        engine = job_estimate.job.software.on(gpu.platform).line if gpu.runs(asked[0], "any") else None
        figures = {"gpu": gpu.name, "engine": engine, "asked": asked[0], "precision": precision}
        # CPUs may have units whose rates no source states.
        yield statement(WarningCode.PRECISION_STORED, **figures, rate_known=gpu.kind != CPU)
    job = job_estimate.job
    stored = job.weight_precision or (asked[0] if asked else job.weights_of_checkpoint or precision)
    narrow = only_stores(job.task, stored) or stored == job.weights_of_checkpoint
    if job.task == "training" and job.method == "full" and narrow:
        figures = {"gpu": gpu.name, "engine": None, "asked": stored, "precision": precision}
        yield statement(WarningCode.PRECISION_STORED, **figures, all_change=True)


def _attention_warnings(job_estimate: JobEstimate, gpu: Gpu) -> Iterator[Statement[WarningCode]]:
    """Yields a model that selects the tokens to attend to, on a stack or a GPU without kernels for that."""
    job, t = job_estimate.job, job_estimate.job.model.transformer
    if t is not None and job.model.selects_tokens and not job_estimate.config.model.selects_tokens:
        engine = None if job.software == UNKNOWN else job.software.on(gpu.platform).line
        figures = {"engine": engine, "gpu": gpu.name, "model": job.model.name, "tokens": t.indexed_tokens}
        yield statement(WarningCode.ATTENDS_TO_ALL, **figures)


def _software_warnings(job: Job) -> Iterator[Statement[WarningCode]]:
    """Yields software that is not known, and an engine that is made for other models."""
    if names := job.unrecognised_software:
        listed, near = job.listed_software, job.similar_stacks
        yield statement(WarningCode.SOFTWARE_UNRECOGNISED, names=names, listed=listed, near=near)
    if job.software.stack_class.batches_continuously and not job.model.has_tokens:
        figures = {"engine": job.software.line, "model": job.model.name}
        yield statement(WarningCode.ENGINE_OF_LANGUAGE_MODELS, **figures)
    if job.task == "training" and job.software.stack.only_answers:
        yield statement(WarningCode.ENGINE_OF_INFERENCE, engine=job.software.line)
    if job.software.stack.embeds_only and job.model.generates:
        figures = {"engine": job.software.line, "model": job.model.name}
        yield statement(WarningCode.ENGINE_OF_EMBEDDINGS, **figures)


def _across_nodes(layout: Layout, cluster: Cluster) -> tuple[str, ...]:
    """Returns the kinds of parallelism whose groups have GPUs of several nodes. Ranks are numbered tensor first, then
    context, data and pipeline.
    """
    crossing, ranks = [], 1.0
    for name in ("tensor", "context", "data", "pipeline"):
        degree = float(getattr(layout, name))
        ranks *= degree
        if degree > 1 and ranks > cluster.linked_gpus:
            crossing.append(name)
    return tuple(crossing)


def _step_warnings(job_estimate: JobEstimate) -> Iterator[Statement[WarningCode]]:
    """Yields steps that the global batch of the caller does not fill, because no layout of the cluster makes it exactly
    or the caller fixes another one, and steps that have more samples than a whole run.
    """
    config, slots = job_estimate.config, job_estimate.estimate.layout.slots
    asked = config.global_batch if isinstance(config, TrainingConfig) else None
    if asked and slots > asked:
        yield statement(WarningCode.BATCH_NOT_FILLED, asked=asked, slots=slots)
    samples = None if job_estimate.samples is None else job_estimate.samples / job_estimate.job.runs
    if asked and samples is not None and samples < asked:
        yield statement(WarningCode.AMOUNT_BELOW_STEP, samples=samples, asked=asked)


def _length_warnings(job_estimate: JobEstimate) -> Iterator[Statement[WarningCode]]:
    """Yields lengths that are unknown, and sequences with more tokens than the model is published for.

    Such sequences reject no machine, because rotary positions can be scaled.
    """
    if unknown := _unknown_lengths(job_estimate.job):
        yield statement(WarningCode.LENGTH_UNKNOWN, fields=unknown)
    config, transformer = job_estimate.config, job_estimate.job.model.transformer
    # A model that only encodes refuses longer requests, and the result of its pass is no token of them.
    if transformer is None or (isinstance(config, InferenceConfig) and not transformer.decoder):
        return
    if reads_fixed_tokens(job_estimate.job.model):
        tokens = _longest_answer(job_estimate)
    elif transformer.encoder_layers:  # of T5, whose encoder and decoder each have a context
        return
    else:
        tokens = _longest_sequence(config)
    most, trains = transformer.context_tokens, isinstance(config, TrainingConfig)
    if 0 < most < tokens:
        model = job_estimate.job.model.name
        yield statement(WarningCode.BEYOND_CONTEXT, model=model, most=most, tokens=tokens, trains=trains)


def _longest_answer(job_estimate: JobEstimate) -> float:
    """Returns the tokens of the longest text that a decoder writes, or learns to write, next to a fixed input."""
    config, job = job_estimate.config, job_estimate.job
    if isinstance(config, TrainingConfig):
        return job.sequence_length or config.written_length or 0.0
    load = config.serving
    in_load = 0.0 if load is None else load.answer.at(load.percentile)
    return max(config.output_length, config.longest_output or 0.0, in_load)


def _longest_sequence(config: Config) -> float:
    """Returns the tokens of a training sample, or of the longest conversation."""
    if isinstance(config, TrainingConfig):
        return config.sequence_length
    return max(config.whole_length * config.longest_over_mean, config.input_length + (config.longest_output or 0.0))


def _unknown_lengths(job: Job) -> tuple[str, ...]:
    """Returns the lengths of a request to a language model that are unknown, each of which counts as one token."""
    if job.task != "inference" or not job.model.generates:
        return ()
    lengths = {"input_length": input_length(job), "output_length": output_length(job)}
    return tuple(name for name, tokens in lengths.items() if not tokens)


def _load_warnings(job_estimate: JobEstimate) -> Iterator[Statement[WarningCode]]:
    """Yields a late first token. It rejects no machine, because a long prompt takes long on any machine.

    A transcript is read once it is complete, so that its first token has no usual limit.
    """
    served, speech = job_estimate.estimate.served, job_estimate.job.model.family == "speech"
    if speech or served is None or served.tokens is None or served.serving.max_seconds_to_first_token is not None:
        return
    seconds, usual = served.tokens.seconds_to_first_token, USUAL_SECONDS_TO_FIRST_TOKEN
    if seconds > usual:
        percentile = served.serving.percentiles["max_seconds_to_first_token"]
        yield statement(WarningCode.SLOW_FIRST_TOKEN, seconds=seconds, percentile=percentile, usual=usual)


def _draft_warnings(job_estimate: JobEstimate) -> Iterator[Statement[WarningCode]]:
    """Yields speculative decoding that slows down even a request alone, which gains the most from it."""
    config = job_estimate.config
    if not isinstance(config, InferenceConfig) or not config.any_load.speculative_acceptance:
        return
    steps = steps_with_drafts(config)
    if steps >= 1.0:
        drafter = config.any_load.drafter
        figures = {"steps": steps, "drafter": drafter and drafter.name, "model": job_estimate.job.model.name}
        yield statement(WarningCode.DRAFTS_DO_NOT_PAY, **figures)


def _feed_warnings(job_estimate: JobEstimate, cluster: Cluster) -> Iterator[Statement[WarningCode]]:
    """Yields parts of the host that bring fewer samples than the GPUs could take, with figures of one node."""
    rate, loading = job_estimate.estimate.gpu_samples_per_second, job_estimate.job.loading
    if loading.samples_per_second_per_vcpu and cluster.vcpus_per_gpu is None:
        yield statement(WarningCode.VCPUS_UNKNOWN)
    if rate is None:
        return
    nodes, feed = cluster.nodes, feed_of(cluster, loading)
    if (fed := feed.get("host_cpu", rate)) < rate and cluster.vcpus_per_gpu is not None:
        vcpus = cluster.vcpus_per_gpu * cluster.gpus_per_node
        single = loading.single_threaded
        yield statement(WarningCode.HOST_BOUND, rate=rate / nodes, vcpus=vcpus, fed=fed / nodes, single=single)
    if (read := feed.get("network_reads", rate)) < rate:
        yield statement(
            WarningCode.SLOW_READS,
            rate=rate / nodes, gbps=cluster.network_gbps, read=read / nodes, sample_mb=loading.sample_mb,
        )  # fmt: skip


def _image_warnings(job_estimate: JobEstimate, cluster: Cluster) -> Iterator[Statement[WarningCode]]:
    """Yields images that a network reads faster than CPUs usually prepare them, where the caller gives no rate.

    The published runs behind the fit of training had fast input, such as DALI, so their rates do not show this limit.
    """
    loading, samples = job_estimate.job.loading, job_estimate.estimate.samples_per_second
    given = loading.gpu_decoding or loading.samples_per_second_per_vcpu is not None
    if given or _makes_samples(job_estimate.config) or samples is None or cluster.vcpus_per_gpu is None:
        return
    rate, vcpus = samples.likely / cluster.nodes, cluster.vcpus_per_gpu * cluster.gpus_per_node
    seconds = preparation_seconds(job_estimate.job.model, loading)
    if rate * seconds > vcpus:
        yield statement(WarningCode.IMAGES_PER_VCPU, rate=rate, vcpus=vcpus, usual=vcpus / seconds)


def _encoder_warnings(job: Job) -> Iterator[Statement[WarningCode]]:
    """Yields a warning if a model that reads images is trained without images, or fully with a frozen image encoder."""
    if job.task != "training" or not job.model.reads_images:
        return
    if not job.image_tokens:
        flops, of_text = job.model.other_flops_per_sample, 2.0 * multiplied_parameters(job.model)
        yield statement(WarningCode.IMAGE_ENCODER_LEFT_OUT, model=job.model.name, flops=flops, of_text=of_text)
    elif job.method == "full":
        yield statement(WarningCode.IMAGE_ENCODER_FROZEN, model=job.model.name)


def _makes_samples(config: Config) -> bool:
    """Whether samples are made in several steps, as a diffusion model does in inference, and are not read."""
    return isinstance(config, InferenceConfig) and config.steps > 1.0
