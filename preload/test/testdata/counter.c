/* A counter that is held open changes, as perftest's -W reads it. */
#define _GNU_SOURCE
#include "user.h"

#include <fcntl.h>
#include <unistd.h>

static unsigned long long read_counter(int fd)
{
	char text[32] = "";
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, text, sizeof text - 1) > 0);
	return strtoull(text, NULL, 10);
}

int main(void)
{
	struct user u = user_open();
	char path[256];
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/sent_pkts", ibv_get_device_name(u.l.ctx->device));
	int fd = open(path, O_RDONLY), copy;
	CHECK(fd >= 0 && (copy = dup(fd)) >= 0);
	unsigned long long before = read_counter(fd);
	for (int i = 0; i < 10; i++)
		talk(&u);
	CHECK(read_counter(fd) >= before + 10);
	CHECK(read_counter(copy) >= before + 10);
	CHECK(close(fd) == 0 && read_counter(copy) >= before + 10 && close(copy) == 0);
	user_close(&u);
	return 0;
}
