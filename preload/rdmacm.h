/* The rdma_cm ABI (rdma/rdma_user_cm.h). */
#ifndef ROCED_RDMACM_H
#define ROCED_RDMACM_H

#include <sys/types.h>

/* rcm_open opens /dev/infiniband/rdma_cm; rcm_write carries out a command. */
int rcm_open(int flags);
ssize_t rcm_write(int fd, const void *buf, size_t n);

#endif
