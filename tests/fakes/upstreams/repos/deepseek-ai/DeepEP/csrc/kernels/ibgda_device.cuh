// csrc/kernels/ibgda_device.cuh:66 and :83 of deepseek-ai/DeepEP at 567632d.
struct mlx5_wqe_ctrl_seg;
if constexpr (std::is_same_v<StateType, nvshmemi_ibgda_device_state_v1>) {
