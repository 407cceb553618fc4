"""From launches to warps: two applications on the whole machine (`make kernels`)."""
