"""The closed lists of codes in an answer. A code is never removed, and its meaning never changes."""

from enum import StrEnum


class ReasonCode(StrEnum):
    """Why a choice has its rank."""

    OBJECTIVE = "objective"
    PRECISION = "precision"
    FITS = "fits"
    ONLY_CHOICE = "only_choice"
    MEASURED = "measured"
    SCALED = "scaled"
    TIED = "tied"
    WITHIN_LIMITS = "within_limits"
    SPOT_IN_EXPECTATION = "spot_in_expectation"


class WarningCode(StrEnum):
    """A risk of a choice."""

    PCIE_MULTI_GPU = "pcie_multi_gpu"
    SOLD_FOR_INFERENCE = "sold_for_inference"
    ARM_HOST = "arm_host"
    PREVIEW = "preview"
    CLOSED_TO_NEW = "closed_to_new"
    PRICE_OLD = "price_old"
    PRICE_UNDATED = "price_undated"
    PRICE_ASSUMED = "price_assumed"
    SPOT_CAN_BE_INTERRUPTED = "spot_can_be_interrupted"
    SPOT_DEARER = "spot_dearer"
    FEW_VCPUS = "few_vcpus"
    HOST_MEMORY_UNKNOWN = "host_memory_unknown"
    PART_OF_A_CARD = "part_of_a_card"
    GPU_MEMORY = "gpu_memory"
    HOST_BOUND = "host_bound"
    SLOW_READS = "slow_reads"
    LOCAL_STORAGE_SMALL = "local_storage_small"
    SLOW_NETWORK = "slow_network"
    SUPERSEDED = "superseded"
    NO_FRAMEWORK = "no_framework"
    SOFTWARE_PARTLY = "software_partly"
    TENSOR_OVER_SLOW_LINKS = "tensor_over_slow_links"
    PRECISION_REDUCED = "precision_reduced"
    MEASUREMENT_OTHER_SOFTWARE = "measurement_other_software"
    MEASUREMENT_OLD = "measurement_old"
    EXTRAPOLATES = "extrapolates"


class AdviceCode(StrEnum):
    """Something else that would help. The order is by importance."""

    CURRENT_ENDS = "current_ends"
    NO_ACCELERATOR_NEEDED = "no_accelerator_needed"
    SEPARATE_DEV_AND_TRAINING = "separate_dev_and_training"
    GRAPHICS = "graphics"
    QUANTISATION_REQUIRED = "quantisation_required"
    FRACTIONAL_GPU = "fractional_gpu"
    TF32 = "tf32"
    TF32_OFF_BY_DEFAULT = "tf32_off_by_default"
    MIXED_PRECISION = "mixed_precision"
    HALF_PRECISION = "half_precision"
    INT8 = "int8"
    CODE_CHANGE_REQUIRED = "code_change_required"
    INDEPENDENT_RUNS = "independent_runs"
    ONE_MODEL_PER_GPU = "one_model_per_gpu"
    GPU_DECODING = "gpu_decoding"
    MIGRATION_PATH = "migration_path"
    EVALUATE_NEXT = "evaluate_next"
    MANAGED_SPOT = "managed_spot"
    MANAGED_TRAINING = "managed_training"
    IMAGE_ADVICE = "image_advice"


class NoteCode(StrEnum):
    """Something to know about the whole answer."""

    NAME_NOT_MEASURED = "name_not_measured"
    SPOT_LEFT_OUT = "spot_left_out"
    NEAREST = "nearest"
    OBJECTIVE_DEFAULTED = "objective_defaulted"
    PRICE_IGNORED = "price_ignored"
    NO_AMOUNT = "no_amount"
    NO_DEADLINE = "no_deadline"
    NOT_WEIGHED = "not_weighed"
    SOFTWARE_UNKNOWN = "software_unknown"
