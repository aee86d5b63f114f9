/* A daemon sends malformed answers: commands fail with EIO, no descriptor leaks and the program does not
 * crash. argv has one word per device, from uverbs0 on. It names the call that fails: "open",
 * "context", "channel" or "cq"; another word means that all calls succeed. "cm" stands for the next
 * connection of rdma_cm, which fails with EPROTO. */
#include "self.h"

#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <stdint.h>
#include <unistd.h>

/* A command without the provider's part. */
#define COMMAND(number, type)                                                                            \
	{                                                                                                \
		.hdr = { .command = number, .in_words = sizeof(struct ib_uverbs_##type) / 4 + 2,          \
			 .out_words = sizeof(struct ib_uverbs_##type##_resp) / 4 },                      \
		.cmd = { .response = (uintptr_t)&resp.type },                                            \
	}

static union {
	struct ib_uverbs_get_context_resp get_context;
	struct ib_uverbs_create_comp_channel_resp create_comp_channel;
	struct ib_uverbs_create_cq_resp create_cq;
} resp;

static ssize_t get_context(int fd)
{
	struct { struct ib_uverbs_cmd_hdr hdr; struct ib_uverbs_get_context cmd; } c =
		COMMAND(IB_USER_VERBS_CMD_GET_CONTEXT, get_context);
	return write(fd, &c, sizeof c);
}

static ssize_t create_channel(int fd)
{
	struct { struct ib_uverbs_cmd_hdr hdr; struct ib_uverbs_create_comp_channel cmd; } c =
		COMMAND(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, create_comp_channel);
	return write(fd, &c, sizeof c);
}

static ssize_t create_cq(int fd)
{
	struct { struct ib_uverbs_cmd_hdr hdr; struct ib_uverbs_create_cq cmd; } c =
		COMMAND(IB_USER_VERBS_CMD_CREATE_CQ, create_cq);
	c.cmd.comp_channel = -1;
	return write(fd, &c, sizeof c);
}

static void verbs(int number, const char *wrong)
{
	char path[64];
	snprintf(path, sizeof path, "/dev/infiniband/uverbs%d", number);
	if (!strcmp(wrong, "open")) {
		CHECK(open(path, O_RDWR | O_CLOEXEC) == -1 && (errno == EIO || errno == EPROTO));
		return;
	}
	int fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	memset(&resp, 0xff, sizeof resp);
	if (!strcmp(wrong, "context")) {
		FAILS(get_context(fd), EIO);
		CHECK(close(fd) == 0);
		return;
	}
	CHECK(get_context(fd) > 0);
	int async = resp.get_context.async_fd;
	if (!strcmp(wrong, "channel"))
		FAILS(create_channel(fd), EIO);
	else if (!strcmp(wrong, "cq"))
		FAILS(create_cq(fd), EIO);
	else
		CHECK(create_cq(fd) > 0 && resp.create_cq.cq_handle == 7);
	CHECK(close(async) == 0 && close(fd) == 0);
}

int main(int argc, char **argv)
{
	int number = 0;
	/* The library's private descriptors exist from the first device on. */
	int fd = open("/dev/infiniband/uverbs5", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && close(fd) == 0);
	for (int i = 1; i < argc; i++) {
		int fds = open_fds("self");
		fprintf(stderr, "%d: %s\n", i - 1, argv[i]);
		if (!strcmp(argv[i], "cm"))
			FAILS(open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC), EPROTO);
		else
			verbs(number++, argv[i]);
		CHECK(open_fds("self") == fds);
	}
	return 0;
}
