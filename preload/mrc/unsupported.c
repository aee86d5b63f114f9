/* Functions that fail: completion channels, asynchronous events, and OCP's API for controllers (mrc_ctl.h). */
#include "objects.h"

#include <errno.h>

EXPORT int mrc_create_comp_channel(struct mrc_context *c, struct mrc_comp_channel **channel)
{
	(void)c, (void)channel;
	return errno = EOPNOTSUPP;
}

EXPORT int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd)
{
	(void)channel, (void)fd;
	return fail(EOPNOTSUPP);
}

EXPORT int mrc_destroy_comp_channel(struct mrc_comp_channel *channel)
{
	(void)channel;
	return errno = EOPNOTSUPP;
}

EXPORT int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only)
{
	(void)cq, (void)solicited_only;
	return errno = EOPNOTSUPP;
}

EXPORT int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq, void **cq_context)
{
	(void)channel, (void)cq, (void)cq_context;
	return fail(EOPNOTSUPP);
}

EXPORT void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int nevents)
{
	(void)cq, (void)nevents;
	errno = EOPNOTSUPP;
}

EXPORT int mrc_get_async_event(struct mrc_context *c, struct mrc_async_event *event)
{
	(void)c, (void)event;
	return fail(EOPNOTSUPP);
}

EXPORT void mrc_ack_async_event(struct mrc_async_event *event)
{
	(void)event;
	errno = EOPNOTSUPP;
}

/* Programs that use the controller's functions have OCP's header for them. The functions here take no arguments,
 * because they read none. */
#define CONTROLLER(name)                  \
	EXPORT int name(void);            \
	EXPORT int name(void)             \
	{                                 \
		return fail(EOPNOTSUPP);  \
	}

CONTROLLER(mrc_ctl_query_device)
CONTROLLER(mrc_ctl_query_device_ex)
CONTROLLER(mrc_ctl_query_port)
CONTROLLER(mrc_ctl_modify_port)
CONTROLLER(mrc_ctl_modify_ev_fmt_profile)
CONTROLLER(mrc_ctl_query_ev_fmt_profile)
CONTROLLER(mrc_ctl_modify_ev_profile)
CONTROLLER(mrc_ctl_query_ev_profile)
CONTROLLER(mrc_ctl_modify_cc_profile)
CONTROLLER(mrc_ctl_query_cc_profile)
CONTROLLER(mrc_ctl_ep_batch_send_wait)

EXPORT void *mrc_ctl_create_ev_event_cq(void);
EXPORT void *mrc_ctl_create_ev_event_cq(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

EXPORT int mrc_ctl_poll_ev_event(void);
EXPORT int mrc_ctl_poll_ev_event(void)
{
	return -EOPNOTSUPP;
}

/* Version 0: there is none. */
EXPORT void mrc_ctl_query_version(uint32_t *current, uint32_t *last, uint32_t *vendor, uint32_t *last_vendor);
EXPORT void mrc_ctl_query_version(uint32_t *current, uint32_t *last, uint32_t *vendor, uint32_t *last_vendor)
{
	uint32_t *const all[] = { current, last, vendor, last_vendor };
	for (int i = 0; i < 4; i++)
		if (all[i])
			*all[i] = 0;
}
