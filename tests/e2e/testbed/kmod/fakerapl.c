// SPDX-License-Identifier: GPL-2.0-only
/*
 * Energy counters of a node with two sockets that draws a known, constant power. For the tests' virtual machines only;
 * GPL because the kernel's powercap functions are open to such modules alone.
 *
 * The zones are those of Intel's RAPL: intel-rapl:0 (package-0) with intel-rapl:0:0 (core) and intel-rapl:0:1 (dram),
 * intel-rapl:1 (package-1) with intel-rapl:1:0 (dram).
 *
 * energy_uj is exactly watts * microseconds of CLOCK_BOOTTIME, the clock of /proc/uptime, modulo range_uj + 1.
 */
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/powercap.h>

static uint package[2] = { 100, 90 };
module_param_array(package, uint, NULL, 0444);
MODULE_PARM_DESC(package, "watts of each package");

static uint dram[2] = { 20, 15 };
module_param_array(dram, uint, NULL, 0444);
MODULE_PARM_DESC(dram, "watts of each socket's memory");

static uint core = 60;
module_param(core, uint, 0444);
MODULE_PARM_DESC(core, "watts of the cores of package 0");

static ulong range_uj = 262143328850UL;
module_param(range_uj, ulong, 0444);
MODULE_PARM_DESC(range_uj, "the highest count, after which energy_uj begins again at 0");

struct fake_zone {
	struct powercap_zone zone;
	const char *name;
	const uint *watts;
	struct fake_zone *parent;
};

static struct fake_zone zones[] = {
	{ .name = "package-0", .watts = &package[0] },
	{ .name = "core", .watts = &core, .parent = &zones[0] },
	{ .name = "dram", .watts = &dram[0], .parent = &zones[0] },
	{ .name = "package-1", .watts = &package[1] },
	{ .name = "dram", .watts = &dram[1], .parent = &zones[3] },
};

static struct powercap_control_type *control;

static int get_range(struct powercap_zone *zone, u64 *range)
{
	*range = range_uj;
	return 0;
}

static int get_energy(struct powercap_zone *zone, u64 *energy)
{
	const struct fake_zone *fake = container_of(zone, struct fake_zone, zone);
	u64 total = div_u64(ktime_get_boottime_ns(), NSEC_PER_USEC) * *fake->watts;
	u64 rest;

	div64_u64_rem(total, (u64)range_uj + 1, &rest);
	*energy = rest;
	return 0;
}

/* The zones live as long as this module. */
static int release(struct powercap_zone *zone)
{
	return 0;
}

/* Without a reset_energy_uj, energy_uj is what only root may read. */
static const struct powercap_zone_ops zone_ops = {
	.get_max_energy_range_uj = get_range,
	.get_energy_uj = get_energy,
	.release = release,
};

static int get_limit(struct powercap_zone *zone, int constraint, u64 *value)
{
	*value = 205000000;
	return 0;
}

static int set_nothing(struct powercap_zone *zone, int constraint, u64 value)
{
	return 0;
}

static const char *get_name(struct powercap_zone *zone, int constraint)
{
	return "long_term";
}

/* powercap takes no zone without these. */
static const struct powercap_zone_constraint_ops constraint_ops = {
	.get_power_limit_uw = get_limit,
	.set_power_limit_uw = set_nothing,
	.get_time_window_us = get_limit,
	.set_time_window_us = set_nothing,
	.get_name = get_name,
};

static void unregister(int count)
{
	while (count--)
		powercap_unregister_zone(control, &zones[count].zone);
	powercap_unregister_control_type(control);
}

static int __init fakerapl_init(void)
{
	int i;

	control = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(control))
		return PTR_ERR(control);
	for (i = 0; i < ARRAY_SIZE(zones); i++) {
		struct powercap_zone *parent = zones[i].parent ? &zones[i].parent->zone : NULL;
		struct powercap_zone *made = powercap_register_zone(&zones[i].zone, control, zones[i].name, parent,
								    &zone_ops, 1, &constraint_ops);

		if (IS_ERR(made)) {
			unregister(i);
			return PTR_ERR(made);
		}
	}
	return 0;
}

static void __exit fakerapl_exit(void)
{
	unregister(ARRAY_SIZE(zones));
}

module_init(fakerapl_init);
module_exit(fakerapl_exit);
MODULE_DESCRIPTION("Energy counters of a known power, for tests");
MODULE_LICENSE("GPL");
