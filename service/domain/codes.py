"""The closed list of codes that answers use, each with what it means."""

REASONS = {
    "objective": "Where the choice stands under the objective, with the figure that put it there.",
    "precision": "The precision the ranking assumes on this GPU, and its peak.",
    "only_choice": "Nothing else satisfies the constraints.",
}
WARNINGS = {
    "pcie_multi_gpu": "Several GPUs talk over PCIe: training one model on all of them can be slow; measure it.",
    "sold_for_inference": "The maker sells this GPU for inference; it can train, and a measurement decides how well.",
    "arm_host": "The host CPU is Arm: every library must exist for it.",
    "preview": "The type is in preview: access must be granted and may be withdrawn.",
    "closed_to_new": "The provider no longer admits new customers to this type.",
    "price_old": "The price was last seen more than 90 days before the catalog's day.",
    "price_undated": "Nobody knows on which day this price was seen.",
    "price_assumed": "The price is carried over from another day; it was not seen on its own.",
    "spot_can_be_interrupted": "Spot machines can be taken away; the work must save and resume.",
    "spot_dearer": "On-demand costs less than spot here.",
    "few_vcpus": "The host has fewer vCPUs per GPU than the workload needs.",
    "host_memory_unknown": "Nobody tells how much host memory the machine has; the workload's need is not checked.",
    "part_of_a_card": "Only a part of a GPU is rented.",
}
REJECTIONS = {
    "provider": "Another provider was asked for.",
    "instance": "Another instance type was asked for.",
    "service": "Another service was asked for.",
    "family": "Another family was asked for.",
    "gpu": "Another GPU was asked for.",
    "gpu_vendor": "Another maker's GPU was asked for.",
    "gpu_kind": "Another kind of accelerator was asked for.",
    "architecture": "Another GPU architecture was asked for.",
    "cpu_architecture": "Another CPU architecture was asked for.",
    "cpu_vendor": "Another CPU maker was asked for.",
    "interconnect": "The GPUs are linked in another way than asked for.",
    "lifecycle": "The type could not be rented on the catalog's day: announced only, in preview or retired.",
    "precision": "The GPU does not run the precision at the support level asked for.",
    "framework": "The framework is not known to run there.",
    "task": "No software does this task there.",
    "exclude": "The caller excluded it.",
    "rdma": "The network is not the RDMA fabric that was asked for.",
    "gpudirect_rdma": "GPUDirect RDMA is not as asked for.",
    "bare_metal": "Bare metal is not as asked for.",
    "region": "Not offered in the regions asked for.",
    "market": "Not offered in the markets asked for.",
    "max_price_age_days": "No price is known that is new enough.",
    "price_unknown": "No price is known, and the objective needs one.",
    "no_offer": "No offer is known on the catalog's day.",
    "max_usd_per_hour": "Costs more per hour than allowed.",
    "peak_unknown": "No peak rate is known at the precision, and the objective needs one.",
    "power_unknown": "No power rating is known, and the objective needs one.",
    **{
        f"{side}_{name}": f"The {label} is {word} asked for."
        for name, label in {
            "gpu_count": "number of GPUs",
            "gpu_memory_gb": "memory of one GPU",
            "total_gpu_memory_gb": "memory of all GPUs together",
            "vcpus": "number of vCPUs",
            "memory_gib": "host memory",
            "network_gbps": "network bandwidth",
            "local_storage_gb": "local storage",
            "memory_bandwidth_gb_per_second": "GPU memory bandwidth",
            "vcpus_per_gpu": "number of vCPUs per GPU",
            "tflops": "peak rate at the precision",
        }.items()
        for side, word in {"min": "below what was", "max": "above what was"}.items()
    },
    **{
        f"{name}_unknown": f"Nobody tells the {label}, so it cannot be shown to meet the constraint."
        for name, label in {
            "gpu_count": "number of GPUs",
            "gpu_memory_gb": "memory of one GPU",
            "total_gpu_memory_gb": "memory of all GPUs",
            "vcpus": "number of vCPUs",
            "memory_gib": "host memory",
            "network_gbps": "network bandwidth",
            "local_storage_gb": "local storage",
            "memory_bandwidth_gb_per_second": "GPU memory bandwidth",
            "vcpus_per_gpu": "number of vCPUs per GPU",
            "tflops": "peak rate at the precision",
            "rdma": "kind of network",
            "gpudirect_rdma": "network's GPUDirect support",
            "bare_metal": "virtualisation",
        }.items()
    },
}
