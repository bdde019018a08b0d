"""The closed lists of codes in an answer, each with its meaning. A code is never removed or changed in meaning."""

from enum import StrEnum, auto
from typing import Self


class MeaningfulCode(StrEnum):
    """A code, whose value is its name in lower case, and the sentence that explains it."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Makes a text that also has a meaning."""
        code = str.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code


class ReasonCode(MeaningfulCode):
    """Why a choice has its rank."""

    OBJECTIVE = auto(), "The rank of the choice under the objective, with the figures that decide it."
    PRECISION = auto(), "The precision that the ranking assumes on this GPU, and its peak there."
    FITS = auto(), "How much of the usable memory of each GPU the job needs."
    ONLY_CHOICE = auto(), "Nothing else satisfies the constraints."
    MEASURED = auto(), "The rate that was measured on this machine under the workload's name."
    SCALED = auto(), "The rate that was measured under the workload's name, scaled from the most similar machine."
    SOFTWARE = auto(), "The requested software is known to run there in full."
    INTERCONNECT = auto(), "How the GPUs of one machine are linked."
    RANKED_AT_HIGH_PRICE = auto(), "No recent observation confirms the price, so it ranks at its high end."
    SPARE_VCPUS = (
        auto(),
        "How many of its vCPUs prepare samples as fast as the GPUs take them; more vCPUs make it no faster.",
    )
    TIED = auto(), "The uncertainty of the estimates is larger than the difference to these other choices."
    WITHIN_LIMITS = auto(), "How the choice keeps the deadline and the budget."
    WITHIN_BUDGET = auto(), "What a month of the load costs, and the budget of a month."
    SPOT_IN_EXPECTATION = auto(), "Time that interruptions are expected to add, and the break-even rate of spot."


class WarningCode(MeaningfulCode):
    """A risk of a choice, or of a job on one machine."""

    PCIE_MULTI_GPU = auto(), "The GPUs are linked by PCIe only, which can slow down training on all of them."
    SOLD_FOR_INFERENCE = auto(), "The vendor positions this GPU for inference. Measure how well it trains."
    WITHOUT_GPU = auto(), "The machine has no GPU, so that its CPUs do the work."
    BURSTABLE = auto(), "The CPUs sustain only a share of their speed, which the figures count."
    ARM_HOST = auto(), "The host CPU is Arm: every library of the workload must exist for it."
    PREVIEW = auto(), "The instance type is in preview: access must be granted and may be withdrawn."
    CLOSED_TO_NEW = auto(), "The provider no longer admits new customers to this instance type."
    ENDS = auto(), "The instance type is closed to new customers or retired within a year."
    PRICE_OLD = (
        auto(),
        "The price was last observed more than 90 days ago; today's may change the order of the choices.",
    )
    PRICE_SUSPECT = auto(), "One source alone states the price, far below the same GPU at other sellers."
    PRICE_UNDATED = auto(), "The day on which the price was observed is unknown."
    COST_INCOMPLETE = auto(), "The cost of data or of a managed service is unknown, so the dollars are a lower bound."
    PRICE_ASSUMED = auto(), "The price is carried over from another observation; it was not observed itself."
    SPOT_CAN_BE_INTERRUPTED = (
        auto(),
        "The provider can reclaim spot machines; work must save and resume, and a load needs other instances.",
    )
    SPOT_MORE_EXPENSIVE = auto(), "On-demand costs less than spot in this region."
    COMMITS = auto(), "The price obliges to a term, every hour of which is paid for, used or not."
    TERM_TOO_LONG = auto(), "The run is longer than the longest term that the seller offers, so it takes several."
    FEW_VCPUS = auto(), "The host has fewer vCPUs per GPU than the workload needs."
    HOST_MEMORY_UNKNOWN = auto(), "The host memory is unknown, so the requirement was not checked."
    PART_OF_A_CARD = auto(), "The GPU is only a part of a card."
    GPU_MEMORY = (
        auto(),
        "The job fits in each GPU with a probability below 90 % or below the requested confidence, or does not fit.",
    )
    HOST_MEMORY = auto(), "The job does not fit in the memory of the host."
    HOST_BOUND = auto(), "The CPUs prepare samples more slowly than the GPUs can process them."
    IMAGES_PER_VCPU = (
        auto(),
        "The GPUs read images faster than CPUs usually prepare them, and no rate of a vCPU is given.",
    )
    NO_CLUSTER_THERE = (
        auto(),
        "The machines are those of a marketplace, each of another owner, and no network joins them.",
    )
    TRAINING_SHARED = auto(), "Independent instances share one run of training, which the caller has to divide."
    VCPUS_UNKNOWN = auto(), "The number of vCPUs is unknown, so that the CPUs may prepare samples too slowly."
    SINGLE_THREADED = auto(), "Code with one thread uses one of the many slow cores of a server."
    SLOW_READS = auto(), "The network delivers samples more slowly than the GPUs can process them."
    LOCAL_STORAGE_SMALL = auto(), "The samples do not fit on the machine's local disks."
    SLOW_NETWORK = auto(), "The nodes of the job are not on a fast RDMA network, or it is unknown whether they are."
    SUPERSEDED = auto(), "A newer machine of the provider is faster, costs no more and has at least as much memory."
    NO_FRAMEWORK = auto(), "Deep-learning frameworks are known not to run on the GPU, and none is known to."
    SOFTWARE_UNSUPPORTED = auto(), "The software is not known to run there; an estimate assumes that it does."
    SOFTWARE_MODEL = (
        auto(),
        "The software there is not known to do the task with models of this family; an estimate assumes that it does.",
    )
    SOFTWARE_FORMAT = (
        auto(),
        "The software is not known to run weights in this format there; an estimate assumes that it does.",
    )
    SOFTWARE_PARTLY = auto(), "The software runs there only in part, or an optional library does not run there."
    NETWORK_UNKNOWN = auto(), "The network between the nodes is not stated, so that a usual slow one is assumed."
    BEYOND_CONTEXT = auto(), "The longest sequences have more tokens than the model is published for."
    STEP_VERY_LARGE = auto(), "An optimizer step has far more tokens than that of any published run."
    AMOUNT_BELOW_STEP = auto(), "The amount of a run has fewer samples than one optimizer step."
    SLOW_FIRST_TOKEN = auto(), "The first token takes more than 2 s, and the load names no limit on that time."
    DRAFTS_DO_NOT_PAY = auto(), "Drafts take longer than they save, even for one request at a time."
    TENSOR_OVER_SLOW_LINKS = auto(), "Tensor parallelism crosses slow links, so every layer waits for them."
    BATCH_NOT_FILLED = auto(), "Steps of the layout have room for more samples than the global batch has."
    DIMENSIONS_ASSUMED = (
        auto(),
        "Only the parameters of the language model are known; layers and heads are those of a model of about its size.",
    )
    VALUES_ASSUMED = (
        auto(),
        "The values that the layers of a described network write are not known, and are taken from its FLOPs.",
    )
    PRECISION_REDUCED = auto(), "The GPU runs the precision only at a token rate or by conversion."
    PRECISION_STORED = (
        auto(),
        "The GPU or the engine stores the weights in the precision and multiplies in a wider one.",
    )
    MEASUREMENT_OTHER_SOFTWARE = auto(), "The measurement was made with other software than the workload requires."
    MEASUREMENT_OLD = auto(), "The newest measurement under the workload's name is more than a year old."
    ATTENDS_TO_ALL = (
        auto(),
        "The model attends to selected tokens, and the stack or the GPU has no kernels for it: all tokens count.",
    )
    SOFTWARE_UNRECOGNISED = (
        auto(),
        "No stack has the name of the framework or engine, or no published run is of it; the estimate assumes none.",
    )
    LENGTH_UNKNOWN = (
        auto(),
        "The tokens of a prompt or an answer are unknown, so that the rates are those of one token.",
    )
    ENGINE_OF_LANGUAGE_MODELS = (
        auto(),
        "The engine serves language models, and the workload's model is not one.",
    )
    ENGINE_OF_EMBEDDINGS = auto(), "The engine embeds and ranks texts, and the workload's model writes some."
    ENGINE_OF_INFERENCE = auto(), "The engine is made for inference; the figures assume that it trains."
    IMAGE_ENCODER_LEFT_OUT = auto(), "The model reads images, and the question states none for training."
    IMAGE_ENCODER_FROZEN = auto(), "The encoder of images is taken as frozen, although all weights learn."
    EXTRAPOLATES = auto(), "No published run covers some property of the job, so the estimate is less certain."
    # A choice has none of the following. It has notes on what is assumed, a rejection where requests would wait, other
    # warnings on the end of a type, and software for its task.
    BATCH_ASSUMED = auto(), "No batch was given, so that a training step is taken to have a usual number of samples."
    LENGTHS_ASSUMED = auto(), "No length of a sample was given, so that one is assumed, which may be a single token."
    REQUESTS_WAIT = auto(), "Fewer requests run at once than the workload has in flight, and the others wait."
    TASK_UNSUPPORTED = auto(), "No software is known to do the task there; the figures assume that some does."
    HOST_MEMORY_SMALL = auto(), "The host has less memory than the workload asks for."
    ENDED = auto(), "The instance type is closed to new customers or retired."
    SOFTWARE_UNKNOWN = auto(), "A library without any rule about where it runs; the figures count no effect of it."


class RejectionCode(MeaningfulCode):
    """Why instance types are rejected, apart from the filters, whose codes are `FILTER_CODES`."""

    PRECISION = auto(), "The GPU does not run the precision at the requested support level."
    FRAMEWORK = auto(), "The framework is not known to run there."
    SOFTWARE_FRAMEWORK = auto(), "The workload's framework, in the given versions, is not known to run there."
    SOFTWARE_ENGINE = auto(), "The workload's engine, in the given versions, is not known to run there."
    SOFTWARE_MODEL = auto(), "The software there is not known to do the task with models of the workload's family."
    SOFTWARE_FORMAT = auto(), "The workload's engine is not known to run weights in their format there."
    SOFTWARE_CUDA = (
        auto(),
        (
            "The given CUDA toolkit does not build for the GPU: too old, too new, or not an NVIDIA GPU. Or the "
            "framework has no build with it for the GPU."
        ),
    )
    SOFTWARE_PLATFORMS = auto(), "The code is written for none of the platforms that run there."
    SOFTWARE_LIBRARIES = auto(), "A library or feature that the workload requires is not known to run there."
    CUSTOM_CUDA_KERNELS = auto(), "The workload's own CUDA kernels do not run there as they are."
    NUMERICS = auto(), "The GPU supports none of the requested precisions that the workload can tolerate."
    HOST_MEMORY_GIB = auto(), "The host has less memory than the workload requires."
    TASK = auto(), "No software does this task there."
    EXCLUDE = auto(), "The caller excluded it."
    MANAGED_SERVICE = auto(), "The managed service does not rent it out."
    REGION = auto(), "The catalog has no offer of it in the requested regions."
    COUNTRY = auto(), "The catalog has no offer of it in the requested countries."
    CONTINENT = auto(), "The catalog has no offer of it on the requested continents."
    REGION_UNKNOWN = (
        auto(),
        (
            "Its prices name no region, or a region of unknown country, so it is not known whether it is offered "
            "where requested."
        ),
    )
    MARKET = auto(), "The catalog has no offer of it in the requested markets."
    SPOT_PRICE_UNKNOWN = auto(), "The provider sells spot machines, and no spot price of the type is known on that day."
    MAX_PRICE_AGE_DAYS = auto(), "No known price is recent enough."
    PRICE_UNKNOWN = auto(), "No price is known, and the objective or a limit in dollars needs one."
    GROWTH = (
        auto(),
        (
            "The provider has no machine of the same architecture with fast links between its GPUs, so the work "
            "cannot grow there."
        ),
    )
    NO_CLUSTER_THERE = auto(), "The machines are those of a marketplace, each of another owner, and form no cluster."
    MAINSTREAM = (
        auto(),
        (
            "The question names no software, platform or hardware, so PyTorch is assumed, which does not run in full "
            "on this GPU or does not train there with the requested method."
        ),
    )
    WITHOUT_GPU = (
        auto(),
        (
            "It has no GPU, and the question does not ask for such machines: by the platform `cpu`, by a "
            "`max_gpu_count` of 0, by name, or by a library that runs on every kind of device."
        ),
    )
    NO_GPU = auto(), "The instance type has no GPU, and the job cannot be estimated on CPUs."
    GPU_FIGURES_UNKNOWN = auto(), "The GPU's memory, bandwidth or rates are unknown, so nothing can be estimated."
    GLOBAL_BATCH_SIZE = auto(), "The batch cannot be divided over so many GPUs."
    GPU_MEMORY = auto(), "The job does not fit in the memory of its GPUs."
    HOST_MEMORY = auto(), "The job does not fit in the host's memory."
    CONCURRENCY = auto(), "Fewer requests run at once than the workload asks for."
    LAYOUT = auto(), "The fixed parts of the layout do not divide the job over the GPUs."
    KV_CACHE = auto(), "The GPUs hold the weights, and not the cache of a single request."
    TOO_SLOW_FIRST_TOKEN = auto(), "The first token takes longer than allowed, on any allowed number of instances."
    TOO_SLOW_PER_TOKEN = auto(), "A token takes longer than allowed, on any allowed number of instances."
    TOO_SLOW_PER_REQUEST = auto(), "A request takes longer than allowed, on any allowed number of instances."
    MAX_INSTANCES = auto(), "The load takes more instances than `max_instances`, or its default, allows."
    DEADLINE_HOURS = auto(), "The job takes longer than allowed."
    NOT_MEASURED = auto(), "No measurement under the workload's name applies to this instance type."
    BUDGET_USD = (
        auto(),
        "The whole job, or a month of the load, costs more than allowed wherever it keeps the other limits.",
    )
    USD_PER_MILLION_TOKENS = auto(), "A million tokens cost more than allowed wherever the other limits are kept."
    COST_UNKNOWN = auto(), "A part of the cost is unknown, so it cannot be shown to keep the limits in dollars."
    INTERRUPTIONS = auto(), "Spot interruptions are so frequent that the job would hardly ever finish."
    NO_OFFER = auto(), "No offer is known on the catalog's day."
    MAX_USD_PER_HOUR = auto(), "It costs more per hour than allowed."
    USD_PER_HOUR_UNKNOWN = auto(), "The price per hour is unknown, so it cannot be shown to pass the constraint."
    PEAK_UNKNOWN = auto(), "No peak rate is known at the precision, and the objective needs one."
    POWER_UNKNOWN = auto(), "No power rating is known, and the objective needs one."


class AdviceCode(MeaningfulCode):
    """Something else that would help. The order is by importance."""

    CURRENT_ENDS = auto(), "The current instance type is closed to new customers or retired: move its workload."
    NO_ACCELERATOR_NEEDED = auto(), "The workload does not benefit from a GPU; a machine without one is enough."
    SEPARATE_DEV_AND_TRAINING = auto(), "Develop on a machine without a GPU, and rent a GPU only for the runs."
    GRAPHICS = auto(), "A machine whose GPU the vendor positions for graphics."
    QUANTISATION_REQUIRED = auto(), "The GPU multiplies only in int8, so the model must be quantised for it."
    FRACTIONAL_GPU = auto(), "A part of a card, or an accelerator attached to a CPU machine, may be enough."
    TF32 = auto(), "The GPU has TF32, which is faster than fp32 and needs no change of the code."
    TF32_OFF_BY_DEFAULT = auto(), "PyTorch disables TF32 for matrix products by default from version 1.12 on."
    TF32_ON_BY_DEFAULT = auto(), "PyTorch before version 1.12 multiplies matrices in TF32 although the code says fp32."
    MIXED_PRECISION = auto(), "The GPU is faster at 16 bits; training in 16 bits usually needs changes of the code."
    HALF_PRECISION = auto(), "The GPU serves faster at 16 bits, which is enough for most models."
    INT8 = auto(), "The GPU serves faster in int8, or in fp8 where it has it, once the model is quantised."
    CODE_CHANGE_REQUIRED = auto(), "Several GPUs train one model only with code that is written for it."
    INDEPENDENT_RUNS = auto(), "Independent runs take a GPU each and need no fast links."
    ONE_MODEL_PER_GPU = auto(), "Each GPU can serve a model of its own."
    GPU_DECODING = auto(), "Decoding on the GPU relieves the CPUs, which are the bottleneck."
    MIGRATION_PATH = auto(), "A larger machine with GPUs of the same architecture, for later."
    EVALUATE_NEXT = auto(), "The workload has no measurement yet: which two machines to measure first."
    MONITOR_MEMORY = auto(), "The host memory is unknown: watch it in a short run before a long one."
    MANAGED_SPOT = auto(), "The provider runs training on spot capacity and handles interruptions and checkpoints."
    MANAGED_TRAINING = auto(), "The provider runs training and bills only the run, not the time before and after it."
    IMAGE_ADVICE = auto(), "The provider's images include drivers and frameworks built for its machines."
    UPGRADE_PATH = (
        auto(),
        "The next GPUs of the same seller with more memory, with more speed, and with more speed per dollar.",
    )


class NoteCode(MeaningfulCode):
    """Something to know about the whole answer."""

    NAME_NOT_MEASURED = auto(), "No measurement exists under the workload's name by the catalog's day."
    SPOT_LEFT_OUT = auto(), "Spot machines were left out because the workload is not fault-tolerant."
    NEAREST = auto(), "No choice keeps both the deadline and the budget; the note has the nearest one on each side."
    SEVERAL_CONSTRAINTS = (
        auto(),
        "No single change admits anything; the note names the type that misses the fewest constraints.",
    )
    EMPTY_CATALOG = auto(), "The catalog of the day has no instance types, because the day is too early."
    RETIRED = auto(), "All instance types of a family, series or name in the constraints are retired."
    GPU_NOT_RENTED = auto(), "No instance type of the catalog has any of the GPUs that the constraints name."
    OBJECTIVE_CHANGED = auto(), "The first choice under the earlier objective, compared with the one of this answer."
    OBJECTIVE_DEFAULTED = auto(), "No objective was given, so `cheapest` was used."
    PRICE_IGNORED = auto(), "No candidate has a known price, so the ranking is by hardware alone."
    UNRANKED = auto(), "Instance types that pass every constraint, but cannot be ranked: a figure is not published."
    SPOT_PRICE_UNKNOWN = auto(), "Spot is allowed and sold, but no spot price of an admitted type is known on that day."
    COMMITMENT_UNUSED = auto(), "No admitted offer is under the commitments that the caller holds."
    PUBLISHED_PRECISION = (
        auto(),
        "No precision was given, so weights are served, or frozen below adapters, in the format they are published in.",
    )
    READING_SPEED = auto(), "No limit on a time was given for a load, so answers are twice as fast as people read."
    NO_TIME_LIMIT = auto(), "No limit on a time was given for a load without tokens, and none was applied."
    NO_AMOUNT = auto(), "No amount of work is known, so the ranking is by rates and hourly prices."
    NO_DEADLINE = auto(), "No deadline was given, so none was applied."
    NODES_NOT_TRIED = auto(), "Some numbers of nodes up to `max_nodes` are not tried, and `max_nodes` is one of them."
    BATCH_ASSUMED = auto(), "No batch was given, so that training steps are taken to have a usual number of samples."
    LENGTHS_ASSUMED = auto(), "No length of a sample was given, so that one is assumed, which may be a single token."
    CONFLICT_IN_SOURCES = auto(), "Rules of thumb that the answer cites rank the same families in opposite orders."
    NOT_WEIGHED = auto(), "Fields that were read and checked but did not affect the ranking."
    SOFTWARE_UNKNOWN = auto(), "Software without any rule about where it runs; it rejected nothing."
