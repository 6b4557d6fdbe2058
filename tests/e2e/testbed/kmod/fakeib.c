// SPDX-License-Identifier: GPL-2.0-only
/*
 * InfiniBand adapters whose counters a test sets. For the tests' virtual machines only; GPL because the kernel's RDMA
 * functions are open to such modules alone.
 *
 * Adapters are named like those of mlx5, and the kernel's own code makes their files. A write of "10,20" to
 * /sys/module/fakeib/parameters/received makes the first port's port_rcv_data 10 and the second one's 20, in the words
 * of 4 bytes that the InfiniBand architecture counts in. Ports are counted through: those of the first adapter first.
 */
#include <linux/math64.h>
#include <linux/module.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>
#include <rdma/ib_verbs.h>

#define MOST 8
#define WORDS_PER_PACKET 1024

static uint devices = 1;
module_param(devices, uint, 0444);
MODULE_PARM_DESC(devices, "how many adapters");

static uint ports = 1;
module_param(ports, uint, 0444);
MODULE_PARM_DESC(ports, "how many ports each has");

static unsigned long long received[MOST];
module_param_array(received, ullong, NULL, 0644);
MODULE_PARM_DESC(received, "port_rcv_data of each port");

static unsigned long long transmitted[MOST];
module_param_array(transmitted, ullong, NULL, 0644);
MODULE_PARM_DESC(transmitted, "port_xmit_data of each port");

struct fake_device {
	struct ib_device ib;
	uint first_port;
};

static struct fake_device *made[MOST];

static uint index_of(struct ib_device *device, u32 port)
{
	return container_of(device, struct fake_device, ib)->first_port + port - 1;
}

static int query_device(struct ib_device *device, struct ib_device_attr *attr, struct ib_udata *udata)
{
	attr->max_pkeys = 1;
	attr->max_qp = 1;
	attr->sys_image_guid = device->node_guid;
	return 0;
}

static int query_port(struct ib_device *device, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_HDR;
	attr->lid = 1;
	attr->sm_lid = 1;
	attr->gid_tbl_len = 1;
	attr->pkey_tbl_len = 1;
	return 0;
}

static int query_pkey(struct ib_device *device, u32 port, u16 index, u16 *pkey)
{
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

static int query_gid(struct ib_device *device, u32 port, int index, union ib_gid *gid)
{
	gid->global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
	gid->global.interface_id = device->node_guid;
	return 0;
}

static int get_port_immutable(struct ib_device *device, u32 port, struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = 1;
	immutable->pkey_tbl_len = 1;
	immutable->core_cap_flags = RDMA_CORE_CAP_PROT_IB;
	return 0;
}

static enum rdma_link_layer get_link_layer(struct ib_device *device, u32 port)
{
	return IB_LINK_LAYER_INFINIBAND;
}

/* The kernel asks for the files of counters/ here, as it asks the firmware of real adapters. */
static int process_mad(struct ib_device *device, int flags, u32 port, const struct ib_wc *wc, const struct ib_grh *grh,
		       const struct ib_mad *in, struct ib_mad *out, size_t *out_size, u16 *out_pkey_index)
{
	uint index = index_of(device, port);
	void *reply = out->data + 40;

	if (in->mad_hdr.mgmt_class != IB_MGMT_CLASS_PERF_MGMT)
		return IB_MAD_RESULT_SUCCESS;
	memset(out->data, 0, sizeof(out->data));
	if (in->mad_hdr.attr_id == IB_PMA_CLASS_PORT_INFO) {
		struct ib_class_port_info *info = reply;

		info->capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH;
	} else if (in->mad_hdr.attr_id == IB_PMA_PORT_COUNTERS_EXT) {
		struct ib_pma_portcounters_ext *counters = reply;
		u64 in_packets = div_u64(received[index], WORDS_PER_PACKET);
		u64 out_packets = div_u64(transmitted[index], WORDS_PER_PACKET);

		counters->port_rcv_data = cpu_to_be64(received[index]);
		counters->port_xmit_data = cpu_to_be64(transmitted[index]);
		counters->port_rcv_packets = cpu_to_be64(in_packets);
		counters->port_xmit_packets = cpu_to_be64(out_packets);
		counters->port_unicast_rcv_packets = cpu_to_be64(in_packets);
		counters->port_unicast_xmit_packets = cpu_to_be64(out_packets);
	} else {
		struct ib_pma_portcounters *counters = reply;

		counters->symbol_error_counter = cpu_to_be16(3);
		counters->link_downed_counter = 1;
	}
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}

static const struct rdma_stat_desc hw_counters[] = {
	{ .name = "out_of_buffer" },
	{ .name = "out_of_sequence" },
	{ .name = "rx_write_requests" },
};

static struct rdma_hw_stats *alloc_hw_port_stats(struct ib_device *device, u32 port)
{
	return rdma_alloc_hw_stats_struct(hw_counters, ARRAY_SIZE(hw_counters), RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

static int get_hw_stats(struct ib_device *device, struct rdma_hw_stats *stats, u32 port, int index)
{
	/* Without a port it is the adapter's own counters that are asked for. */
	if (port == 0)
		return -EOPNOTSUPP;
	stats->value[0] = 5;
	stats->value[1] = 7;
	stats->value[2] = div_u64(received[index_of(device, port)], WORDS_PER_PACKET);
	return ARRAY_SIZE(hw_counters);
}

static const struct ib_device_ops ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.query_device = query_device,
	.query_port = query_port,
	.query_pkey = query_pkey,
	.query_gid = query_gid,
	.get_port_immutable = get_port_immutable,
	.get_link_layer = get_link_layer,
	.process_mad = process_mad,
	.alloc_hw_port_stats = alloc_hw_port_stats,
	.get_hw_stats = get_hw_stats,
};

static void unregister(void)
{
	int i;

	for (i = 0; i < MOST; i++)
		if (made[i]) {
			ib_unregister_device(&made[i]->ib);
			ib_dealloc_device(&made[i]->ib);
		}
}

static int make(uint number)
{
	struct fake_device *fake = ib_alloc_device(fake_device, ib);
	char name[IB_DEVICE_NAME_MAX];
	int error;

	if (!fake)
		return -ENOMEM;
	fake->first_port = number * ports;
	fake->ib.node_type = RDMA_NODE_IB_CA;
	fake->ib.phys_port_cnt = ports;
	fake->ib.num_comp_vectors = 1;
	fake->ib.node_guid = cpu_to_be64(0xa088c20300000001ULL + number);
	strscpy(fake->ib.node_desc, "fakeib", sizeof(fake->ib.node_desc));
	ib_set_device_ops(&fake->ib, &ops);
	snprintf(name, sizeof(name), "mlx5_%u", number);
	error = ib_register_device(&fake->ib, name, NULL);
	if (error) {
		ib_dealloc_device(&fake->ib);
		return error;
	}
	made[number] = fake;
	return 0;
}

static int __init fakeib_init(void)
{
	uint i;
	int error;

	if (!ports || !devices || devices > MOST || ports > MOST / devices)
		return -EINVAL;
	for (i = 0; i < devices; i++) {
		error = make(i);
		if (error) {
			unregister();
			return error;
		}
	}
	return 0;
}

static void __exit fakeib_exit(void)
{
	unregister();
}

module_init(fakeib_init);
module_exit(fakeib_exit);
MODULE_DESCRIPTION("InfiniBand adapters whose counters a test sets");
MODULE_LICENSE("GPL");
