"""What differs on cards: which kernels there are, and how tensors are split over them."""
