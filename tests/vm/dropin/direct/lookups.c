/*
 * The names of libmlx5 that NCCL looks up by version when it runs, in a library that it loads itself (src/misc/mlx5dvsymbols.cc, NCCL of 2026).
 *
 * usage: lookups DEVICE
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdbool.h>

#include "../../lib/check.h"

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	struct ibv_device **list = ibv_get_device_list(NULL), **device;
	CHECK(list);
	for (device = list; *device && strcmp(ibv_get_device_name(*device), argv[1]); device++)
		;
	CHECK(*device);
	void *library = dlopen("libmlx5.so.1", RTLD_NOW);
	CHECK(library);
	bool (*is_supported)(struct ibv_device *) = dlvsym(library, "mlx5dv_is_supported", "MLX5_1.8");
	CHECK(is_supported);
	printf("%s\n", is_supported(*device) ? "a device of mlx5" : "another device");
	/* Since release 56. */
	static const char *const later[] = { "mlx5dv_get_data_direct_sysfs_path", "mlx5dv_reg_dmabuf_mr" };
	for (int at = 0; at < 2; at++)
		printf("%s %s\n", later[at], dlvsym(library, later[at], "MLX5_1.25") ? "found" : "not there");
	return 0;
}
