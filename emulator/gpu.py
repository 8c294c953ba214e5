"""What a GPU node looks like to the API: labels and resources that its add-ons would put there."""

from __future__ import annotations

from collections.abc import Mapping

GPU_LABELS: Mapping[str, str] = {
    # Node feature discovery
    "feature.node.kubernetes.io/cpu-model.vendor_id": "AMD",
    "feature.node.kubernetes.io/kernel-version.major": "6",
    "feature.node.kubernetes.io/pci-10de.present": "true",
    # GPU feature discovery
    "nvidia.com/cuda.driver.major": "570",
    "nvidia.com/cuda.runtime.major": "12",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.family": "ampere",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/mig.capable": "true",
    # GPUStack's device manager
    "feature.gpustack.ai/acceleratable": "true",
    "acceleratable.feature.gpustack.ai/nvidia": "true",
}

GPU_RESOURCES: Mapping[str, str] = {"nvidia.com/gpu": "8"}
